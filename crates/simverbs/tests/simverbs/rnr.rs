//! Receivers that have no receive posted.

use std::time::{Duration, Instant};

use ibnet_verbs::{QueuePairState, RecvRequest, SendRequest, WcStatus};

use crate::pairs::{Pair, Setup};

fn setup(rnr_retries: u8) -> Setup {
    Setup {
        rnr_retries,
        // 0.64 ms
        rnr_timer: 12,
        ..Setup::default()
    }
}

#[test]
fn retries_are_counted_and_timed_by_the_receiver() {
    for (seed, retries) in (0..20).flat_map(|seed| [0, 1, 3, 6].map(|retries| (seed, retries))) {
        let pair = Pair::stepped(seed, &setup(retries));
        let Pair { a, b, fabric } = &pair;
        let good = SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled();
        let write = SendRequest::write_with_immediate(2, a.sge(0, 8), b.remote(0), 1);
        a.send(&mut [good, write]).unwrap();
        fabric.run_until_idle();
        // Being told to wait also acknowledges what came before.
        let mut expected = vec![(1, WcStatus::SUCCESS)];
        if retries == 0 {
            expected.push((2, WcStatus::RNR_RETRY_EXC_ERR));
        }
        assert_eq!(a.outcomes(), expected);
        if retries > 0 {
            let wait = Duration::from_micros(640) * u32::from(retries);
            fabric.advance(wait - Duration::from_micros(50));
            assert_eq!(a.qp.state().unwrap(), QueuePairState::RTS);
            fabric.advance(Duration::from_micros(200));
            assert_eq!(a.outcomes(), [(2, WcStatus::RNR_RETRY_EXC_ERR)]);
        }
        assert_eq!(a.qp.state().unwrap(), QueuePairState::ERR);
        assert_eq!(fabric.counters().not_ready, u64::from(retries) + 1);
        // The receiver is not hurt.
        assert_eq!(b.qp.state().unwrap(), QueuePairState::RTS);
    }
}

#[test]
fn success_gives_all_retries_back() {
    let pair = Pair::stepped(4, &setup(1));
    let Pair { a, b, fabric } = &pair;
    for round in 0..5 {
        let send = SendRequest::send(round, a.sge(0, 8)).signaled();
        a.send(&mut [send]).unwrap();
        fabric.run_until_idle();
        assert!(a.outcomes().is_empty());
        let sge = b.sge(100, 8).unwrap();
        b.receive(&mut [RecvRequest::new(round).with_sge(sge)])
            .unwrap();
        fabric.advance(Duration::from_millis(1));
        assert_eq!(a.outcomes(), [(round, WcStatus::SUCCESS)]);
        assert_eq!(b.outcomes(), [(round, WcStatus::SUCCESS)]);
    }
    assert_eq!(fabric.counters().not_ready, 5);
}

/// By the specification the receive of a write with immediate is consumed by its last packet: the
/// data may be there long before the receive is posted, and is placed only once.
#[test]
fn the_data_of_a_write_with_immediate_does_not_wait_for_the_receive() {
    let pair = Pair::stepped(4, &setup(7));
    let Pair { a, b, fabric } = &pair;
    a.memory.write(0, b"early");
    let write = SendRequest::write_with_immediate(1, a.sge(0, 5), b.remote(0), 1).signaled();
    a.send(&mut [write]).unwrap();
    fabric.run_until_idle();
    assert_eq!(b.memory.read(0..5), b"early");
    assert!(b.outcomes().is_empty());
    b.memory.write(0, b"mine!");
    b.receive_immediates([5]);
    fabric.advance(Duration::from_millis(1));
    assert_eq!(b.outcomes(), [(5, WcStatus::SUCCESS)]);
    assert_eq!(b.memory.read(0..5), b"mine!");
}

#[test]
fn a_free_running_fabric_waits_in_real_time() {
    let pair = Pair::free_running(&setup(7));
    let Pair { a, b, .. } = &pair;
    let start = Instant::now();
    a.send(&mut [SendRequest::send(1, None).signaled()])
        .unwrap();
    assert!(a.outcomes().is_empty());
    b.receive_immediates([5]);
    loop {
        match a.outcomes()[..] {
            [] => {}
            [(1, WcStatus::SUCCESS)] => break,
            ref other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it never came");
    }
    assert!(start.elapsed() >= Duration::from_micros(640));
    assert_eq!(b.outcomes(), [(5, WcStatus::SUCCESS)]);
}
