//! Pairings that users have, and properties that every pairing has.
#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;

use super::*;

/// Reads `name/address[/prefix][@rail]`; an address in hexadecimal digits is an InfiniBand subnet
/// prefix, `v1:` before an address is RoCE version 1.
fn offer(text: &str) -> DeviceOffer {
    let (text, rail) = match text.split_once('@') {
        Some((text, rail)) => (text, Some(rail.parse().unwrap())),
        None => (text, None),
    };
    let mut parts = text.split('/');
    let (name, address) = (parts.next().unwrap(), parts.next().unwrap());
    let prefix_length = parts.next().map(|length| length.parse().unwrap());
    let (address, version) = match address.strip_prefix("v1:") {
        Some(address) => (address, 1),
        None => (address, 2),
    };
    let offer = DeviceOffer {
        name: name.to_owned(),
        port: 1,
        link: Link::Ethernet,
        lid: 0,
        gid: [0; 16],
        gid_index: 3,
        prefix_length,
        roce_version: Some(version),
        rail,
        mtu: 1024,
        max_message: 1 << 30,
        reorders: false,
    };
    let ip = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => v4.to_ipv6_mapped(),
        Ok(IpAddr::V6(v6)) => v6,
        Err(_) => {
            let prefix = u128::from(u64::from_str_radix(address, 16).unwrap());
            return DeviceOffer {
                link: Link::InfiniBand,
                lid: 7,
                gid: Ipv6Addr::from_bits(prefix << 64 | 0x1234).octets(),
                roce_version: None,
                ..offer
            };
        }
    };
    DeviceOffer {
        gid: ip.octets(),
        ..offer
    }
}

fn offers(text: &str) -> Vec<DeviceOffer> {
    text.split_whitespace().map(offer).collect()
}

/// The pairs as `01 10`.
fn paired(local: &str, remote: &str) -> String {
    let pairs = pair(&offers(local), &offers(remote)).unwrap();
    let texts: Vec<_> = pairs
        .iter()
        .map(|(one, other)| format!("{one}{other}"))
        .collect();
    texts.join(" ")
}

#[test]
fn what_users_have() {
    for (what, local, remote, expected) in [
        ("one to one", "a/10.0.0.1", "b/10.0.0.2", "00"),
        (
            "one to one across a router",
            "a/10.0.0.1",
            "b/10.9.0.2",
            "00",
        ),
        (
            "two rails, in the same order",
            "a0/10.0.0.1 a1/10.0.1.1",
            "b0/10.0.0.2 b1/10.0.1.2",
            "00 11",
        ),
        (
            "two subnets, in another order on the other node (users, theme G)",
            "a0/10.0.0.1 a1/10.0.1.1",
            "b0/10.0.1.2 b1/10.0.0.2",
            "01 10",
        ),
        (
            "rails win over subnets",
            "a0/10.0.0.1@0 a1/10.0.1.1@1",
            "b0/10.0.0.2@1 b1/10.0.1.2@0",
            "01 10",
        ),
        (
            "rails that one end alone gives say nothing",
            "a0/10.0.0.1@1 a1/10.0.1.1@0",
            "b0/10.0.0.2 b1/10.0.1.2",
            "00 11",
        ),
        (
            "a rail that both give for one device only",
            "a0/10.0.0.1@4 a1/10.0.0.2",
            "b0/10.0.0.3 b1/10.0.0.4@4",
            "01 10",
        ),
        (
            "one subnet: by position",
            "a0/10.0.0.1 a1/10.0.0.2 a2/10.0.0.3",
            "b0/10.0.0.4 b1/10.0.0.5 b2/10.0.0.6",
            "00 11 22",
        ),
        (
            "a wide network is one network",
            "a0/10.0.0.1/16 a1/10.0.1.1/16",
            "b0/10.0.1.2/16 b1/10.0.0.2/16",
            "00 11",
        ),
        (
            "narrow networks are many",
            "a0/10.0.0.1/31 a1/10.0.0.3/31",
            "b0/10.0.0.2/31 b1/10.0.0.0/31",
            "01 10",
        ),
        (
            "the end that knows its prefix decides",
            "a0/10.0.0.1 a1/10.0.0.3",
            "b0/10.0.0.2/31 b1/10.0.0.0/31",
            "01 10",
        ),
        (
            "a prefix of zero covers everything",
            "a0/10.0.0.1/0 a1/11.0.0.1/0",
            "b0/11.0.0.2/0 b1/10.0.0.2/0",
            "00 11",
        ),
        (
            "IPv6 by /64",
            "a0/fd00:0:0:1::1 a1/fd00:0:0:2::1",
            "b0/fd00:0:0:2::2 b1/fd00:0:0:1::2",
            "01 10",
        ),
        (
            "InfiniBand by subnet prefix",
            "a0/fe80000000000000 a1/fec0000000000001",
            "b0/fec0000000000001 b1/fe80000000000000",
            "01 10",
        ),
        (
            "two to one",
            "a0/10.0.0.1 a1/10.0.1.1",
            "b0/10.0.0.2",
            "00 10",
        ),
        (
            "one to four",
            "a0/10.0.0.1",
            "b0/10.0.0.2 b1/10.0.1.2 b2/10.0.2.2 b3/10.0.3.2",
            "00 01 02 03",
        ),
        (
            "two to four: evenly, and by subnet",
            "a0/10.0.0.1 a1/10.0.1.1",
            "b0/10.0.1.2 b1/10.0.1.3 b2/10.0.0.2 b3/10.0.0.3",
            "02 03 10 11",
        ),
        (
            "two to four of one subnet: evenly all the same",
            "a0/10.0.0.1 a1/10.0.1.1",
            "b0/10.0.0.2 b1/10.0.0.3 b2/10.0.0.4 b3/10.0.0.5",
            "00 02 11 13",
        ),
        (
            "three to two",
            "a0/10.0.0.1 a1/10.0.1.1 a2/10.0.1.2",
            "b0/10.0.0.2 b1/10.0.1.3",
            "00 11 21",
        ),
        (
            "the possible comes before the even",
            "a0/10.0.0.1 a1/fd00::1",
            "b0/10.0.0.2 b1/10.0.0.3 b2/10.0.0.4 b3/fd00::2",
            "00 01 02 13",
        ),
        (
            "eight to eight",
            "a0/10.0.0.1 a1/10.0.1.1 a2/10.0.2.1 a3/10.0.3.1 \
             a4/10.0.4.1 a5/10.0.5.1 a6/10.0.6.1 a7/10.0.7.1",
            "b7/10.0.7.2 b6/10.0.6.2 b5/10.0.5.2 b4/10.0.4.2 \
             b3/10.0.3.2 b2/10.0.2.2 b1/10.0.1.2 b0/10.0.0.2",
            "07 16 25 34 43 52 61 70",
        ),
    ] {
        assert_eq!(paired(local, remote), expected, "{what}");
    }
}

#[test]
fn the_impossible_is_refused_with_both_ends_names_and_addresses() {
    for (local, remote, why) in [
        (
            "a0/10.0.0.1",
            "b0/fe80000000000000",
            "InfiniBand and the other Ethernet",
        ),
        ("a0/10.0.0.1", "b0/fd00::1", "IPv4 and the other IPv6"),
        ("a0/10.0.0.1", "b0/v1:10.0.0.2", "RoCE v1 and the other v2"),
        (
            "a0/10.0.0.1 a1/fd00::1",
            "b0/10.0.0.2",
            "a1:1 cannot talk to any",
        ),
        (
            "a0/10.0.0.1",
            "b0/10.0.0.2 b1/fd00::1",
            "b1:1 cannot talk to any",
        ),
        (
            "a0/10.0.0.1 a1/fd00::1 a2/fd00::2",
            "b0/10.0.0.2 b1/10.0.0.3 b2/fd00::3",
            "same time",
        ),
        ("a0/10.0.0.1", "", "no device"),
    ] {
        let (local, remote) = (offers(local), offers(remote));
        for (one, other) in [(&local, &remote), (&remote, &local)] {
            let text = pair(one, other).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
            for offer in one.iter().chain(other) {
                assert!(text.contains(&format!("{}:1", offer.name)), "{text}");
            }
        }
    }
    let text = pair(&offers("a0/10.0.0.1"), &offers("b0/fe80000000000000"))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("a0:1 RoCEv2 10.0.0.1") && text.contains("b0:1 InfiniBand LID 7 fe80::1234"),
        "{text}"
    );
}

/// A small generator (xorshift), so that the same cases are tried every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn end(&mut self, name: char) -> Vec<DeviceOffer> {
        let count = 1 + self.below(8);
        (0..count)
            .map(|index| {
                let subnet = self.below(4);
                let mut text = match self.below(12) {
                    0 => format!("{name}{index}/fd00:0:0:{subnet}::{index}"),
                    _ => format!("{name}{index}/10.0.{subnet}.{index}"),
                };
                if self.below(3) == 0 {
                    text += "/23";
                }
                if self.below(2) == 0 {
                    text += &format!("@{}", self.below(3));
                }
                offer(&text)
            })
            .collect()
    }
}

#[test]
fn both_ends_compute_the_same_and_everybody_has_a_partner() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let (mut possible, mut impossible) = (0, 0);
    for _ in 0..400 {
        let (local, remote) = (dice.end('a'), dice.end('b'));
        let (here, there) = (pair(&local, &remote), pair(&remote, &local));
        assert_eq!(here, pair(&local, &remote), "not deterministic");
        let Ok(pairs) = here else {
            assert!(there.is_err());
            impossible += 1;
            continue;
        };
        possible += 1;
        let mut mirrored: Vec<_> = there.unwrap().iter().map(|&(a, b)| (b, a)).collect();
        mirrored.sort_unstable();
        assert_eq!(pairs, mirrored, "{local:?} {remote:?}");

        let partners = |index: usize, is_local: bool| {
            let of = |&&(one, other): &&(usize, usize)| if is_local { one } else { other } == index;
            pairs.iter().filter(of).count()
        };
        let here: Vec<_> = (0..local.len())
            .map(|index| partners(index, true))
            .collect();
        let there: Vec<_> = (0..remote.len())
            .map(|index| partners(index, false))
            .collect();
        let (many, few) = if local.len() >= remote.len() {
            (&here, &there)
        } else {
            (&there, &here)
        };
        assert!(many.iter().all(|&count| count == 1), "{pairs:?}");
        assert!(few.iter().all(|&count| count >= 1), "{pairs:?}");
        if local
            .iter()
            .chain(&remote)
            .all(|offer| address(offer).is_ipv4())
        {
            // Nothing is in the way of an even spread.
            assert!(
                few.iter().max().unwrap() - few.iter().min().unwrap() <= 1,
                "{pairs:?}"
            );
        }
        for &(one, other) in &pairs {
            assert_eq!(obstacle(&local[one], &remote[other]), None);
        }
    }
    assert!(possible > 100 && impossible > 50, "{possible} {impossible}");
}

/// Every assignment there is, tried one by one.
fn least_cost(many: &[DeviceOffer], few: &[DeviceOffer]) -> Option<Cost> {
    let ways = few.len().pow(many.len() as u32);
    (0..ways)
        .filter_map(|mut way| {
            let mut loads = vec![0; few.len()];
            let mut cost = [0; 4];
            for (index, one) in many.iter().enumerate() {
                let candidate = way % few.len();
                way /= few.len();
                let other = &few[candidate];
                if obstacle(one, other).is_some() {
                    return None;
                }
                loads[candidate] += 1;
                cost[1] += rail_distance(one, other);
                cost[2] += subnet_distance(one, other);
                cost[3] += (index % few.len()).abs_diff(candidate).pow(2) as u32;
            }
            cost[0] = loads.iter().map(|load: &u32| load.pow(2)).sum();
            (!loads.contains(&0)).then_some(cost)
        })
        .min()
}

#[test]
fn there_is_no_better_pairing() {
    let mut dice = Dice(0xfeed_beef_0102_0304);
    for _ in 0..150 {
        let (mut many, mut few) = (dice.end('a'), dice.end('b'));
        many.truncate(5);
        few.truncate(many.len().min(4));
        let found = assign(&many, &few).map(|partners| {
            let mut loads = vec![0_u32; few.len()];
            let mut cost = [0; 4];
            for (index, (one, &candidate)) in many.iter().zip(&partners).enumerate() {
                loads[candidate] += 1;
                cost[1] += rail_distance(one, &few[candidate]);
                cost[2] += subnet_distance(one, &few[candidate]);
                cost[3] += (index % few.len()).abs_diff(candidate).pow(2) as u32;
            }
            cost[0] = loads.iter().map(|load| load.pow(2)).sum();
            cost
        });
        assert_eq!(found, least_cost(&many, &few), "{many:?} {few:?}");
    }
}
