//! Faults on demand: each strikes where and when it was told to, and counts it.

use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, Stage, Target, Verb, When};
use ibnet_verbs::{
    Access, Error, EventType, QueuePairState, RecvRequest, SendRequest, WcStatus, WorkCompletion,
};

use crate::pairs::{End, Memory, Pair, Setup, in_both_modes, open_all, options, poll, two_roce};

fn write(a: &End, b: &End, wr_id: u64) -> SendRequest {
    SendRequest::write(wr_id, a.sge(0, 8), b.remote(0)).signaled()
}

fn errno<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().and_then(|error| error.errno())
}

#[test]
fn every_verb_can_fail() {
    let fabric = two_roce().build().unwrap();
    let faults = fabric.faults();
    let setup = Setup::default();
    let memory = Memory::new(64);
    let once = |verb, errno| faults.fail_call(verb, Target::Any, When::Nth(1), errno);

    let fault = once(Verb::GetDeviceList, libc::EPERM);
    assert_eq!(errno(fabric.library().devices()), Some(libc::EPERM));
    assert_eq!(fault.struck(), 1);
    let devices = fabric.library().devices().unwrap();
    let _fault = once(Verb::OpenDevice, libc::EACCES);
    assert_eq!(errno(devices[0].open()), Some(libc::EACCES));
    let context = devices[0].open().unwrap();
    let _fault = once(Verb::QueryDevice, libc::EIO);
    assert_eq!(errno(context.attributes()), Some(libc::EIO));
    let _fault = once(Verb::QueryPort, libc::EIO);
    assert_eq!(errno(context.port(1)), Some(libc::EIO));
    let _fault = once(Verb::QueryGid, libc::EIO);
    assert_eq!(errno(context.gid(1, 0)), Some(libc::EIO));
    let _fault = once(Verb::AllocatePd, libc::ENOMEM);
    assert_eq!(errno(context.allocate_pd()), Some(libc::ENOMEM));
    let pd = context.allocate_pd().unwrap();
    let _fault = once(Verb::RegisterMemory, libc::ENOMEM);
    // SAFETY: the memory outlives the region.
    let register = || unsafe { pd.register(memory.as_ptr(), 64, Access::empty()) };
    assert_eq!(errno(register()), Some(libc::ENOMEM));
    let _fault = once(Verb::CreateChannel, libc::EMFILE);
    assert_eq!(errno(context.create_channel()), Some(libc::EMFILE));
    let _fault = once(Verb::CreateCq, libc::ENOMEM);
    assert_eq!(errno(context.create_cq(8)), Some(libc::ENOMEM));
    let cq = context.create_cq(8).unwrap();
    let _fault = once(Verb::CreateQp, libc::ENOMEM);
    assert_eq!(
        errno(pd.create_qp(&options(&cq, &setup))),
        Some(libc::ENOMEM)
    );
    let qp = pd.create_qp(&options(&cq, &setup)).unwrap();
    let _fault = once(Verb::QueryQp, libc::EIO);
    assert_eq!(errno(qp.query()), Some(libc::EIO));
    let _fault = once(Verb::QueryEce, libc::EIO);
    assert_eq!(errno(qp.ece()), Some(libc::EIO));
    let _fault = once(Verb::SetEce, libc::EIO);
    assert_eq!(
        errno(qp.set_ece(&ibnet_verbs::Ece::default())),
        Some(libc::EIO)
    );
    let _fault = once(Verb::RequestNotification, libc::EIO);
    assert_eq!(errno(cq.request_notification(false)), Some(libc::EIO));
    let _fault = once(Verb::PollCq, libc::EIO);
    assert_eq!(
        errno(cq.poll(&mut [WorkCompletion::default()])),
        Some(libc::EIO)
    );
    cq.poll(&mut [WorkCompletion::default()]).unwrap();
    let _fault = once(Verb::DeregisterMemory, libc::EIO);
    let mut leaked = fabric.live_objects();
    assert_eq!(errno(register().unwrap().deregister()), Some(libc::EIO));
    leaked.mrs += 1;
    assert_eq!(fabric.live_objects(), leaked);

    // Objects that cannot be destroyed are leaked, and their parents with them.
    let fault = once(Verb::DestroyQp, libc::EIO);
    drop(qp);
    assert_eq!(fault.struck(), 1);
    let fault = once(Verb::DestroyCq, libc::EIO);
    drop(context.create_cq(8).unwrap());
    assert_eq!(fault.struck(), 1);
    assert_eq!(
        (fabric.live_objects().qps, fabric.live_objects().cqs),
        (1, 2)
    );
}

#[test]
fn modifications_can_fail_at_any_step() {
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().build().unwrap(), &setup);
    let Pair { a, b, fabric } = &pair;
    let faults = fabric.faults();
    let rtr = Verb::ModifyQpTo(QueuePairState::RTR);
    let at_rtr = faults.fail_call(rtr, &a.qp, When::Nth(2), libc::ETIMEDOUT);
    let third = faults.fail_call(Verb::ModifyQp, "sim1", When::Nth(3), libc::EIO);
    a.connect_to(b, &setup).unwrap();
    a.qp.to_reset().unwrap();
    assert_eq!(errno(a.connect_to(b, &setup)), Some(libc::ETIMEDOUT));
    assert_eq!(
        a.qp.state().unwrap(),
        QueuePairState::INIT,
        "it did nothing"
    );
    assert_eq!(errno(b.connect_to(a, &setup)), Some(libc::EIO));
    assert_eq!(b.qp.state().unwrap(), QueuePairState::RTR);
    assert_eq!((at_rtr.struck(), third.struck()), (1, 1));
}

#[test]
fn posting_can_fail_in_the_middle_of_a_chain() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let faults = fabric.faults();
        let send = faults.fail_call(Verb::PostSend, &a.qp, When::Nth(3), libc::ENOMEM);
        let receive = faults.fail_call(Verb::PostRecv, "sim1", When::From(2), libc::ENOMEM);
        let mut chain = [1, 2, 3, 4].map(|wr_id| write(a, b, wr_id));
        let error = a.send(&mut chain).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (2, Some(libc::ENOMEM)));
        let error = b.receive(&mut [RecvRequest::new(1); 3]).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (1, Some(libc::ENOMEM)));
        b.receive(&mut [RecvRequest::new(1)]).unwrap_err();
        fabric.run_until_idle();
        assert_eq!(a.outcomes().len(), 2);
        a.send(&mut chain).unwrap();
        assert_eq!((send.struck(), receive.struck()), (1, 2));
        receive.disarm();
        b.receive(&mut [RecvRequest::new(1)]).unwrap();
        fabric.run_until_idle();
    });
}

#[test]
fn registration_fails_on_one_device_of_several() {
    let devices = ["sim0", "sim1", "sim2"];
    let builder = devices
        .into_iter()
        .fold(Fabric::builder(), |builder, name| {
            builder.device(DeviceSpec::roce(name))
        });
    let fabric = builder.build().unwrap();
    let fault = fabric
        .faults()
        .fail_call(Verb::RegisterMemory, "sim1", When::ALWAYS, libc::ENOMEM);
    let memory = Memory::new(64);
    let results: Vec<_> = open_all(&fabric)
        .iter()
        .map(|context| {
            let pd = context.allocate_pd().unwrap();
            // SAFETY: the memory outlives the region.
            errno(unsafe { pd.register(memory.as_ptr(), 64, Access::empty()) })
        })
        .collect();
    assert_eq!(results, [None, Some(libc::ENOMEM), None]);
    assert_eq!(fault.struck(), 1);
}

#[test]
fn work_fails_with_any_status_before_or_after_it_is_done() {
    for status in [
        WcStatus::RETRY_EXC_ERR,
        WcStatus::REM_OP_ERR,
        WcStatus::GENERAL_ERR,
    ] {
        for (stage, is_done) in [(Stage::NotSent, false), (Stage::CarriedOut, true)] {
            in_both_modes(&Setup::default(), |pair| {
                let Pair { a, b, fabric } = pair;
                let fault = fabric
                    .faults()
                    .fail_work("sim0", When::Nth(2), status, stage);
                a.memory.write(0, b"injected");
                b.receive_immediates([5, 6]);
                let immediate = |wr_id| {
                    let (sge, remote) = (a.sge(0, 8), b.remote(wr_id as usize * 8));
                    SendRequest::write_with_immediate(wr_id, sge, remote, 0).signaled()
                };
                a.send(&mut [1, 2, 3].map(immediate)).unwrap();
                fabric.run_until_idle();
                let (flushed, success) = (WcStatus::WR_FLUSH_ERR, WcStatus::SUCCESS);
                assert_eq!(a.outcomes(), [(1, success), (2, status), (3, flushed)]);
                let received = b.outcomes().len();
                assert_eq!(received, if is_done { 2 } else { 1 });
                assert_eq!(b.memory.read(16..24) == b"injected", is_done);
                assert_eq!(b.memory.read(24..32), [0; 8]);
                assert_eq!(fault.struck(), 1);
                assert_eq!(b.qp.state().unwrap(), QueuePairState::RTS);
            });
        }
    }
}

#[test]
fn a_request_can_hang() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let fault = fabric.faults().hang_work(&a.qp, When::Nth(2));
        a.send(&mut [1, 2, 3].map(|wr_id| write(a, b, wr_id)))
            .unwrap();
        fabric.advance(Duration::from_millis(5));
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(fault.struck(), 1);
        // The other direction is not concerned.
        b.send(&mut [write(b, a, 9)]).unwrap();
        fabric.run_until_idle();
        assert_eq!(b.outcomes(), [(9, WcStatus::SUCCESS)]);
    });
}

#[test]
fn a_flipped_key_is_denied() {
    let mut denied = 0;
    for seed in 0..40 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let fault = fabric.faults().flip_rkey(&a.qp, When::Nth(1));
        // Requests without a key or bytes are no occasions.
        b.receive_immediates([5]);
        let none = SendRequest::write(1, None, b.remote(0));
        a.send(&mut [SendRequest::send(0, None), none, write(a, b, 2)])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(2, WcStatus::REM_ACCESS_ERR)], "seed {seed}");
        assert_eq!(fault.struck(), 1);
        let event = b.context.next_event().unwrap().unwrap();
        denied += u32::from(event.kind() == EventType::QP_ACCESS_ERR);
    }
    assert_eq!(denied, 40);
}

#[test]
fn completions_can_be_delayed_and_stay_in_order() {
    let delay = Duration::from_micros(100)..=Duration::from_millis(1);
    for seed in 0..20 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let fault = fabric.faults().delay_completions("sim0", delay.clone());
        let mut chain: Vec<_> = (0..10).map(|wr_id| write(a, b, wr_id)).collect();
        a.send(&mut chain).unwrap();
        fabric.run_until_idle();
        assert!(a.outcomes().is_empty(), "all are held back");
        assert_eq!(fault.struck(), 10);
        // Later ones do not overtake, even if the fault is over.
        fault.disarm();
        a.send(&mut [write(a, b, 10)]).unwrap();
        fabric.advance(Duration::from_millis(2));
        let ids: Vec<_> = a.outcomes().iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(ids, (0..11).collect::<Vec<_>>());
    }
}

#[test]
fn delayed_completions_take_their_place_in_the_queue() {
    let delay = Duration::from_millis(1)..=Duration::from_millis(1);
    let pair = Pair::stepped(
        1,
        &Setup {
            cq: 2,
            ..Setup::default()
        },
    );
    let Pair { a, b, fabric } = &pair;
    let fault = fabric.faults().delay_completions("sim0", delay);
    a.send(&mut [1, 2, 3].map(|wr_id| write(a, b, wr_id)))
        .unwrap();
    fabric.run_until_idle();
    assert_eq!(
        a.context.next_event().unwrap().unwrap().kind(),
        EventType::CQ_ERR
    );
    assert_eq!(fault.struck(), 2);
}

#[test]
fn delayed_completions_of_a_queue_pair_that_is_gone_never_come() {
    let delay = Duration::from_millis(1)..=Duration::from_millis(1);
    let Pair { a, b, fabric } = Pair::stepped(1, &Setup::default());
    let fault = fabric.faults().delay_completions("sim0", delay);
    a.send(&mut [write(&a, &b, 1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(fault.struck(), 1);
    let End { qp, cq, .. } = a;
    drop(qp);
    fabric.advance(Duration::from_millis(2));
    assert!(poll(&cq).is_empty());
}

/// Places in queues are used again; what a fault did to an earlier request there is over.
#[test]
fn faults_count_and_strike_anew_in_every_place() {
    in_both_modes(
        &Setup {
            send_wr: 1,
            ..Setup::default()
        },
        |pair| {
            let Pair { a, b, fabric } = pair;
            let status = WcStatus::GENERAL_ERR;
            let fault = fabric
                .faults()
                .fail_work(&a.qp, When::Nth(3), status, Stage::CarriedOut);
            for expected in [WcStatus::SUCCESS, WcStatus::SUCCESS, status] {
                a.send(&mut [write(a, b, 1)]).unwrap();
                fabric.run_until_idle();
                assert_eq!(a.outcomes(), [(1, expected)]);
            }
            assert_eq!(fault.struck(), 1);
            for (own, peer) in [(a, b), (b, a)] {
                own.qp.to_reset().unwrap();
                own.connect_to(peer, &Setup::default()).unwrap();
            }
            a.send(&mut [write(a, b, 1)]).unwrap();
            fabric.run_until_idle();
            assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        },
    );
}

#[test]
fn a_delayed_completion_still_comes_in_real_time() {
    let pair = Pair::free_running(&Setup::default());
    let Pair { a, b, fabric } = &pair;
    let delay = Duration::from_millis(2);
    let fault = fabric
        .faults()
        .delay_completions(Target::Any, delay..=delay);
    let start = std::time::Instant::now();
    a.send(&mut [write(a, b, 1)]).unwrap();
    while a.outcomes().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came");
    }
    assert!(start.elapsed() >= delay);
    assert_eq!(fault.struck(), 1);
}

#[test]
fn polls_can_give_less_than_there_is() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let fault = fabric.faults().partial_polls("sim0", When::ALWAYS);
        let mut chain: Vec<_> = (0..10).map(|wr_id| write(a, b, wr_id)).collect();
        a.send(&mut chain).unwrap();
        fabric.run_until_idle();
        let mut batch = [WorkCompletion::default(); 16];
        let mut ids = Vec::new();
        for _ in 0..1000 {
            let polled = a.cq.poll(&mut batch).unwrap();
            // Less than all each time, but for the last one.
            let left = 10 - ids.len();
            assert!(polled.len() < left || left <= 1);
            ids.extend(polled.iter().map(WorkCompletion::wr_id));
        }
        assert_eq!(ids, (0..10).collect::<Vec<_>>());
        assert!(fault.struck() > 1);
    });
}

#[test]
fn a_completion_queue_can_overrun_without_being_full() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let fault = fabric.faults().overrun_cq(&a.qp, When::Nth(2));
        a.send(&mut [1, 2, 3].map(|wr_id| write(a, b, wr_id)))
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        let kinds: Vec<_> = std::iter::from_fn(|| a.context.next_event().unwrap())
            .map(|event| event.kind())
            .collect();
        assert_eq!(kinds, [EventType::CQ_ERR, EventType::QP_FATAL]);
        assert_eq!(fault.struck(), 1);
    });
}

#[test]
fn a_storm_of_events_changes_nothing() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let storm = fabric.faults().event_storm("sim0", 1000);
        assert_eq!(storm.struck(), 1000);
        a.send(&mut [write(a, b, 1)]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        let events = std::iter::from_fn(|| a.context.next_event().unwrap()).count();
        assert_eq!(events, 1000);
        assert!(b.context.next_event().unwrap().is_none());
    });
}

#[test]
fn everything_can_be_disarmed_at_once() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let faults = fabric.faults();
    let cut = faults.cut_link("sim0", 1, Duration::from_secs(60));
    let hang = faults.hang_work(Target::Any, When::ALWAYS);
    faults.clear();
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!((cut.struck(), hang.struck()), (0, 0));
}

#[test]
#[should_panic(expected = "no device \"sim7\"")]
fn a_fault_on_a_device_that_is_not_there_is_a_mistake() {
    let fabric = two_roce().build().unwrap();
    let _fault = fabric.faults().hang_work("sim7", When::ALWAYS);
}
