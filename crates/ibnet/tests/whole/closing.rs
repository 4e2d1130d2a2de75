//! Closing: in any order, whatever is outstanding or broken, and never hanging.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibnet::{Error, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{Stage, Verb, When};
use ibnet_verbs::{QueuePairState, WcStatus};

use crate::rig::{
    PATIENCE, connection, ends, eventually, expect_nothing_left, fabric, filled, join, message,
};

const EIO: i32 = 5;
const SIZE: usize = 300_000;

/// A connection with everything under way: messages that arrived, that are on their way, and
/// receives without a message.
fn busy(fabric: &ibnet_simverbs::Fabric) -> (SendConnection, RecvConnection) {
    let (mut sending, mut receiving) = connection(fabric);
    message(&mut sending, &mut receiving, SIZE, SIZE);
    for _ in 0..20 {
        let buffer = receiving.registrar().buffer(SIZE).unwrap();
        drop(receiving.recv(buffer, 0).wait().unwrap());
    }
    for _ in 0..10 {
        drop(sending.send(filled(&sending, SIZE, 1), 0).wait().unwrap());
    }
    (sending, receiving)
}

#[test]
fn both_ends_close_in_any_order_with_requests_in_flight() {
    // Pitfalls 97 and 99.
    for order in 0..6 {
        for devices in [1, 2] {
            let fabric = fabric(devices, devices);
            let start = Instant::now();
            let (sending, receiving) = busy(&fabric);
            match order {
                0 => {
                    sending.close().unwrap();
                    receiving.close().unwrap();
                }
                1 => {
                    receiving.close().unwrap();
                    sending.close().unwrap();
                }
                2 => drop((sending, receiving)),
                3 => drop((receiving, sending)),
                // At the same time.
                4 => std::thread::scope(|scope| {
                    scope.spawn(|| sending.close().unwrap());
                    receiving.close().unwrap();
                }),
                // After the peer has left, and was seen to.
                _ => {
                    receiving.close().unwrap();
                    let mut sending = sending;
                    let buffer = filled(&sending, 8, 1);
                    assert!(sending.send(buffer, 77).wait().is_err());
                    sending.close().unwrap();
                }
            }
            expect_nothing_left(&fabric);
            assert!(start.elapsed() < PATIENCE, "closing in order {order} hangs");
        }
    }
}

#[test]
fn a_send_into_what_a_receiver_has_announced_before_it_closed_is_accepted_and_test_tells() {
    // As with NCCL's own transport: the send is taken, its test tells the error. A small message and one of
    // several parts, known to be in vain or not.
    for size in [8, SIZE] {
        for is_known in [false, true] {
            let fabric = fabric(2, 2);
            let (mut sending, mut receiving) = connection(&fabric);
            message(&mut sending, &mut receiving, size, size);
            for _ in 0..3 {
                let buffer = receiving.registrar().buffer(size).unwrap();
                drop(receiving.recv(buffer, 0).wait().unwrap());
            }
            receiving.close().unwrap();
            if is_known {
                let other_tag = filled(&sending, size, 1);
                assert!(
                    sending.send(other_tag, 77).wait().is_err(),
                    "the Close comes"
                );
            }
            let mut sends = Vec::new();
            for _ in 0..3 {
                sends.push(sending.send(filled(&sending, size, 1), 0).wait().unwrap());
            }
            let unannounced = filled(&sending, size, 1);
            assert!(sending.send(unannounced, 0).wait().is_err());
            for send in sends {
                let error = sending.finish(send).wait().unwrap_err().error;
                assert!(matches!(error, Error::PeerClosed { .. }), "{error}");
            }
            // By now the connection has failed.
            assert!(sending.send(filled(&sending, size, 1), 0).wait().is_err());
            sending.close().unwrap();
            expect_nothing_left(&fabric);
        }
    }
}

#[test]
fn whatever_cannot_be_torn_down_the_rest_is() {
    // Pitfall 96: the first error does not end the closing.
    for (verb, errno) in [
        (Verb::ModifyQpTo(QueuePairState::ERR), EIO),
        (Verb::DestroyQp, EIO),
        (Verb::DestroyCq, EIO),
        (Verb::DeregisterMemory, EIO),
    ] {
        let fabric = fabric(2, 2);
        let (sender, receiver) = ends(&fabric, |_| {});
        let before = fabric.live_objects();
        let (sending, mut receiving) = join(&sender, &receiver);
        let fault = fabric.faults().fail_call(verb, "s0", When::Nth(1), errno);
        let closed = sending.close();
        assert_eq!(fault.struck(), 1, "{verb:?}");
        let is_told = verb == Verb::ModifyQpTo(QueuePairState::ERR);
        assert_eq!(closed.is_err(), is_told, "{verb:?}: {closed:?}");
        // The peer hears of it all the same.
        let told = eventually("the Close", || {
            let buffer = receiving.registrar().buffer(8).unwrap();
            receiving.recv(buffer, 0).wait().err().map(Error::from)
        });
        assert!(matches!(told, Error::PeerClosed { .. }), "{verb:?}: {told}");
        receiving.close().unwrap();
        let left = fabric.live_objects();
        // What was refused is left, and what hangs on it.
        let (qps, cqs) = (left.qps - before.qps, left.cqs - before.cqs);
        let mrs = left.mrs - before.mrs;
        let expected = match verb {
            Verb::DestroyQp => (1, 1, 0),
            Verb::DestroyCq => (0, 1, 0),
            Verb::DeregisterMemory => (0, 0, 1),
            _ => (0, 0, 0),
        };
        assert_eq!((qps, cqs, mrs), expected, "{verb:?}");
    }
}

#[test]
fn closing_while_events_pour_in() {
    // Pitfalls 6 and 99: `ibv_destroy_qp` waits until the events of the queue pair are acknowledged.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let before = fabric.live_objects();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = fabric.faults().event_storm("s0", 20);
                std::thread::yield_now();
            }
        });
        let start = Instant::now();
        for _ in 0..50 {
            let (mut sending, mut receiving) = join(&sender, &receiver);
            message(&mut sending, &mut receiving, 100, 100);
            sending.close().unwrap();
            receiving.close().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(start.elapsed() < PATIENCE);
    });
    assert!(fabric.counters().events > 0);
    assert_eq!(fabric.live_objects(), before);
}

#[test]
fn what_the_transport_holds_goes_with_the_last_connection() {
    // Pitfalls 63 and 99: the devices are closed after everything that was made on them.
    let fabric = fabric(2, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let (mut sending, mut receiving) = join(&sender, &receiver);
    drop((sender, receiver));
    message(&mut sending, &mut receiving, SIZE, SIZE);
    let registrar = sending.registrar();
    let buffer = registrar.buffer(100).unwrap();
    drop((sending, receiving));
    assert!(
        fabric.live_objects().contexts > 0,
        "a buffer is still registered"
    );
    drop(buffer);
    drop(registrar);
    expect_nothing_left(&fabric);
}

#[test]
fn what_the_receiver_did_not_take_is_never_reported_as_sent() {
    // Pitfall 97: the receiver's count and the sender's own completions tell of the same messages.
    const TAKEN: usize = 3;
    const SENT: usize = 2 * TAKEN;
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    for _ in 0..SENT {
        let buffer = receiving.registrar().buffer(100).unwrap();
        drop(receiving.recv(buffer, 0).wait().unwrap());
    }
    let hung = fabric.faults().hang_work("s0", When::Nth(TAKEN as u64 + 1));
    let sends: Vec<_> = (0..SENT)
        .map(|_| sending.send(filled(&sending, 100, 1), 0).wait().unwrap())
        .collect();
    assert_eq!(hung.struck(), 1);
    receiving.close().unwrap();
    // The Close is there before the sender looks at its completions.
    std::thread::sleep(Duration::from_millis(100));
    let done: Vec<bool> = sends
        .into_iter()
        .map(|send| sending.finish(send).wait().is_ok())
        .collect();
    let expected: Vec<bool> = (0..SENT).map(|number| number < TAKEN).collect();
    assert_eq!(done, expected);
}

#[test]
fn what_the_receiver_took_is_sent_although_the_acknowledgement_is_lost() {
    // Pitfall 97: the receiver counts what has arrived when it leaves, also what it was not asked for.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let buffer = receiving.registrar().buffer(100).unwrap();
    drop(receiving.recv(buffer, 0).wait().unwrap());
    let (when, status) = (When::Nth(1), WcStatus::RETRY_EXC_ERR);
    let faults = fabric.faults();
    let lost = faults.fail_work("s0", when, status, Stage::CarriedOut);
    let send = sending.send(filled(&sending, 100, 1), 0).wait().unwrap();
    assert_eq!(lost.struck(), 1);
    receiving.close().unwrap();
    sending.finish(send).wait().unwrap();
}
