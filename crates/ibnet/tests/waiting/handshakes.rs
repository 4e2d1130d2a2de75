//! Connecting and accepting.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ibnet::{ConnectOptions, Error, ListenOptions, Transport, Wait};
use ibnet_simverbs::{Verb, When};
use ibnet_verbs::QueuePairState;

use crate::rig::executor::{both, run};
use crate::rig::{A_WHILE, config, fabric, transport};

#[test]
fn both_ends_are_awaited_on_one_thread() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let mut listener = transport
        .listen_with(1, ListenOptions::default().notify(true))
        .unwrap();
    let handle = listener.handle();
    let connecting = transport
        .connect(0, &handle, ConnectOptions::default().notify(true))
        .unwrap();
    let ((connected, accepted), polls) = run(both(connecting, listener.accept()));
    assert!(connected.is_ok() && accepted.is_ok());
    // A message or two each way, and steps of four queue pairs.
    assert!(polls < 40, "{polls} polls");
    drop((connected, accepted, listener, transport));
    assert_eq!(fabric.live_objects().cqs, 0);
    assert_eq!(fabric.live_objects().channels, 0);
}

#[test]
fn many_queue_pairs_are_made_in_steps_without_waiting_for_news() {
    let fabric = fabric(4, 0);
    let mut config = config();
    config.queue_pairs = 32;
    let transport = Transport::with_library(fabric.library(), config).unwrap();
    let mut listener = transport.listen(1).unwrap();
    let handle = listener.handle();
    let connecting = transport
        .connect(0, &handle, ConnectOptions::default().notify(false))
        .unwrap();
    let ((connected, accepted), polls) = run(both(connecting, listener.accept()));
    assert!(connected.is_ok() && accepted.is_ok());
    // 32 are created and 32 connected on each end, four at a time.
    assert!(polls >= 16, "{polls} polls");
}

#[test]
fn a_listener_sleeps_until_a_client_comes() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let mut listener = transport.listen(1).unwrap();
    let handle = listener.handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            // A stranger that says nothing is no reason to poll, either.
            let stranger = TcpStream::connect(handle.address()).unwrap();
            thread::sleep(A_WHILE);
            let connecting = transport.connect(0, &handle, ConnectOptions::default().notify(false));
            connecting.unwrap().wait().unwrap();
            drop(stranger);
        });
        let (accepted, polls) = run(listener.accept());
        accepted.unwrap();
        assert!(polls < 40, "{polls} polls");
    });
}

#[test]
fn a_step_that_is_tried_again_later_is_waited_for() {
    let fabric = fabric(4, 0);
    let mut config = config();
    config.modify_retry_pause = Duration::from_millis(60);
    let transport = Transport::with_library(fabric.library(), config).unwrap();
    let to_rtr = Verb::ModifyQpTo(QueuePairState::RTR);
    let refused = [
        fabric
            .faults()
            .fail_call(to_rtr, "s0", When::Nth(1), nix::libc::ETIMEDOUT),
        fabric
            .faults()
            .fail_call(to_rtr, "s1", When::Nth(1), nix::libc::ETIMEDOUT),
    ];
    let mut listener = transport.listen(1).unwrap();
    let handle = listener.handle();
    let connecting = transport
        .connect(0, &handle, ConnectOptions::default().notify(true))
        .unwrap();
    let ((connected, accepted), polls) = run(both(connecting, listener.accept()));
    assert!(connected.is_ok() && accepted.is_ok());
    assert!(refused.iter().all(|fault| fault.struck() == 1));
    assert!(polls < 40, "{polls} polls");
}

#[test]
fn a_listener_that_is_gone_is_called_again_and_then_given_up() {
    let fabric = fabric(4, 0);
    let mut config = config();
    config.socket_retries = 3;
    config.socket_retry_pause = Duration::from_millis(30);
    let transport = Transport::with_library(fabric.library(), config).unwrap();
    let handle = transport.listen(1).unwrap().handle();
    let connecting = transport
        .connect(0, &handle, ConnectOptions::default().notify(true))
        .unwrap();
    let (connected, polls) = run(connecting);
    assert!(matches!(connected, Err(Error::Socket { .. })));
    assert!(polls < 20, "{polls} polls");
}

#[test]
fn a_handshake_that_stalls_ends_in_time_without_being_polled() {
    let fabric = fabric(4, 0);
    let mut config = config();
    config.connect_timeout = Some(Duration::from_secs(1));
    let transport = Transport::with_library(fabric.library(), config).unwrap();
    // The listener does not accept.
    let listener = transport.listen(1).unwrap();
    let connecting = transport.connect(
        0,
        &listener.handle(),
        ConnectOptions::default().notify(true),
    );
    let (connected, polls) = run(connecting.unwrap());
    assert!(matches!(connected, Err(Error::Timeout { .. })));
    assert!(polls < 20, "{polls} polls");
}

#[test]
fn a_listener_with_more_strangers_than_it_takes_sleeps_all_the_same() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let mut listener = transport.listen(1).unwrap();
    let handle = listener.handle();
    // Those that are let in, and some that wait in the system's queue.
    let strangers: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(handle.address()).unwrap())
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            // They have the time to greet; then one that is known comes all the same.
            let connecting = transport.connect(0, &handle, ConnectOptions::default().notify(false));
            connecting.unwrap().wait().unwrap();
        });
        let (accepted, polls) = run(listener.accept());
        accepted.unwrap();
        assert!(polls < 100, "{polls} polls");
    });
    drop(strangers);
}
