//! Messages, what is believed of them, and the plan. The conversation itself is tested over sockets, in
//! `tests/hostile`.
#![allow(clippy::unwrap_used)]

use super::frame::{Decoder, MAX_MESSAGE, encode};
use super::message::*;
use crate::connect::plan::decide;
use crate::wire::cts;
use crate::wire::service::Service;

fn offer(name: &str) -> DeviceOffer {
    DeviceOffer {
        name: name.to_owned(),
        port: 1,
        link: Link::Ethernet,
        lid: 0,
        gid: [7; 16],
        gid_index: 1,
        prefix_length: Some(64),
        roce_version: Some(2),
        rail: None,
        mtu: 4096,
        max_message: 1 << 23,
        reorders: false,
    }
}

fn gid(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

fn info(name: &str) -> PeerInfo {
    PeerInfo {
        host: "host".to_owned(),
        process: 17,
        devices: vec![offer(name)],
    }
}

fn end(number: u32) -> Endpoint {
    Endpoint {
        number,
        psn: 5,
        ece: None,
    }
}

fn plan() -> Plan {
    Plan {
        info: info("b0"),
        paths: vec![PathPlan {
            connector_device: 0,
            listener_device: 0,
            mtu: 1024,
            reorders: false,
        }],
        queue_pairs: vec![end(42)],
        entry_bytes: cts::entry_bytes(1) as u8,
        first_entry: 256,
        size_table: RemoteArea {
            address: 0x10000,
            rkeys: vec![9],
        },
    }
}

fn endpoint() -> Endpoints {
    Endpoints {
        queue_pairs: vec![end(43)],
        ring: RemoteArea {
            address: 0x20000,
            rkeys: vec![10],
        },
    }
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

/// What a decoder makes of bytes that come in pieces of `chunk`.
fn decoded(bytes: &[u8], chunk: usize) -> Result<Option<Message>, Invalid> {
    let mut decoder = Decoder::default();
    for piece in bytes.chunks(chunk) {
        assert_eq!(decoder.next(), Ok(None), "a message that is not whole");
        decoder.push(piece);
    }
    decoder.next()
}

#[test]
fn messages_arrive_whatever_the_pieces() {
    for message in [
        Message::Plan(plan()),
        Message::Endpoints(endpoint()),
        Message::Ready,
    ] {
        for chunk in [1, 2, 3, 7, 64, 100_000] {
            assert_eq!(
                decoded(&bytes_of(&message), chunk),
                Ok(Some(message.clone()))
            );
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = bytes_of(&Message::Plan(plan()));
    bytes[5] += 1;
    let Err(Invalid(what)) = decoded(&bytes, bytes.len()) else {
        panic!("accepted")
    };
    assert!(what.contains("version"), "{what}");
}

#[test]
fn every_field_out_of_range_is_refused() {
    // No number from the peer is used before it is bounded.
    type Spoil = fn(&mut Plan);
    let spoilers: &[(&str, Spoil)] = &[
        ("no device", |plan| plan.info.devices.clear()),
        ("nine devices", |plan| {
            plan.info.devices = vec![offer("x"); 9]
        }),
        ("long host name", |plan| plan.info.host = "h".repeat(65)),
        ("empty device name", |plan| {
            plan.info.devices[0].name.clear()
        }),
        ("port 0", |plan| plan.info.devices[0].port = 0),
        ("odd MTU", |plan| plan.info.devices[0].mtu = 1500),
        ("tiny messages", |plan| plan.info.devices[0].max_message = 1),
        ("no GID", |plan| plan.info.devices[0].gid = [0; 16]),
        ("long IPv6 prefix", |plan| {
            plan.info.devices[0].prefix_length = Some(129)
        }),
        ("long IPv4 prefix", |plan| {
            plan.info.devices[0].gid = gid("::ffff:10.0.0.1");
            plan.info.devices[0].prefix_length = Some(33);
        }),
        ("RoCE v3", |plan| {
            plan.info.devices[0].roce_version = Some(3)
        }),
        ("InfiniBand with a RoCE version", |plan| {
            plan.info.devices[0].link = Link::InfiniBand
        }),
        ("no path", |plan| plan.paths.clear()),
        ("129 paths", |plan| {
            plan.paths = vec![plan.paths[0]; 129];
            plan.queue_pairs = vec![end(42); 129];
        }),
        ("foreign listener device", |plan| {
            plan.paths[0].listener_device = 1
        }),
        ("impossible connector device", |plan| {
            plan.paths[0].connector_device = 8
        }),
        ("odd path MTU", |plan| plan.paths[0].mtu = 0),
        ("queue pair 0", |plan| plan.queue_pairs[0].number = 0),
        ("25-bit queue pair", |plan| {
            plan.queue_pairs[0].number = 1 << 24
        }),
        ("25-bit PSN", |plan| plan.queue_pairs[0].psn = 1 << 24),
        ("no queue pair", |plan| plan.queue_pairs.clear()),
        ("a queue pair too many", |plan| {
            plan.queue_pairs.push(end(44))
        }),
        ("odd entry size", |plan| plan.entry_bytes = 48),
        ("null table", |plan| plan.size_table.address = 0),
        ("unaligned table", |plan| plan.size_table.address = 0x10001),
        ("table at the end of memory", |plan| {
            plan.size_table.address = !63
        }),
        ("no rkey", |plan| plan.size_table.rkeys.clear()),
        ("two rkeys", |plan| plan.size_table.rkeys = vec![1, 2]),
    ];
    for (what, spoil) in spoilers {
        let mut spoiled = plan();
        spoil(&mut spoiled);
        let bytes = bytes_of(&Message::Plan(spoiled));
        assert!(decoded(&bytes, bytes.len()).is_err(), "{what} was accepted");
    }
}

#[test]
fn lengths_are_bounded_before_anything_is_stored() {
    for length in [0, MAX_MESSAGE as u32 + 1, u32::MAX] {
        let mut decoder = Decoder::default();
        decoder.push(&length.to_be_bytes());
        decoder.push(&PROTOCOL.to_be_bytes());
        assert!(decoder.next().is_err(), "{length}");
    }
}

#[test]
fn random_bytes_never_panic_and_are_bounded() {
    let mut random = 12_345_u32;
    let good = bytes_of(&Message::Plan(plan()));
    for round in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..=round % 4 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let position = random as usize / 7 % bytes.len();
            bytes[position] = (random >> 24) as u8;
        }
        if let Ok(Some(message)) = decoded(&bytes, bytes.len()) {
            message.check().unwrap();
        }
    }
}

#[test]
fn the_plan_takes_the_smaller_mtu_and_refuses_mixed_links() {
    let (mut one, other) = (info("a"), info("b"));
    one.devices[0].mtu = 1024;
    // Both directions give the minimum.
    assert_eq!(decide(&one, &other, 1).unwrap()[0].mtu, 1024);
    assert_eq!(decide(&other, &one, 1).unwrap()[0].mtu, 1024);
    one.devices[0].link = Link::InfiniBand;
    assert!(decide(&one, &other, 1).is_err());
}

#[test]
fn paths_alternate_between_the_pairs_and_stay_within_bounds() {
    let devices = |names: &[&str]| PeerInfo {
        devices: names.iter().map(|name| offer(name)).collect(),
        ..info("x")
    };
    for (theirs, ours, queue_pairs, expected) in [
        (1, 1, 1, 1),
        (1, 1, 4, 4),
        (2, 1, 3, 6),
        (1, 4, 2, 8),
        (8, 8, 16, 128),
        (8, 8, 128, 128),
        (3, 2, 128, 126),
        (1, 1, 128, 128),
    ] {
        let (one, other) = (devices(&["a"; 8][..theirs]), devices(&["b"; 8][..ours]));
        let paths = decide(&one, &other, queue_pairs).unwrap();
        assert_eq!(paths.len(), expected, "{theirs} and {ours} devices");
        let pairs = theirs.max(ours);
        let pair = |path: &PathPlan| (path.connector_device, path.listener_device);
        for window in paths.windows(pairs) {
            let mut distinct: Vec<_> = window.iter().map(pair).collect();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), pairs, "neighbours share a pair");
        }
    }
}

#[test]
fn one_end_that_knows_of_reordering_is_enough() {
    let (mut one, other) = (info("a"), info("b"));
    assert!(!decide(&one, &other, 1).unwrap()[0].reorders);
    one.devices[0].reorders = true;
    assert!(decide(&one, &other, 1).unwrap()[0].reorders);
    assert!(decide(&other, &one, 1).unwrap()[0].reorders);
}

#[test]
fn a_number_of_queue_pairs_is_bounded() {
    // It is agreed on, and never trusted.
    for (queue_pairs, is_fine) in [
        (0, false),
        (1, true),
        (128, true),
        (129, false),
        (255, false),
    ] {
        let hello = Message::Hello(Hello {
            cookie: [7; 16],
            info: info("a0"),
            preferences: Preferences {
                queue_pairs,
                service: Service::default(),
                notify: true,
            },
        });
        assert_eq!(hello.check().is_ok(), is_fine, "{queue_pairs}");
    }
}
