//! Whatever makes it impossible that what is waited for comes, wakes who waits.

use std::thread;
use std::time::Duration;

use ibnet::{Error, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{Fabric, Stage, When};
use ibnet_verbs::WcStatus;

use crate::rig::executor::run;
use crate::rig::{A_WHILE, BOTH, fabric, join_notified, sent, space, transport};

/// What a receiver and a sender that wait are told when `happens` is done to the peer or a device.
fn told(
    happens: impl Fn(&Fabric, Option<SendConnection>, Option<RecvConnection>) + Sync,
) -> [Error; 2] {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);

    let (sending, mut receiving) = join_notified(&transport, BOTH);
    let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
    let receiver = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            happens(&fabric, Some(sending), None);
        });
        let (outcome, polls) = run(receiving.finish(ticket));
        assert!(polls < 10, "{polls} polls");
        outcome.unwrap_err().error
    });

    let fabric = crate::rig::fabric(4, 0);
    let transport = crate::rig::transport(&fabric);
    let (mut sending, receiving) = join_notified(&transport, BOTH);
    let sender = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            happens(&fabric, None, Some(receiving));
        });
        // Nothing is announced.
        let (outcome, polls) = run(sending.send(sent(&sending, b"x"), 0));
        assert!(polls < 10, "{polls} polls");
        outcome.unwrap_err().error
    });
    [receiver, sender]
}

#[test]
fn a_peer_that_closes() {
    for error in told(|_, sending, receiving| {
        let _ = sending.map(SendConnection::close);
        let _ = receiving.map(RecvConnection::close);
    }) {
        assert!(matches!(error, Error::PeerClosed { .. }), "{error}");
    }
}

#[test]
fn a_device_that_fails() {
    for error in told(|fabric, sending, receiving| {
        for device in ["s0", "s1"] {
            fabric.hca(device).unwrap().fail();
        }
        // The peer, which does not look, stays a while.
        thread::sleep(Duration::from_millis(300));
        drop((sending, receiving));
    }) {
        assert!(matches!(error, Error::DeviceFatal { .. }), "{error}");
    }
}

#[test]
fn a_device_that_is_removed() {
    for error in told(|fabric, sending, receiving| {
        for device in ["s0", "s1"] {
            fabric.hca(device).unwrap().remove();
        }
        thread::sleep(Duration::from_millis(300));
        drop((sending, receiving));
    }) {
        assert!(
            matches!(error, Error::DeviceFatal { .. } | Error::Verbs(_)),
            "{error}"
        );
    }
}

#[test]
fn a_request_that_fails_ends_after_the_grace() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let failed =
        fabric
            .faults()
            .fail_work("s0", When::Nth(1), WcStatus::RETRY_EXC_ERR, Stage::NotSent);
    let receive = receiving.recv(space(&receiving), 0).wait().unwrap();
    let send = sending.send(sent(&sending, b"x"), 0).wait().unwrap();
    // The alarm ends the grace: nothing else happens.
    let (outcome, polls) = run(sending.finish(send));
    assert_eq!(failed.struck(), 1);
    assert!(matches!(
        outcome.unwrap_err().error,
        Error::Completion { .. }
    ));
    assert!(polls < 10, "{polls} polls");
    // The peer is told by that, and waits for the end of its own grace.
    let (outcome, polls) = run(receiving.finish(receive));
    assert!(matches!(
        outcome.unwrap_err().error,
        Error::PeerFailed { .. }
    ));
    assert!(polls < 10, "{polls} polls");
}

#[test]
fn what_has_arrived_is_there_although_the_peer_has_left() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let first = receiving.recv(space(&receiving), 0).wait().unwrap();
    let second = receiving.recv(space(&receiving), 0).wait().unwrap();
    let send = sending.send(sent(&sending, b"there"), 0).wait().unwrap();
    sending.finish(send).wait().unwrap();
    sending.close().unwrap();
    let (message, _) = run(receiving.finish(first));
    assert_eq!(message.unwrap()[..], *b"there");
    let (nothing, _) = run(receiving.finish(second));
    assert!(matches!(
        nothing.unwrap_err().error,
        Error::PeerClosed { .. }
    ));
}
