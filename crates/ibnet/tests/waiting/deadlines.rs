//! Waits that end in time: nothing is lost by that.

use ibnet::{ConnectOptions, Error, ListenOptions, Wait};
use std::time::{Duration, Instant};

use crate::rig::{BOTH, Notify, PATIENCE, fabric, join_notified, sent, space, transport};

const SHORT: Duration = Duration::from_millis(20);

const NEITHER: Notify = Notify {
    sender: false,
    receiver: false,
};

#[test]
fn buffers_and_tickets_are_given_back() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    for notify in [BOTH, NEITHER] {
        let (mut sending, mut receiving) = join_notified(&transport, notify);
        let start = Instant::now();
        let buffer = sent(&sending, b"patience");
        let mut posting = sending.send(buffer, 0);
        assert!(posting.wait_for(SHORT).unwrap().is_none());
        assert!(start.elapsed() >= SHORT);
        let buffer = posting.into_inner().unwrap();

        let mut posting = receiving.recv(space(&receiving), 0);
        let ticket = posting.wait_for(PATIENCE).unwrap().unwrap();
        let mut receive = receiving.finish(ticket);
        assert!(receive.wait_for(SHORT).unwrap().is_none());
        let ticket = receive.into_inner().unwrap();
        let mut receive = receiving.finish(ticket);
        assert!(receive.wait_for(SHORT).unwrap().is_none());
        let send = sending.send(buffer, 0).wait_for(PATIENCE).unwrap().unwrap();
        let message = receive.wait_for(PATIENCE).unwrap().unwrap();
        assert_eq!(message[..], *b"patience");
        sending.finish(send).wait_for(PATIENCE).unwrap().unwrap();

        // A deadline that has passed is one try.
        let past = Instant::now() - SHORT;
        let group = vec![(space(&receiving), 0)];
        let ticket = receiving.recv_group(group).wait_until(past).unwrap();
        let buffer = sent(&sending, b"1");
        let send = sending.send(buffer, 0).wait_until(past).unwrap().unwrap();
        sending.finish(send).wait().unwrap();
        let mut receive = receiving.finish(ticket.unwrap());
        assert!(receive.wait_until(past).unwrap().is_some());
    }
}

#[test]
fn receives_for_which_there_is_no_room_are_given_back() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    for notify in [BOTH, NEITHER] {
        let (_sending, mut receiving) = join_notified(&transport, notify);
        let mut tickets = Vec::new();
        for _ in 0..256 {
            tickets.push(receiving.recv(space(&receiving), 0).wait().unwrap());
        }
        let buffers = vec![(space(&receiving), 0)];
        let mut posting = receiving.recv_group(buffers);
        assert!(posting.wait_for(SHORT).unwrap().is_none());
        assert_eq!(posting.into_inner().unwrap().len(), 1);
    }
}

#[test]
fn a_failure_gives_the_buffer_back_too() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, receiving) = join_notified(&transport, BOTH);
    drop(receiving);
    let buffer = sent(&sending, b"unsent");
    let failed = sending.send(buffer, 0).wait_for(PATIENCE).unwrap_err();
    assert!(matches!(failed.error, Error::PeerLost { .. }), "{failed}");
    assert_eq!(failed.returned.unwrap()[..], *b"unsent");
}

#[test]
fn attempts_to_connect_are_given_back() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let mut listener = transport.listen(1).unwrap();
    assert!(listener.accept().wait_for(SHORT).unwrap().is_none());
    let mut connecting = transport
        .connect(
            0,
            &listener.handle(),
            ConnectOptions::default().notify(true),
        )
        .unwrap();
    assert!(connecting.wait_for(SHORT).unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(connecting.wait_for(PATIENCE).unwrap().is_some()));
        assert!(listener.accept().wait_for(PATIENCE).unwrap().is_some());
    });
}

#[test]
fn the_longest_time_is_for_ever() {
    const FOR_EVER: Duration = Duration::MAX;
    let fabric = fabric(4, 0);
    let longest = Duration::from_secs(86_400);
    let config = crate::rig::config().connect_timeout(Some(longest));
    let transport = ibnet::Transport::with_library(fabric.library(), config).unwrap();
    for notify in [BOTH, NEITHER] {
        let mut listener = transport
            .listen_with(1, ListenOptions::default().notify(notify.receiver))
            .unwrap();
        let mut connecting = transport
            .connect(
                0,
                &listener.handle(),
                ConnectOptions::default().notify(notify.sender),
            )
            .unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().wait_for(FOR_EVER).unwrap().unwrap());
            let mut sending = connecting.wait_for(FOR_EVER).unwrap().unwrap();
            let mut receiving = accepted.join().unwrap();
            let mut posting = receiving.recv(space(&receiving), 0);
            let ticket = posting.wait_for(FOR_EVER).unwrap().unwrap();
            let buffer = sent(&sending, b"late");
            let send = sending.send(buffer, 0).wait_for(FOR_EVER).unwrap().unwrap();
            let message = receiving
                .finish(ticket)
                .wait_for(FOR_EVER)
                .unwrap()
                .unwrap();
            assert_eq!(message[..], *b"late");
            sending.finish(send).wait_for(FOR_EVER).unwrap().unwrap();
        });
    }
}
