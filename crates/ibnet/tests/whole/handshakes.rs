//! Handshakes that are slow, refused, or fail at any step.

use std::time::{Duration, Instant};

use ibnet::{Config, ConnectOptions, Error, RecvConnection, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, PortSpec, Target, Verb, When};
use ibnet_verbs::QueuePairState;

use crate::rig::{
    End, PATIENCE, build, ends, expect_nothing_left, fabric, flushing, join, message, try_join,
};

/// EIO, ENOMEM, ETIMEDOUT.
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const ETIMEDOUT: i32 = 110;

#[test]
fn a_handshake_that_fails_at_any_verb_leaves_nothing() {
    // Pitfalls 34, 35, 45, 51 and 59: on whatever exit, what was made is unmade, in order, also
    // what was made on the devices before the one that failed.
    let verbs = [
        Verb::CreateCq,
        Verb::CreateQp,
        Verb::RegisterMemory,
        Verb::ModifyQpTo(QueuePairState::INIT),
        Verb::ModifyQpTo(QueuePairState::RTR),
        Verb::ModifyQpTo(QueuePairState::RTS),
        Verb::PostRecv,
    ];
    for verb in verbs {
        for device in ["s1", "r0", "r1"] {
            let mut failures = 0;
            for nth in 1.. {
                // Receives are posted by hundreds; the first, the last and one in between will do.
                let nth = if verb == Verb::PostRecv {
                    nth * 97
                } else {
                    nth
                };
                if fails_once(verb, device, nth) {
                    failures += 1;
                } else {
                    break;
                }
            }
            let is_asked_for = verb != Verb::PostRecv || device != "s1";
            assert!(failures > 0 || !is_asked_for, "{verb:?} on {device}");
        }
    }
}

/// Whether the `nth` call of `verb` on `device` was reached; then it has failed the handshake.
fn fails_once(verb: Verb, device: &str, nth: u64) -> bool {
    let fabric = fabric(2, 2);
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 2);
    let before = fabric.live_objects();
    let fault = fabric.faults().fail_call(verb, device, When::Nth(nth), EIO);
    let (sending, receiving) = try_join(&sender, &receiver);
    fault.disarm();
    // With less inline room a queue pair can be had at the second attempt. Each device has two for data;
    // the third of a receiver is for flushing, and has none.
    let is_overcome = verb == Verb::CreateQp && nth <= 2;
    if fault.struck() > 0 && !is_overcome {
        assert!(
            sending.is_err(),
            "{verb:?} {nth} on {device} failed unnoticed"
        );
        assert!(
            !matches!(receiving, Some(Ok(_))),
            "{verb:?} {nth} on {device}"
        );
    } else {
        let (mut sending, mut receiving) = (sending.unwrap(), receiving.unwrap().unwrap());
        message(&mut sending, &mut receiving, 1000, 1000);
        sending.close().unwrap();
        receiving.close().unwrap();
    }
    assert_eq!(fabric.live_objects(), before, "{verb:?} {nth} on {device}");
    // The end that failed is not spoilt for the next attempt.
    let (mut sending, mut receiving) = join(&sender, &receiver);
    message(&mut sending, &mut receiving, 10, 10);
    fault.struck() > 0
}

#[test]
fn an_attempt_that_has_failed_stays_failed() {
    // Pitfall 51: nothing dangles behind a failed attempt, however often it is asked again.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let faults = fabric.faults();
    let fault = faults.fail_call(Verb::CreateCq, "s0", When::Nth(1), ENOMEM);
    let mut listener = receiver.listen();
    let mut connecting = sender.connect(&listener);
    let error = crate::rig::eventually("the failure", || {
        let _ = listener.accept().try_now();
        connecting.try_now().err()
    });
    assert!(error.to_string().contains("s0"), "{error}");
    assert_eq!(fault.struck(), 1);
    for _ in 0..3 {
        assert!(matches!(
            connecting.try_now(),
            Err(Error::InvalidArgument(_))
        ));
    }
}

/// Settings with which a refused state change is tried again so often, and soon.
fn patient(retries: u32) -> impl Fn(&mut Config) {
    move |config| {
        config.modify_retries = retries;
        config.modify_retry_pause = Duration::from_millis(2);
    }
}

/// The states that a queue pair is brought to, one after the other.
const STEPS: [QueuePairState; 3] = [
    QueuePairState::INIT,
    QueuePairState::RTR,
    QueuePairState::RTS,
];

#[test]
fn a_state_change_that_times_out_is_tried_again() {
    // Pitfall 54: `NCCL_IB_MQP_RETRY_CNT`, at either end and at each of the three steps.
    for device in ["s0", "r0"] {
        for state in STEPS {
            let fabric = fabric(1, 1);
            let (sender, receiver) = ends(&fabric, patient(3));
            let faults: Vec<_> = (1..=3)
                .map(|nth| {
                    let verb = Verb::ModifyQpTo(state);
                    fabric
                        .faults()
                        .fail_call(verb, device, When::Nth(nth), ETIMEDOUT)
                })
                .collect();
            let start = Instant::now();
            let (mut sending, mut receiving) = join(&sender, &receiver);
            message(&mut sending, &mut receiving, 1000, 1000);
            let struck: u64 = faults.iter().map(ibnet_simverbs::Fault::struck).sum();
            assert_eq!(struck, 3, "{state} on {device}");
            // 2, 4 and 6 ms.
            assert!(start.elapsed() >= Duration::from_millis(12));
        }
    }
}

#[test]
fn a_queue_pair_for_flushing_is_tried_again_like_the_others() {
    for state in STEPS {
        let fabric = fabric(1, 1);
        let (sender, receiver) = ends(&fabric, patient(3));
        // The first queue pair of this receiver is for data, the second for flushing.
        let second =
            (fabric.faults()).fail_call(Verb::ModifyQpTo(state), "r0", When::Nth(2), ETIMEDOUT);
        let (mut sending, mut receiving) = join(&sender, &receiver);
        assert_eq!(second.struck(), 1, "{state}");
        let made = flushing(&fabric.hca("r0").unwrap());
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].attributes.state, QueuePairState::RTS);
        message(&mut sending, &mut receiving, 1000, 1000);
    }
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| config.flush = false);
    let _connection = join(&sender, &receiver);
    assert!(flushing(&fabric.hca("r0").unwrap()).is_empty(), "unwanted");
}

#[test]
fn a_state_change_is_not_tried_for_ever_nor_after_other_errors() {
    for (errno, always, strikes) in [(ETIMEDOUT, false, 4), (EIO, false, 1), (EIO, true, 4)] {
        let fabric = fabric(1, 1);
        let (sender, receiver) = ends(&fabric, |config| {
            patient(3)(config);
            config.retry_modify_always = always;
        });
        let before = fabric.live_objects();
        let verb = Verb::ModifyQpTo(QueuePairState::RTR);
        let fault = fabric.faults().fail_call(verb, "s0", When::ALWAYS, errno);
        let (sending, receiving) = try_join(&sender, &receiver);
        assert!(matches!(sending, Err(Error::Verbs(_) | Error::Join { .. })));
        // The listener is told why.
        let told = receiving.unwrap().err().unwrap().to_string();
        assert!(told.contains("s0") && told.contains("RTR"), "{told}");
        assert_eq!(fault.struck(), strikes);
        assert_eq!(fabric.live_objects(), before);
    }
}

#[test]
fn no_poll_makes_more_than_a_few_queue_pairs() {
    // Pitfalls 54 and 55: 128 queue pairs at each end are made and moved over many polls.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 128);
    let mut listener = receiver.listen();
    let mut connecting = sender.connect(&listener);
    let work = |fabric: &Fabric| {
        let trace = fabric.take_trace();
        let moves = trace
            .iter()
            .filter(|entry| matches!(entry.event, ibnet_simverbs::TraceEvent::Entered { .. }));
        moves.count()
    };
    let (mut sending, mut receiving) = (None, None::<RecvConnection>);
    let mut polls = 0;
    let deadline = Instant::now() + PATIENCE;
    while sending.is_none() || receiving.is_none() {
        assert!(Instant::now() < deadline, "the handshake hangs");
        let before = fabric.live_objects().qps;
        if sending.is_none() {
            sending = connecting.try_now().unwrap();
        }
        let made = fabric.live_objects().qps - before;
        let moved = work(&fabric);
        // Each is created, moved to INIT, RTR and RTS.
        assert!(
            made <= 4 && moved <= 12,
            "{made} made, {moved} moves in one poll"
        );
        let before = fabric.live_objects().qps;
        if receiving.is_none() {
            receiving = listener.accept().try_now().unwrap();
        }
        let made = fabric.live_objects().qps - before;
        let moved = work(&fabric);
        assert!(
            made <= 4 && moved <= 12,
            "{made} made, {moved} moves in one poll"
        );
        polls += 1;
    }
    assert_eq!(
        fabric.live_objects().qps,
        2 * 128 + 1,
        "one is for flushing"
    );
    assert!(polls >= 64, "{polls} polls");
    message(
        &mut sending.unwrap(),
        &mut receiving.unwrap(),
        100_000,
        100_000,
    );
}

#[test]
fn many_clients_do_not_make_a_poll_of_the_listener_longer() {
    // Pitfalls 49 and 54: all pending clients share what a poll may do.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 16);
    let mut listener = receiver.listen();
    let mut attempts: Vec<_> = (0..20).map(|_| Some(sender.connect(&listener))).collect();
    let (mut sending, mut receiving) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while receiving.len() < 20 || sending.len() < 20 {
        assert!(Instant::now() < deadline, "the handshakes hang");
        for attempt in &mut attempts {
            if let Some(connecting) = attempt
                && let Some(connection) = connecting.try_now().unwrap()
            {
                sending.push(connection);
                *attempt = None;
            }
        }
        let before = fabric.live_objects().qps;
        receiving.extend(listener.accept().try_now().unwrap());
        let made = fabric.live_objects().qps - before;
        assert!(made <= 4, "{made} queue pairs in one poll");
    }
}

#[test]
fn more_clients_than_a_listener_takes_at_once_wait_for_their_turn() {
    // Pitfall 49: a client that comes in a crowd is not turned away.
    const CROWD: usize = 600;
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let mut listener = receiver.listen();
    let mut attempts: Vec<_> = (0..CROWD)
        .map(|_| Some(sender.connect(&listener)))
        .collect();
    let (mut sending, mut receiving) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while receiving.len() < CROWD || sending.len() < CROWD {
        assert!(Instant::now() < deadline, "{} of {CROWD}", receiving.len());
        for attempt in &mut attempts {
            if let Some(connecting) = attempt
                && let Some(connection) = connecting.try_now().unwrap()
            {
                sending.push(connection);
                *attempt = None;
            }
        }
        receiving.extend(listener.accept().try_now().unwrap());
    }
    drop((sending, receiving, attempts, listener, sender, receiver));
    expect_nothing_left(&fabric);
}

#[test]
fn a_listener_that_does_nothing_is_given_up() {
    // Pitfall 37: every state has its deadline, and the error says what was waited for.
    let fabric = fabric(1, 1);
    let limit = Duration::from_secs(1);
    // Enough queue pairs that a few polls are not all it takes.
    let (sender, receiver) = ends(&fabric, |config| {
        config.connect_timeout = Some(limit);
        config.queue_pairs = 64;
    });
    for polls_of_listener in [0, 3] {
        let before = fabric.live_objects();
        let mut listener = receiver.listen();
        let mut connecting = sender.connect(&listener);
        for _ in 0..polls_of_listener {
            assert!(connecting.try_now().unwrap().is_none());
            assert!(listener.accept().try_now().unwrap().is_none());
        }
        let start = Instant::now();
        let error = connecting.wait().err().unwrap();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("waiting for"), "{error}");
        assert!(start.elapsed() < PATIENCE);
        drop(listener);
        assert_eq!(fabric.live_objects(), before);
    }
}

#[test]
fn a_client_that_does_nothing_is_given_up_and_others_are_served() {
    // Pitfalls 36, 37 and 49.
    let fabric = fabric(1, 1);
    let limit = Duration::from_secs(1);
    let (sender, receiver) = ends(&fabric, |config| {
        config.connect_timeout = Some(limit);
        config.queue_pairs = 16;
    });
    let mut listener = receiver.listen();
    // It greets and then does nothing any more.
    let mut stalling = sender.connect(&listener);
    for _ in 0..3 {
        assert!(stalling.try_now().unwrap().is_none());
    }
    let mut served = 0;
    let start = Instant::now();
    let gone = loop {
        assert!(start.elapsed() < PATIENCE, "the stalling client stays");
        let mut connecting = sender.connect(&listener);
        let (mut sending, mut receiving) = (None, Ok(None));
        while start.elapsed() < PATIENCE && (sending.is_none() || matches!(receiving, Ok(None))) {
            sending = sending.or_else(|| connecting.try_now().unwrap());
            if matches!(receiving, Ok(None)) {
                receiving = listener.accept().try_now();
            }
            if receiving.is_err() {
                break;
            }
        }
        match receiving {
            Ok(Some(_)) => served += 1,
            Ok(None) => panic!("an honest client hangs"),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, Error::Timeout { .. }), "{gone}");
    assert!(served > 0, "no client was served meanwhile");
    assert!(start.elapsed() >= limit);
}

#[test]
fn a_listener_that_opens_late_is_reached_and_one_that_never_opens_is_not() {
    // Dialling is tried again, with a pause (`NCCL_SOCKET_RETRY_CNT`, `_SLEEP_MSEC`).
    let fabric = fabric(1, 1);
    let impatient = |config: &mut Config| {
        config.socket_retries = 2;
        config.socket_retry_pause = Duration::from_millis(5);
    };
    let (sender, receiver) = ends(&fabric, impatient);
    let closed = receiver.listen().handle();
    let connecting = sender
        .transport
        .connect(sender.device, &closed, ConnectOptions::default());
    let error = connecting.and_then(ibnet::Connecting::wait).err().unwrap();
    assert!(
        error.to_string().contains(&closed.address().to_string()),
        "{error}"
    );

    // The port of a listener that was closed, opened again while a client calls.
    let port = closed.address().port();
    let patient = End::open(&fabric, "s", |config| {
        config.socket_retries = 10_000;
        config.socket_retry_pause = Duration::from_millis(2);
    });
    let late = End::open(&fabric, "r", |config| config.ports = Some(port..=port));
    let mut calling = patient
        .transport
        .connect(patient.device, &closed, ConnectOptions::default())
        .unwrap();
    for _ in 0..20 {
        assert!(calling.try_now().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut listener = late.listen();
    // It has another cookie, so that the caller is turned away: that proves it was reached.
    let error = crate::rig::eventually("an answer", || {
        let _ = listener.accept().try_now().unwrap();
        calling.try_now().err()
    });
    assert!(
        matches!(error, Error::PeerLost { .. } | Error::Socket { .. }),
        "{error}"
    );
}

#[test]
fn ends_that_cannot_reach_each_other_refuse_with_a_reason() {
    let fabric = build([DeviceSpec::infiniband("s0"), DeviceSpec::roce("r0")]);
    let (sender, receiver) = ends(&fabric, |_| {});
    let before = fabric.live_objects();
    let (sending, receiving) = try_join(&sender, &receiver);
    let told = sending.err().unwrap();
    assert!(matches!(told, Error::Refused { .. }), "{told}");
    assert!(told.to_string().contains("InfiniBand"), "{told}");
    let error = receiving.unwrap().err().unwrap();
    assert!(matches!(error, Error::Unpairable { .. }), "{error}");
    assert_eq!(fabric.live_objects(), before);
}

#[test]
fn ports_of_different_numbers_connect() {
    // Pitfall 39: each end uses its own port's number; simulated devices refuse any other.
    let two_ports = |name: &str, used: usize| {
        let ports = (0..2).map(|port| match port == used {
            true => PortSpec::roce(),
            false => PortSpec::roce().down(),
        });
        DeviceSpec::roce(name).ports(ports)
    };
    for (one, other) in [(0, 1), (1, 0), (1, 1)] {
        let fabric = build([two_ports("s0", one), two_ports("r0", other)]);
        let (mut sending, mut receiving) = crate::rig::connection(&fabric);
        message(&mut sending, &mut receiving, 100_000, 100_000);
    }
}

#[test]
fn a_failing_queue_pair_creation_is_overcome_or_told() {
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let before = fabric.live_objects();
    let fault = fabric
        .faults()
        .fail_call(Verb::CreateQp, Target::Any, When::ALWAYS, ENOMEM);
    let (sending, receiving) = try_join(&sender, &receiver);
    assert!(sending.is_err() && !matches!(receiving, Some(Ok(_))));
    assert!(fault.struck() > 1, "it was not tried with less inline room");
    assert_eq!(fabric.live_objects(), before);
}
