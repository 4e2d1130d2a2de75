//! Lost packets: time-outs, retries, and ends that do not agree.

use std::time::{Duration, Instant};

use ibnet_simverbs::{DeviceSpec, Fabric, LossReason, PortSpec, TraceEvent};
use ibnet_verbs::{Mtu, QueuePairState, RemoteAddress, SendRequest, WcStatus};

use crate::pairs::{End, Pair, Setup, two_roce};

/// The acknowledgement timeout of the default setup.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 6);

fn write(a: &End, b: &End, wr_id: u64) -> SendRequest {
    SendRequest::write(wr_id, a.sge(0, 8), b.remote(0)).signaled()
}

#[test]
fn a_lost_link_ends_in_retry_exceeded_after_the_timeout_of_each_retry() {
    for retries in [0, 1, 3, 7] {
        let setup = Setup {
            retries,
            ..Setup::default()
        };
        let pair = Pair::stepped(9, &setup);
        let Pair { a, b, fabric } = &pair;
        let cut = fabric.faults().cut_link("sim1", 1, Duration::from_secs(10));
        let start = fabric.now();
        a.send(&mut [write(a, b, 1), write(a, b, 2)]).unwrap();
        let mut outcomes = Vec::new();
        while outcomes.is_empty() {
            assert!(fabric.step());
            outcomes = a.outcomes();
        }
        assert_eq!(outcomes, [(1, WcStatus::RETRY_EXC_ERR)]);
        let spent = fabric.now() - start;
        let expected = TIMEOUT * (u32::from(retries) + 1);
        assert!(spent >= expected, "{spent:?} {expected:?}");
        assert!(
            spent < expected + Duration::from_micros(50),
            "{spent:?} {expected:?}"
        );
        assert_eq!(cut.struck(), u64::from(retries) + 1);
        assert_eq!(fabric.counters().retries, u64::from(retries));
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(2, WcStatus::WR_FLUSH_ERR)]);
        // The peer knows nothing of it.
        assert_eq!(b.qp.state().unwrap(), QueuePairState::RTS);
        assert!(b.context.next_event().unwrap().is_none());
    }
}

#[test]
fn a_link_that_comes_back_in_time_costs_only_time() {
    let pair = Pair::stepped(9, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    a.memory.write(0, b"patience");
    let cut = fabric.faults().cut_link("sim0", 1, TIMEOUT * 2);
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.run_until_idle();
    assert!(a.outcomes().is_empty());
    assert_eq!(b.memory.read(0..8), [0; 8]);
    fabric.advance(TIMEOUT * 3);
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!(b.memory.read(0..8), b"patience");
    assert!(cut.struck() > 0);
    // All retries are back: the same again succeeds as well.
    let cut = fabric.faults().cut_link("sim0", 1, TIMEOUT * 3);
    a.send(&mut [write(a, b, 2)]).unwrap();
    fabric.advance(TIMEOUT * 4);
    assert_eq!(a.outcomes(), [(2, WcStatus::SUCCESS)]);
    assert!(cut.struck() > 0);
}

#[test]
fn a_link_that_is_cut_again_stays_cut_for_as_long_as_the_second_time() {
    let pair = Pair::stepped(9, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let first = fabric.faults().cut_link("sim0", 1, TIMEOUT / 2);
    let second = fabric.faults().cut_link("sim0", 1, TIMEOUT * 3 / 2);
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(TIMEOUT * 3);
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!((first.struck(), second.struck()), (0, 2));
}

#[test]
fn a_read_whose_data_is_lost_is_tried_again() {
    for cut_for in [TIMEOUT / 2, TIMEOUT * 10] {
        let pair = Pair::stepped(9, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        b.memory.write(0, &[1; 100]);
        a.send(&mut [SendRequest::read(1, a.sge(0, 100), b.remote(0)).signaled()])
            .unwrap();
        assert!(fabric.step_until(10, || fabric.counters().messages == 1));
        assert_eq!(a.memory.read(0..100), [0; 100]);
        let cut = fabric.faults().cut_link("sim1", 1, cut_for);
        fabric.advance(TIMEOUT * 20);
        let is_restored = cut_for < TIMEOUT;
        let status = match is_restored {
            true => WcStatus::SUCCESS,
            false => WcStatus::RETRY_EXC_ERR,
        };
        assert_eq!(a.outcomes(), [(1, status)]);
        assert_eq!(a.memory.read(0..100) == [1; 100], is_restored);
        assert_eq!(cut.struck(), if is_restored { 1 } else { 4 });
    }
}

/// The hard case of recovery: everything arrived, but the sender does not know.
#[test]
fn a_lost_acknowledgement_fails_a_write_that_arrived() {
    let mut seen = 0;
    for seed in 0..20 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        b.receive_immediates([5, 6]);
        let write = SendRequest::write_with_immediate(1, a.sge(0, 8), b.remote(0), 1).signaled();
        a.send(&mut [write]).unwrap();
        let mut received = Vec::new();
        while received.is_empty() {
            fabric.step();
            received = b.outcomes();
        }
        if !a.outcomes().is_empty() {
            continue;
        }
        seen += 1;
        let cut = fabric.faults().cut_link("sim1", 1, Duration::from_secs(1));
        fabric.advance(TIMEOUT * 10);
        assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
        assert_eq!(received, [(5, WcStatus::SUCCESS)]);
        assert!(cut.struck() > 0);
    }
    assert!(seen > 0);
}

/// Once an acknowledgement is lost, only a peer that is still there can give another.
#[test]
fn an_acknowledgement_cannot_be_repeated_by_a_peer_that_is_gone() {
    for is_destroyed in [false, true] {
        let Pair { a, b, fabric } = Pair::stepped(1, &Setup::default());
        b.receive_immediates([5]);
        let write = SendRequest::write_with_immediate(1, None, b.remote(0), 1).signaled();
        a.send(&mut [write]).unwrap();
        assert!(fabric.step_until(10, || !b.outcomes().is_empty()));
        let cut = fabric.faults().cut_link("sim1", 1, TIMEOUT / 2);
        assert!(fabric.step_until(10, || cut.struck() > 0));
        let _b = if is_destroyed {
            drop(b);
            None
        } else {
            b.qp.to_error().unwrap();
            Some(b)
        };
        fabric.advance(TIMEOUT * 10);
        assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    }
}

/// The peer refuses and goes to ERR; the news is lost, and later packets are dropped.
#[test]
fn a_lost_refusal_ends_in_retry_exceeded() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let wrong = RemoteAddress {
        rkey: !b.region.rkey(),
        ..b.remote(0)
    };
    a.send(&mut [SendRequest::write(1, a.sge(0, 8), wrong)])
        .unwrap();
    let refuses = || b.qp.state().unwrap() == QueuePairState::ERR;
    assert!(fabric.step_until(10, refuses));
    let cut = fabric.faults().cut_link("sim0", 1, TIMEOUT / 2);
    assert!(fabric.step_until(10, || cut.struck() > 0));
    fabric.advance(TIMEOUT * 10);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert_eq!(fabric.counters().refused, 1);
}

#[test]
fn a_queue_pair_that_is_moved_to_error_does_not_try_again() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let cut = fabric.faults().cut_link("sim0", 1, Duration::from_secs(1));
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(cut.struck(), 1);
    a.qp.to_error().unwrap();
    fabric.advance(TIMEOUT * 10);
    assert_eq!(a.outcomes(), [(1, WcStatus::WR_FLUSH_ERR)]);
    assert_eq!((cut.struck(), fabric.counters().retries), (1, 0));
}

#[test]
fn a_message_is_carried_out_once_however_often_it_is_sent() {
    for seed in 0..20 {
        let pair = Pair::stepped(
            seed,
            &Setup {
                retries: 7,
                ..Setup::default()
            },
        );
        let Pair { a, b, fabric } = &pair;
        b.receive_immediates(0..8);
        let mut chain = [0, 1, 2, 3].map(|wr_id| {
            let write = SendRequest::write_with_immediate(wr_id, None, b.remote(0), wr_id as u32);
            write.signaled()
        });
        a.send(&mut chain).unwrap();
        // Cuts at whatever moment the seed makes of it.
        for _ in 0..6 {
            fabric.step();
            let cut = fabric
                .faults()
                .cut_link("sim1", 1, Duration::from_micros(2));
            fabric.step();
            let _ = cut.struck();
        }
        fabric.advance(TIMEOUT * 10);
        assert_eq!(
            a.outcomes(),
            [0, 1, 2, 3].map(|wr_id| (wr_id, WcStatus::SUCCESS))
        );
        let immediates: Vec<_> = b.poll().iter().map(|wc| wc.immediate()).collect();
        assert_eq!(
            immediates,
            [Some(0), Some(1), Some(2), Some(3)],
            "seed {seed}"
        );
    }
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let pair = Pair::stepped(
        9,
        &Setup {
            timeout: 0,
            ..Setup::default()
        },
    );
    let Pair { a, b, fabric } = &pair;
    let cut = fabric.faults().cut_link("sim1", 1, Duration::from_secs(1));
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(Duration::from_secs(3600));
    assert!(a.outcomes().is_empty());
    assert_eq!(cut.struck(), 1);
    assert_eq!(a.qp.state().unwrap(), QueuePairState::RTS);
}

/// Connects both ends with different ideas, and lets `a` write.
fn disagree(length: usize, connect: impl Fn(&Pair, &Setup)) -> (WcStatus, Vec<LossReason>) {
    let setup = Setup::default();
    let fabric = two_roce().stepped(3).trace().build().unwrap();
    let pair = Pair::unconnected(fabric, &setup);
    connect(&pair, &setup);
    let Pair { a, b, fabric } = &pair;
    a.memory.write(0, &vec![1; length]);
    a.send(&mut [SendRequest::write(1, a.sge(0, length), b.remote(0))])
        .unwrap();
    fabric.advance(Duration::from_secs(1));
    let status = a.poll()[0].status();
    assert_eq!(b.memory.read(0..length), vec![0; length]);
    let losses = fabric
        .take_trace()
        .into_iter()
        .filter_map(|entry| match entry.event {
            TraceEvent::Lost { reason, .. } => Some(reason),
            _ => None,
        });
    (status, losses.collect())
}

#[test]
fn sequence_numbers_must_agree() {
    for psn in [0xff_fffd, 0xff_ffff, 0] {
        let (status, losses) = disagree(8, |Pair { a, b, .. }, setup| {
            a.connect_to(b, setup).unwrap();
            b.connect_to(a, &Setup { psn, ..*setup }).unwrap();
        });
        assert_eq!(status, WcStatus::RETRY_EXC_ERR);
        assert_eq!(losses, [LossReason::SequenceMismatch; 4]);
    }
}

#[test]
fn each_end_must_be_connected_to_the_other() {
    let (status, losses) = disagree(8, |Pair { a, b, .. }, setup| {
        a.connect_to(b, setup).unwrap();
        b.init(setup).unwrap();
        let mut rtr = b.to_rtr(a, setup);
        rtr.remote_qp += 1;
        b.qp.to_rtr(&rtr).unwrap();
    });
    assert_eq!(
        (status, losses),
        (WcStatus::RETRY_EXC_ERR, vec![LossReason::PeerMismatch; 4])
    );

    // The right queue pair, but at another address: here the peer's own.
    let (status, losses) = disagree(8, |Pair { a, b, .. }, setup| {
        a.connect_to(b, setup).unwrap();
        b.init(setup).unwrap();
        let mut rtr = b.to_rtr(a, setup);
        rtr.address = b.to_rtr(b, setup).address;
        b.qp.to_rtr(&rtr).unwrap();
    });
    assert_eq!(
        (status, losses),
        (WcStatus::RETRY_EXC_ERR, vec![LossReason::PeerMismatch; 4])
    );

    let (status, losses) = disagree(8, |Pair { a, b, .. }, setup| {
        a.init(setup).unwrap();
        let mut rtr = a.to_rtr(b, setup);
        rtr.remote_qp = 0xabcdef;
        a.qp.to_rtr(&rtr).unwrap();
        a.qp.to_rts(&End::ready_to_send(setup)).unwrap();
        b.connect_to(a, setup).unwrap();
    });
    assert_eq!(
        (status, losses),
        (
            WcStatus::RETRY_EXC_ERR,
            vec![LossReason::NoSuchQueuePair; 4]
        )
    );
}

#[test]
fn a_peer_that_does_not_receive_loses_packets() {
    let (status, losses) = disagree(8, |Pair { a, b, .. }, setup| {
        a.connect_to(b, setup).unwrap();
        b.init(setup).unwrap();
    });
    assert_eq!(
        (status, losses),
        (WcStatus::RETRY_EXC_ERR, vec![LossReason::NotReceiving; 4])
    );
}

/// By the specification packets that do not have the length of the receiver's path MTU are refused
/// rather than dropped.
#[test]
fn path_mtus_must_agree_where_it_matters() {
    let connect = |Pair { a, b, .. }: &Pair, setup: &Setup| {
        a.connect_to(b, setup).unwrap();
        b.connect_to(
            a,
            &Setup {
                mtu: Mtu::MTU_512,
                ..*setup
            },
        )
        .unwrap();
    };
    let (status, losses) = disagree(513, connect);
    assert_eq!((status, losses.len()), (WcStatus::REM_INV_REQ_ERR, 0));

    // A message of one packet fits both.
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().stepped(3).build().unwrap(), &setup);
    connect(&pair, &setup);
    let Pair { a, b, fabric } = &pair;
    a.send(&mut [SendRequest::write(1, a.sge(0, 512), b.remote(0)).signaled()])
        .unwrap();
    // The peer would answer a read in packets of another length.
    a.send(&mut [SendRequest::read(2, a.sge(0, 513), b.remote(0))])
        .unwrap();
    fabric.run_until_idle();
    assert_eq!(
        a.outcomes(),
        [(1, WcStatus::SUCCESS), (2, WcStatus::BAD_RESP_ERR)]
    );
}

#[test]
fn packets_longer_than_the_mtu_of_the_peers_port_are_lost() {
    let big = PortSpec::infiniband();
    let small = PortSpec::infiniband().mtu(Mtu::MTU_1024, Mtu::MTU_4096);
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0").ports([big]))
        .device(DeviceSpec::infiniband("ib1").ports([small]))
        .stepped(1);
    let setup = Setup::default();
    let pair = Pair::unconnected(fabric.build().unwrap(), &setup);
    let Pair { a, b, fabric } = &pair;
    a.connect_to(
        b,
        &Setup {
            mtu: Mtu::MTU_4096,
            ..setup
        },
    )
    .unwrap();
    b.connect_to(a, &setup).unwrap();
    a.send(&mut [SendRequest::write(1, a.sge(0, 2000), b.remote(0))])
        .unwrap();
    fabric.advance(Duration::from_secs(1));
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert_eq!(fabric.counters().lost(LossReason::TooLong), 4);
}

#[test]
fn a_free_running_fabric_times_out_in_real_time() {
    let pair = Pair::free_running(&Setup {
        retries: 2,
        ..Setup::default()
    });
    let Pair { a, b, fabric } = &pair;
    let cut = fabric
        .faults()
        .cut_link("sim1", 1, Duration::from_secs(3600));
    let start = Instant::now();
    a.send(&mut [write(a, b, 1)]).unwrap();
    loop {
        match a.outcomes()[..] {
            [] => assert!(start.elapsed() < Duration::from_secs(20), "it never came"),
            [(1, WcStatus::RETRY_EXC_ERR)] => break,
            ref other => panic!("{other:?}"),
        }
    }
    assert!(start.elapsed() >= TIMEOUT * 3);
    assert_eq!(cut.struck(), 3);
    cut.disarm();
    // The link is whole again: new life on the same queue pairs.
    for (own, peer) in [(a, b), (b, a)] {
        own.qp.to_reset().unwrap();
        own.init(&Setup::default()).unwrap();
        own.qp.to_rtr(&own.to_rtr(peer, &Setup::default())).unwrap();
        own.qp
            .to_rts(&End::ready_to_send(&Setup::default()))
            .unwrap();
    }
    a.send(&mut [write(a, b, 2)]).unwrap();
    assert_eq!(a.outcomes(), [(2, WcStatus::SUCCESS)]);
}
