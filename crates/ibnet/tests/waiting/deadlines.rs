//! Waits that end in time: nothing is lost by that.

use std::time::{Duration, Instant};

use ibnet::Unposted;

use crate::rig::{BOTH, LIMIT, Notify, connect, connect_options, fabric, sent, space, transport};

const SHORT: Duration = Duration::from_millis(20);

const NEITHER: Notify = Notify {
    sender: false,
    receiver: false,
};

#[test]
fn buffers_and_tickets_are_given_back() {
    let fabric = fabric();
    let transport = transport(&fabric);
    for notify in [BOTH, NEITHER] {
        let (mut sending, mut receiving) = connect(&transport, notify);
        let start = Instant::now();
        let buffer = sent(&sending, b"patience");
        let Err(Unposted::NotReady(buffer)) = sending.send_timeout(buffer, 0, SHORT) else {
            panic!("nothing is announced")
        };
        assert!(start.elapsed() >= SHORT);

        let ticket = receiving
            .recv_group_timeout(vec![(space(&receiving), 0)], LIMIT)
            .unwrap();
        let ticket = receiving.wait_timeout(ticket, SHORT).unwrap().unwrap_err();
        let ticket = receiving
            .wait_group_timeout(ticket, SHORT)
            .unwrap()
            .unwrap_err();
        let send = sending.send_timeout(buffer, 0, LIMIT).unwrap();
        let message = receiving.wait_timeout(ticket, LIMIT).unwrap().unwrap();
        assert_eq!(message[..], *b"patience");
        sending.wait_timeout(send, LIMIT).unwrap().unwrap();

        // A deadline that has passed is one try.
        let past = Instant::now() - SHORT;
        let ticket = receiving
            .recv_group_until(vec![(space(&receiving), 0)], past)
            .unwrap();
        let send = sending.send_until(sent(&sending, b"1"), 0, past).unwrap();
        sending.wait(send).unwrap();
        receiving.wait_until(ticket, past).unwrap().unwrap();
    }
}

#[test]
fn receives_for_which_there_is_no_room_are_given_back() {
    let fabric = fabric();
    let transport = transport(&fabric);
    for notify in [BOTH, NEITHER] {
        let (_sending, mut receiving) = connect(&transport, notify);
        let mut tickets = Vec::new();
        for _ in 0..256 {
            tickets.push(receiving.recv(space(&receiving), 0).unwrap());
        }
        let buffers = vec![(space(&receiving), 0)];
        let Err(Unposted::NotReady(buffers)) = receiving.recv_group_timeout(buffers, SHORT) else {
            panic!("256 are announced")
        };
        assert_eq!(buffers.len(), 1);
    }
}

#[test]
fn a_failure_gives_the_buffer_back_too() {
    let fabric = fabric();
    let transport = transport(&fabric);
    let (mut sending, receiving) = connect(&transport, BOTH);
    drop(receiving);
    let unposted = sending.send_timeout(sent(&sending, b"nobody"), 0, LIMIT);
    let unposted = unposted.unwrap_err();
    assert!(matches!(unposted, Unposted::Failed(..)), "{unposted:?}");
    assert_eq!(unposted.into_buffers()[..], *b"nobody");
}

#[test]
fn attempts_to_connect_are_given_back() {
    let fabric = fabric();
    let transport = transport(&fabric);
    let mut listener = transport.listen(1).unwrap();
    assert!(listener.accept_timeout(SHORT).unwrap().is_none());
    let connecting = transport
        .connect(0, &listener.handle(), connect_options(true))
        .unwrap();
    let Err(connecting) = connecting.wait_timeout(SHORT).unwrap() else {
        panic!("nobody has accepted")
    };
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(connecting.wait_timeout(LIMIT).unwrap().is_ok()));
        assert!(listener.accept_timeout(LIMIT).unwrap().is_some());
    });
}

#[test]
fn the_longest_time_is_for_ever() {
    const FOR_EVER: Duration = Duration::MAX;
    let fabric = fabric();
    let longest = Duration::from_secs(86_400);
    let config = crate::rig::config().connect_timeout(Some(longest));
    let transport = ibnet::Transport::with_library(fabric.library(), config).unwrap();
    for notify in [BOTH, NEITHER] {
        let mut listener = transport
            .listen_with(1, crate::rig::listen_options(notify.receiver))
            .unwrap();
        let connecting = transport
            .connect(0, &listener.handle(), connect_options(notify.sender))
            .unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept_timeout(FOR_EVER).unwrap().unwrap());
            let Ok(mut sending) = connecting.wait_timeout(FOR_EVER).unwrap() else {
                panic!("for ever is over")
            };
            let mut receiving = accepted.join().unwrap();
            let group = vec![(space(&receiving), 0)];
            let ticket = receiving.recv_group_timeout(group, FOR_EVER).unwrap();
            let send = sending
                .send_timeout(sent(&sending, b"late"), 0, FOR_EVER)
                .unwrap();
            let message = receiving.wait_timeout(ticket, FOR_EVER).unwrap().unwrap();
            assert_eq!(message[..], *b"late");
            sending.wait_timeout(send, FOR_EVER).unwrap().unwrap();
        });
    }
}
