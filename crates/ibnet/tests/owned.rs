//! The safe interface where the application, the peer or the network misbehaves; on the simulator.
#![allow(clippy::unwrap_used)]

mod rig;

use ibnet::{Error, SendConnection, Wait};
use ibnet_simverbs::{Stage, When};
use ibnet_verbs::WcStatus;
use rig::{connection, fabric};

#[test]
fn a_ticket_is_good_for_its_own_connection_only() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let (mut other_sending, mut other_receiving) = connection(&fabric);
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let other_receive = other_receiving
        .recv(other_receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let send = sending
        .send(sending.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let other_send = other_sending
        .send(other_sending.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let failed = other_sending.finish(send).try_now().unwrap_err();
    assert!(matches!(failed.error, Error::InvalidArgument(_)));
    let failed = other_receiving.finish(receive).try_now().unwrap_err();
    assert!(matches!(failed.error, Error::InvalidArgument(_)));
    // The owner of the right ticket is not disturbed.
    other_sending.finish(other_send).wait().unwrap();
    other_receiving.finish(other_receive).wait().unwrap();
}

#[test]
fn a_dropped_ticket_frees_its_slot_and_its_buffer_when_the_request_ends() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let regions = fabric.live_objects().mrs;
    // Far more than the table of requests holds.
    for _ in 0..600 {
        let buffer = receiving.registrar().buffer(8).unwrap();
        drop(receiving.recv(buffer, 0).wait().unwrap());
        let buffer = sending.registrar().buffer(8).unwrap();
        drop(sending.send(buffer, 0).wait().unwrap());
    }
    assert!(receiving.outstanding() < 256 && sending.outstanding() < 256);
    assert!(fabric.live_objects().mrs < regions + 512);
}

#[test]
fn finished_requests_that_fill_the_table_are_an_error_and_no_endless_wait() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let mut receives = Vec::new();
    for _ in 0..256 {
        let buffer = receiving.registrar().buffer(8).unwrap();
        receives.push(receiving.recv(buffer, 0).wait().unwrap());
        let buffer = sending.registrar().buffer(8).unwrap();
        let send = sending.send(buffer, 0).wait().unwrap();
        sending.finish(send).wait().unwrap();
    }
    let buffer = receiving.registrar().buffer(8).unwrap();
    let failed = receiving.recv(buffer, 0).wait().unwrap_err();
    assert!(
        failed.to_string().contains("wait to be asked for"),
        "{failed}"
    );
    assert_eq!(failed.returned.unwrap().len(), 8);
    // One that is asked for makes room.
    receiving.finish(receives.pop().unwrap()).wait().unwrap();
    let buffer = receiving.registrar().buffer(8).unwrap();
    drop(receiving.recv(buffer, 0).wait().unwrap());
}

#[test]
fn a_message_that_does_not_fit_is_an_error_at_both_ends_and_the_connection_goes_on() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    for round in 0..300 {
        let room = receiving.registrar().buffer(10).unwrap();
        let receive = receiving.recv(room, 0).wait().unwrap();
        let buffer = sending.registrar().buffer(100).unwrap();
        let send = sending.send(buffer, 0).wait().unwrap();
        let at_sender = sending.finish(send).wait().unwrap_err();
        assert_eq!(at_sender.returned.unwrap().len(), 100);
        let at_receiver = receiving.finish(receive).wait().unwrap_err();
        let room = at_receiver.returned.unwrap();
        assert_eq!(room[..], [0; 10], "nothing was written");
        for error in [at_sender.error, at_receiver.error] {
            let is_told = matches!(
                error,
                Error::MessageTooLong {
                    length: 100,
                    capacity: 10,
                    ..
                }
            );
            assert!(is_told, "round {round}: {error}");
        }
    }
    // Of a group one can be too long: the others have arrived.
    let group = (0..3).map(|tag| (receiving.registrar().buffer(10).unwrap(), tag));
    let receive = receiving.recv_group(group.collect()).wait().unwrap();
    for (tag, length) in [(2, 3), (0, 11), (1, 5)] {
        let mut buffer = sending.registrar().buffer(length).unwrap();
        buffer.fill(7);
        drop(sending.send(buffer, tag).wait().unwrap());
    }
    let failed = receiving.finish(receive).wait().unwrap_err();
    let told = failed.error.to_string();
    assert!(told.contains("11 bytes for a buffer of 10"), "{told}");
    let buffers = failed.returned.unwrap();
    assert_eq!(buffers[1][..6], [7, 7, 7, 7, 7, 0]);
    assert_eq!(buffers[2][..4], [7, 7, 7, 0]);
    // And the connection is as good as before.
    let receive = receiving.recv(receiving.registrar().buffer(8).unwrap(), 0);
    let receive = receive.wait().unwrap();
    let send = sending.send(sending.registrar().buffer(8).unwrap(), 0);
    drop(send.wait().unwrap());
    assert_eq!(receiving.finish(receive).wait().unwrap().len(), 8);
    sending.close().unwrap();
    receiving.close().unwrap();
}

#[test]
fn whichever_comes_first_is_finished_first() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let mut receives = Vec::new();
    let mut group = Vec::new();
    for tag in 0..3 {
        group.push((receiving.registrar().buffer(8).unwrap(), tag));
    }
    let group = receiving.recv_group(group).wait().unwrap();
    for tag in [7, 8] {
        let buffer = receiving.registrar().buffer(8).unwrap();
        receives.push(receiving.recv(buffer, tag).wait().unwrap());
    }
    for tag in [0, 1, 2, 7, 8] {
        let mut buffer = sending.registrar().buffer(1).unwrap();
        buffer[0] = tag as u8;
        let send = sending.send(buffer, tag).wait().unwrap();
        sending.finish(send).wait().unwrap();
    }
    let (index, buffer) = receiving.finish_any(&mut receives).wait().unwrap();
    assert_eq!((index, buffer[0]), (0, 7));
    let (index, buffer) = receiving.finish_any(&mut receives).wait().unwrap();
    assert_eq!((index, buffer[0]), (0, 8));
    let failed = receiving.finish_any(&mut receives).wait().unwrap_err();
    assert!(
        matches!(failed.error, Error::InvalidArgument(_)),
        "{failed}"
    );
    assert_eq!(receiving.finish(group).wait().unwrap().len(), 3);
    // When the connection fails, each gives its buffer back.
    for tag in [1, 2] {
        let buffer = receiving.registrar().buffer(8).unwrap();
        receives.push(receiving.recv(buffer, tag).wait().unwrap());
    }
    drop(sending);
    for _ in 0..2 {
        let failed = receiving.finish_any(&mut receives).wait().unwrap_err();
        assert!(matches!(failed.error, Error::PeerLost { .. }), "{failed}");
        assert_eq!(failed.returned.unwrap().1.len(), 8);
    }
    assert!(receives.is_empty());
}

#[test]
fn receives_that_are_not_asked_for_do_not_stop_the_others() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let send = |sending: &mut SendConnection, bytes: usize, tag| {
        let buffer = sending.registrar().buffer(bytes).unwrap();
        let ticket = sending.send(buffer, tag).wait().unwrap();
        sending.finish(ticket).wait().unwrap();
    };
    // One is asked for last of all.
    let first = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait();
    let first = first.unwrap();
    send(&mut sending, 3, 0);
    for _ in 0..600 {
        let ticket = receiving
            .recv(receiving.registrar().buffer(8).unwrap(), 0)
            .wait()
            .unwrap();
        send(&mut sending, 8, 0);
        assert_eq!(receiving.finish(ticket).wait().unwrap().len(), 8);
    }
    // More buffers than can be announced at a time have arrived.
    let mut groups = Vec::new();
    for _ in 0..100 {
        let group = (0..8).map(|tag| (receiving.registrar().buffer(8).unwrap(), tag));
        groups.push(receiving.recv_group(group.collect()).wait().unwrap());
        for tag in 0..8 {
            send(&mut sending, tag as usize, tag);
        }
    }
    for ticket in groups.into_iter().rev() {
        let lengths = receiving.finish(ticket).wait().unwrap();
        assert!(lengths.iter().map(|buffer| buffer.len()).eq(0..8));
    }
    assert_eq!(receiving.finish(first).wait().unwrap().len(), 3);
}

#[test]
fn what_the_receiver_has_taken_is_done_although_the_acknowledgement_is_lost() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let lost = fabric.faults().fail_work(
        "s0",
        When::Nth(1),
        WcStatus::RETRY_EXC_ERR,
        Stage::CarriedOut,
    );
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let mut buffer = sending.registrar().buffer(8).unwrap();
    buffer.copy_from_slice(b"arrived!");
    let send = sending.send(buffer, 0).wait().unwrap();
    assert_eq!(receiving.finish(receive).wait().unwrap()[..], *b"arrived!");
    assert_eq!(lost.struck(), 1);
    receiving.close().unwrap();
    // The request's own completion is an error; the Close says that it was taken.
    sending.finish(send).wait().unwrap();
}

#[test]
fn the_peer_of_a_failed_end_is_told_why() {
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let failed =
        fabric
            .faults()
            .fail_work("s0", When::Nth(1), WcStatus::RETRY_EXC_ERR, Stage::NotSent);
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let send = sending
        .send(sending.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let error = sending.finish(send).wait().unwrap_err().error;
    assert!(matches!(error, Error::Completion { .. }), "{error}");
    assert_eq!(failed.struck(), 1);
    // The failed end is still open: the other one must not have to wait for its close.
    let told = receiving.finish(receive).wait().unwrap_err().error;
    assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
    assert!(told.to_string().contains("RETRY_EXC_ERR"), "{told}");
}

#[test]
fn a_failed_connection_refuses_every_later_request() {
    let fabric = fabric(1, 1);
    let (mut sending, receiving) = connection(&fabric);
    receiving.close().unwrap();
    let buffer = sending.registrar().buffer(8).unwrap();
    let failed = sending.send(buffer, 0).wait().unwrap_err();
    assert!(matches!(failed.error, Error::PeerClosed { .. }), "{failed}");
    assert_eq!(failed.returned.unwrap().len(), 8);
    for _ in 0..3 {
        let buffer = sending.registrar().buffer(8).unwrap();
        let again = sending.send(buffer, 0).try_now().unwrap_err();
        assert!(matches!(again.error, Error::PeerClosed { .. }), "{again}");
    }
}
