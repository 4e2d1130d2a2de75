//! Random tables and policies, the same in every run.
#![allow(
    dead_code,
    reason = "each test program uses what it needs of what they share"
)]

use ibnet_gid::{Entry, Family, Policy, RoceVersion, Wish};
use ibnet_verbs::{Gid, GidType, Netdev, NetdevKind};

/// A small generator of numbers (xorshift64*), so that a failure can be run again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        bits as usize % limit
    }

    pub(crate) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

const ADDRESSES: &[&str] = &[
    "::",
    "fe80::",
    "fe80::1",
    "fe80::2",
    "2001:db8::1",
    "fd00::1",
    "fec0:0:7:1::1",
    "::1",
    "ff02::1",
    "ff0e::ffff:a01:203",
    "::ffff:0.0.0.0",
    "::ffff:224.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.0.9",
    "::ffff:10.1.2.3",
    "::ffff:10.1.2.4",
    "::ffff:10.2.2.3",
    "::ffff:192.168.7.7",
    "::ffff:203.0.113.1",
];

pub(crate) const NETDEVS: [&str; 4] = ["eth2", "eth2.100", "bond0", "vxlan1"];

pub(crate) fn gid(text: &str) -> Gid {
    Gid::from(text.parse::<std::net::Ipv6Addr>().expect("an address"))
}

fn netdev(random: &mut Random) -> Netdev {
    let kinds = [
        None,
        None,
        Some(NetdevKind::Bond),
        Some(NetdevKind::BondMember),
        Some(NetdevKind::Vlan),
        Some(NetdevKind::Tunnel),
    ];
    let netdev = match random.one_in(8) {
        true => Netdev::numbered(7),
        false => Netdev::named(*random.pick(&NETDEVS)),
    };
    let is_vlan = netdev.name.as_deref() == Some("eth2.100");
    Netdev {
        up: random.one_in(5).then_some(false),
        // Read from a text, such a name is always that of some kind.
        kind: random.pick(&kinds).or(is_vlan.then_some(NetdevKind::Vlan)),
        ..netdev
    }
}

pub(crate) fn entry(random: &mut Random, index: u32) -> Entry {
    if random.one_in(8) {
        return Entry::unreadable(index, "Invalid argument (os error 22)");
    }
    let types = [
        Some(GidType::RoceV2),
        Some(GidType::RoceV2),
        Some(GidType::RoceV1),
        Some(GidType::InfiniBand),
        Some(GidType::Unknown(9)),
        None,
    ];
    Entry {
        index,
        gid: gid(random.pick::<&str>(ADDRESSES)),
        gid_type: *random.pick(&types),
        netdev: (!random.one_in(4)).then(|| netdev(random)),
        unreadable: random
            .one_in(10)
            .then(|| "eth9 is not in this network namespace".to_owned()),
    }
}

/// A table with some indices left out, in any order.
pub(crate) fn table(random: &mut Random) -> Vec<Entry> {
    let length = random.below(12) as u32;
    let mut table = Vec::new();
    for index in 0..length {
        if !random.one_in(5) {
            table.push(entry(random, index));
        }
    }
    random.shuffle(&mut table);
    table
}

fn wish<T>(random: &mut Random, wanted: T) -> Wish<T> {
    match random.below(3) {
        0 => Wish::Prefer(wanted),
        1 => Wish::Ask(wanted),
        _ => Wish::Require(wanted),
    }
}

/// A policy of any kind but one with an index.
pub(crate) fn policy(random: &mut Random) -> Policy {
    let ranges = [
        "",
        "",
        "",
        "10.1.0.0/16",
        "10.0.0.0/8,fd00::/8",
        "198.51.100.7",
    ];
    let family = *random.pick(&[Family::Ipv4, Family::Ipv6]);
    let version = *random.pick(&[RoceVersion::V1, RoceVersion::V2]);
    let netdevs = *random.pick(&["eth2", "bond0,eth2.100", "vxlan1", "none"]);
    let netdevs = netdevs.parse().expect("names");
    Policy {
        index: None,
        family: wish(random, family),
        ranges: random.pick(&ranges).parse().expect("ranges"),
        roce_version: wish(random, version),
        netdevs: random.one_in(3).then(|| wish(random, netdevs)),
        ..Policy::default()
    }
}
