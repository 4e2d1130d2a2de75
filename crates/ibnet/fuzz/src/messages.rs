//! Bytes become messages, whatever pieces they arrive in, and what is believed can be used.

use super::input::Input;
use super::samples::{self, frame};
use crate::connect::plan::decide;
use crate::wire::frame::{Decoder, MAX_MESSAGE};
use crate::wire::message::{Invalid, MAX_DEVICES, MAX_PATHS, Message, PeerInfo, printable};
use crate::wire::message::{PROTOCOL, PathEvent, mtu};

/// First byte: whether the rest is a stream (even) or the body of one message, which is put into a
/// frame that fits (odd). Second byte: the bytes that arrive at a time.
pub fn message(data: &[u8]) {
    let mut input = Input::new(data);
    let is_body = input.u8() % 2 == 1;
    let piece = usize::from(input.u8()).max(1);
    let mut stream = Vec::new();
    let rest = input.rest();
    if is_body {
        stream.extend((rest.len() as u32).to_be_bytes());
        stream.extend(PROTOCOL.to_be_bytes());
    }
    stream.extend(rest);

    let (messages, end) = decode(stream.chunks(stream.len().max(1)));
    assert_eq!(decode(stream.chunks(piece)), (messages.clone(), end));
    for message in &messages {
        round_trip(message);
        usable(message);
    }
}

/// All messages of a stream that arrives in `pieces`, and what is wrong behind them, if anything.
pub(super) fn decode<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Message>, Result<(), Invalid>) {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(invalid) => return (messages, Err(invalid)),
            }
        }
    }
    (messages, Ok(()))
}

/// What was understood can be said, and is understood again.
fn round_trip(message: &Message) {
    let bytes = frame(message);
    assert!(bytes.len() <= MAX_MESSAGE + 6);
    let (again, end) = decode(std::iter::once(&bytes[..]));
    assert_eq!(
        (again.as_slice(), end),
        (std::slice::from_ref(message), Ok(()))
    );
}

/// Does with an accepted message what the drivers of the handshake do.
fn usable(message: &Message) {
    match message {
        Message::Hello(hello) => {
            party(&hello.info);
            for devices in [1, 2, MAX_DEVICES] {
                let ours = samples::party("listener", devices);
                let Ok(paths) = decide(&hello.info, &ours, hello.preferences.queue_pairs.into())
                else {
                    continue;
                };
                assert!((1..=MAX_PATHS).contains(&paths.len()));
                for path in paths {
                    let theirs = &hello.info.devices[usize::from(path.connector_device)];
                    let own = &ours.devices[usize::from(path.listener_device)];
                    assert!(path.mtu <= theirs.mtu && path.mtu <= own.mtu);
                    assert!(mtu(path.mtu).is_some());
                }
            }
        }
        Message::Plan(plan) => {
            party(&plan.info);
            assert!((1..=MAX_PATHS).contains(&plan.paths.len()));
            for path in &plan.paths {
                let device = usize::from(path.listener_device);
                let _ = (&plan.info.devices[device], plan.size_table.rkeys[device]);
                assert!(mtu(path.mtu).is_some());
            }
            assert_eq!(plan.queue_pairs.len(), plan.paths.len());
            assert!(plan.queue_pairs.iter().all(|end| end.number >> 24 == 0));
        }
        Message::Endpoints(endpoint) => {
            assert!((1..=MAX_PATHS).contains(&endpoint.queue_pairs.len()));
            assert!((1..=MAX_DEVICES).contains(&endpoint.ring.rkeys.len()));
            assert!(endpoint.ring.address.checked_add(256 * 64).is_some());
        }
        Message::Reject(refusal) => fit_for_a_log(&refusal.reason),
        Message::Path(news) => {
            assert!(usize::from(news.path) < MAX_PATHS);
            if let PathEvent::Offer { device, endpoint } = &news.event {
                assert!(mtu(device.mtu).is_some() && endpoint.number >> 24 == 0);
            }
        }
        Message::Close(closing) => assert!(closing.parts_taken.len() <= MAX_PATHS),
        Message::Ready => {}
    }
}

fn party(party: &PeerInfo) {
    fit_for_a_log(&party.host);
    assert!((1..=MAX_DEVICES).contains(&party.devices.len()));
    for device in &party.devices {
        fit_for_a_log(&device.name);
        assert!(mtu(device.mtu).is_some() && device.max_message >= 128);
    }
}

fn fit_for_a_log(text: &str) {
    let shown = printable(text);
    assert!(shown.chars().count() <= 512 && !shown.chars().any(char::is_control));
}
