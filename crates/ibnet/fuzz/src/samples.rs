//! One good message of each kind, for inputs that are to get past the first check.

use crate::wire::cts;
use crate::wire::frame::encode;
use crate::wire::handle::Cookie;
use crate::wire::message::{
    Close, DeviceOffer, EceOptions, Endpoint, Endpoints, Hello, Link, Message, PathEvent, PathNews,
    PathPlan, PeerInfo, Plan, Preferences, RemoteArea,
};
use crate::wire::service::Service;

/// What the listener of every target gave to its peers.
pub(super) const COOKIE: Cookie = *b"a secret cookie!";

/// Kinds of messages.
pub(super) const KINDS: usize = 8;

/// A message of kind `kind`, between ends of `devices` devices each.
pub(super) fn message(kind: usize, devices: usize) -> Message {
    match kind {
        0 => Message::Hello(Hello {
            cookie: COOKIE,
            info: party("client", devices),
            preferences: Preferences {
                queue_pairs: 1,
                service: Service {
                    level: 3,
                    traffic_class: 106,
                },
                notify: true,
            },
        }),
        1 => Message::Plan(plan(devices)),
        2 => Message::Endpoints(Endpoints {
            queue_pairs: (0..devices).map(queue_pair).collect(),
            ring: area(devices),
        }),
        3 => Message::Ready,
        4 => Message::reject(&"no room"),
        5 => path_news(PathEvent::Drained { taken: 7 }),
        6 => path_news(PathEvent::Offer {
            device: party("peer", 1).devices.remove(0),
            endpoint: queue_pair(0),
        }),
        _ => Message::Close(Close {
            parts_taken: vec![3; devices],
        }),
    }
}

fn path_news(event: PathEvent) -> Message {
    Message::Path(PathNews {
        path: 1,
        epoch: 2,
        event,
    })
}

/// The bytes of `message` on the wire.
pub(super) fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

pub(super) fn party(host: &str, devices: usize) -> PeerInfo {
    let offer = |index: usize| DeviceOffer {
        name: format!("mlx5_{index}"),
        port: 1,
        link: Link::Ethernet,
        lid: 0,
        gid: [
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0xff,
            0xff,
            10,
            index as u8,
            0,
            1,
        ],
        gid_index: 3,
        prefix_length: Some(24),
        roce_version: Some(2),
        rail: None,
        mtu: 4096,
        max_message: 1 << 30,
        reorders: false,
    };
    PeerInfo {
        host: host.to_owned(),
        process: 4711,
        devices: (0..devices).map(offer).collect(),
    }
}

pub(super) fn plan(devices: usize) -> Plan {
    let path = |index: usize| PathPlan {
        connector_device: index as u8,
        listener_device: index as u8,
        mtu: 1024,
        reorders: index % 2 == 1,
    };
    Plan {
        info: party("listener", devices),
        paths: (0..devices).map(path).collect(),
        queue_pairs: (0..devices).map(queue_pair).collect(),
        entry_bytes: cts::entry_bytes(devices) as u8,
        first_entry: cts::ENTRIES,
        size_table: area(devices),
    }
}

pub(super) fn queue_pair(index: usize) -> Endpoint {
    Endpoint {
        number: 0x100 + index as u32,
        psn: 0xff_ffff,
        ece: (index == 0).then_some(EceOptions {
            vendor_id: 0x2c9,
            options: 0x3000_0002,
        }),
    }
}

pub(super) fn area(devices: usize) -> RemoteArea {
    RemoteArea {
        address: 0x7f00_0000_1000,
        rkeys: (0..devices as u32)
            .map(|device| 0x1_0000 + device)
            .collect(),
    }
}
