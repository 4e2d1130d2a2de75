//! The safe interface where the application, the peer or the network misbehaves; on the simulator.
#![allow(clippy::unwrap_used)]

mod pair;

use ibnet::{Error, SendConnection, Unposted};
use ibnet_simverbs::{DeviceSpec, Fabric, Stage, When};
use ibnet_verbs::WcStatus;
use pair::connect;

fn fabric() -> Fabric {
    let builder = Fabric::builder().device(DeviceSpec::roce("sim0"));
    builder.device(DeviceSpec::roce("sim1")).build().unwrap()
}

#[test]
fn a_ticket_is_good_for_its_own_connection_only() {
    let fabric = fabric();
    let (mut sending, mut receiving) = connect(&fabric);
    let (mut other_sending, mut other_receiving) = connect(&fabric);
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let other_receive = other_receiving
        .recv(other_receiving.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let send = sending
        .send(sending.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let other_send = other_sending
        .send(other_sending.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    assert!(matches!(
        other_sending.poll(send),
        Err(Error::InvalidArgument(_))
    ));
    assert!(matches!(
        other_receiving.poll(receive),
        Err(Error::InvalidArgument(_))
    ));
    // Whoever has the right ticket is not disturbed.
    other_sending.wait(other_send).unwrap();
    other_receiving.wait(other_receive).unwrap();
}

#[test]
fn dropped_tickets_are_an_error_and_no_endless_wait() {
    let fabric = fabric();
    let (mut sending, mut receiving) = connect(&fabric);
    let mut sends = Vec::new();
    for _ in 0..256 {
        drop(
            receiving
                .recv(receiving.registrar().buffer(8).unwrap(), 0)
                .unwrap(),
        );
        sends.push(
            sending
                .send(sending.registrar().buffer(8).unwrap(), 0)
                .unwrap(),
        );
    }
    for send in sends {
        sending.wait(send).unwrap();
    }
    let refused = receiving.recv(receiving.registrar().buffer(8).unwrap(), 0);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("tickets"), "{text}");
}

#[test]
fn receives_that_nobody_asks_for_do_not_stop_the_others() {
    let fabric = fabric();
    let (mut sending, mut receiving) = connect(&fabric);
    let send = |sending: &mut SendConnection, bytes: usize, tag| {
        let buffer = sending.registrar().buffer(bytes).unwrap();
        let ticket = sending.send(buffer, tag).unwrap();
        sending.wait(ticket).unwrap();
    };
    // One is asked for last of all.
    let first = receiving.recv(receiving.registrar().buffer(8).unwrap(), 0);
    let first = first.unwrap();
    send(&mut sending, 3, 0);
    for _ in 0..600 {
        let ticket = receiving
            .recv(receiving.registrar().buffer(8).unwrap(), 0)
            .unwrap();
        send(&mut sending, 8, 0);
        assert_eq!(receiving.wait(ticket).unwrap().len(), 8);
    }
    // More buffers than can be announced at a time have arrived.
    let mut groups = Vec::new();
    for _ in 0..100 {
        let group = (0..8).map(|tag| (receiving.registrar().buffer(8).unwrap(), tag));
        groups.push(receiving.recv_group(group.collect()).unwrap());
        for tag in 0..8 {
            send(&mut sending, tag as usize, tag);
        }
    }
    for ticket in groups.into_iter().rev() {
        let lengths = receiving.wait_group(ticket).unwrap();
        assert!(lengths.iter().map(|buffer| buffer.len()).eq(0..8));
    }
    assert_eq!(receiving.wait(first).unwrap().len(), 3);
}

#[test]
fn what_the_receiver_has_taken_is_done_although_the_acknowledgement_is_lost() {
    let fabric = fabric();
    let (mut sending, mut receiving) = connect(&fabric);
    let lost = fabric.faults().fail_work(
        "sim0",
        When::Nth(1),
        WcStatus::RETRY_EXC_ERR,
        Stage::CarriedOut,
    );
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let mut buffer = sending.registrar().buffer(8).unwrap();
    buffer.copy_from_slice(b"arrived!");
    let send = sending.send(buffer, 0).unwrap();
    assert_eq!(receiving.wait(receive).unwrap()[..], *b"arrived!");
    assert_eq!(lost.struck(), 1);
    receiving.close().unwrap();
    // The request's own completion is an error; the farewell says that it was taken.
    sending.wait(send).unwrap();
}

#[test]
fn the_peer_of_a_failed_end_is_told_why() {
    let fabric = fabric();
    let (mut sending, mut receiving) = connect(&fabric);
    let failed = fabric.faults().fail_work(
        "sim0",
        When::Nth(1),
        WcStatus::RETRY_EXC_ERR,
        Stage::NotSent,
    );
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let send = sending
        .send(sending.registrar().buffer(8).unwrap(), 0)
        .unwrap();
    let error = sending.wait(send).unwrap_err();
    assert!(matches!(error, Error::Completion { .. }), "{error}");
    assert_eq!(failed.struck(), 1);
    // The failed end is still open: the other one must not have to wait for its close.
    let told = receiving.wait(receive).unwrap_err();
    assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
    assert!(told.to_string().contains("RETRY_EXC_ERR"), "{told}");
}

#[test]
fn a_failed_connection_refuses_every_later_request() {
    let fabric = fabric();
    let (mut sending, receiving) = connect(&fabric);
    drop(receiving);
    let buffer = sending.registrar().buffer(8).unwrap();
    assert!(matches!(
        sending.send(buffer, 0),
        Err(Error::PeerClosed { .. })
    ));
    for _ in 0..3 {
        let buffer = sending.registrar().buffer(8).unwrap();
        let again = sending.try_send(buffer, 0);
        assert!(matches!(
            again,
            Err(Unposted::Failed(Error::PeerClosed { .. }, _))
        ));
    }
}
