//! Which device of one end talks to which of the other. Pure: two lists of offers in, pairs out.
//!
//! Every device of the end that has more of them gets one partner; every device of the other end
//! is used, as evenly as possible. Among the pairings that can work, the best is taken by these
//! rules, each of which only decides where those before it leave a choice:
//!
//! 1. *Possible at all*: both ports are InfiniBand, or both are Ethernet with addresses of one
//!    family and the same RoCE version. This is no preference: without it there is no pairing.
//! 2. *Even*: no device of the smaller end has more partners than it must.
//! 3. *Rail*, where the user gave rails to both (`hca`): the same one.
//! 4. *Subnet*: on InfiniBand the same subnet prefix (the first 8 bytes of the GID); on Ethernet
//!    the same network. Both ends tell the length of the prefix of their address, and the longer one
//!    counts, because each must see the other as its neighbour. Where neither end knows, /24
//!    for IPv4 and /64 for IPv6 are compared. Different networks may be routed, hence only
//!    a preference.
//! 5. *Position* in the lists, which both ends sort by PCI address: the n-th with the n-th.
//!
//! Both ends get the same pairs, whichever of them computes it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::error::Error;
use crate::wire::message::{DeviceOffer, Link, printable};

/// The longest prefix that is compared when neither end knows its own.
const USUAL_PREFIX_V4: u8 = 24;
const USUAL_PREFIX_V6: u8 = 64;

/// How bad a pairing is; less is better, earlier fields first.
type Cost = [u32; 4];

/// Pairs the devices of two ends: (index into `local`, index into `remote`), ordered by both.
///
/// # Errors
/// Some device has nobody to talk to, and why.
pub(crate) fn pair(
    local: &[DeviceOffer],
    remote: &[DeviceOffer],
) -> Result<Vec<(usize, usize)>, Unpairable> {
    // Both ends must go through the same steps: the first list is the longer one, and of equally
    // long ones that with the lesser content.
    let is_swapped = (local.len(), remote) < (remote.len(), local);
    let (many, few) = if is_swapped {
        (remote, local)
    } else {
        (local, remote)
    };
    let partners = assign(many, few).ok_or_else(|| Unpairable::new(local, remote))?;
    let mut pairs: Vec<_> = partners
        .into_iter()
        .enumerate()
        .map(|(one, other)| {
            if is_swapped {
                (other, one)
            } else {
                (one, other)
            }
        })
        .collect();
    pairs.sort_unstable();
    Ok(pairs)
}

/// For each of `many` its partner among `few`: the best of all possible assignments.
///
/// The devices are placed one after the other. What was decided before matters to the rest only by
/// how many partners each of `few` has, so that the best way to each such state is all that is
/// kept: with 8 devices a few hundred.
fn assign(many: &[DeviceOffer], few: &[DeviceOffer]) -> Option<Vec<usize>> {
    if few.is_empty() {
        return None;
    }
    // Whoever had more partners than this would leave another without one.
    let most = (many.len() + 1).checked_sub(few.len())? as u32;
    let mut best: BTreeMap<Vec<u32>, (Cost, Vec<usize>)> = BTreeMap::new();
    best.insert(vec![0; few.len()], ([0; 4], Vec::new()));
    for (index, one) in many.iter().enumerate() {
        let mut next: BTreeMap<Vec<u32>, (Cost, Vec<usize>)> = BTreeMap::new();
        for (loads, (cost, partners)) in &best {
            for (candidate, other) in few.iter().enumerate() {
                if loads[candidate] == most || obstacle(one, other).is_some() {
                    continue;
                }
                let mut loads = loads.clone();
                loads[candidate] += 1;
                let step = [
                    // Makes the sum the sum of the squares of the loads.
                    2 * loads[candidate] - 1,
                    rail_distance(one, other),
                    subnet_distance(one, other),
                    (index % few.len()).abs_diff(candidate).pow(2) as u32,
                ];
                let cost = std::array::from_fn(|rule| cost[rule] + step[rule]);
                let partners = [partners.as_slice(), &[candidate]].concat();
                let way = (cost, partners);
                match next.get(&loads) {
                    Some(known) if *known <= way => {}
                    _ => {
                        next.insert(loads, way);
                    }
                }
            }
        }
        best = next;
    }
    best.into_iter()
        .filter(|(loads, _)| !loads.contains(&0))
        .map(|(_, way)| way)
        .min()
        .map(|(_, partners)| partners)
}

/// Why two ports can never talk to each other, if so.
pub(crate) fn obstacle(one: &DeviceOffer, other: &DeviceOffer) -> Option<&'static str> {
    if one.link != other.link {
        return Some("one is InfiniBand and the other Ethernet");
    }
    if one.link == Link::InfiniBand {
        return None;
    }
    if address(one).is_ipv4() != address(other).is_ipv4() {
        return Some("one address is IPv4 and the other IPv6");
    }
    match (one.roce_version, other.roce_version) {
        (Some(one), Some(other)) if one != other => Some("one speaks RoCE v1 and the other v2"),
        _ => None,
    }
}

/// 0: the same rail; 1: not known; 2: another one.
fn rail_distance(one: &DeviceOffer, other: &DeviceOffer) -> u32 {
    match (one.rail, other.rail) {
        (Some(one), Some(other)) if one == other => 0,
        (Some(_), Some(_)) => 2,
        _ => 1,
    }
}

/// 0: the same subnet; 1: another one.
fn subnet_distance(one: &DeviceOffer, other: &DeviceOffer) -> u32 {
    let is_same = match one.link {
        // Without the FLID, which tells the router and not the subnet.
        Link::InfiniBand => without_flid(one.gid()) == without_flid(other.gid()),
        Link::Ethernet => {
            let (usual, offset) = match address(one) {
                IpAddr::V4(_) => (USUAL_PREFIX_V4, 96),
                IpAddr::V6(_) => (USUAL_PREFIX_V6, 0),
            };
            let length = one.prefix_length.max(other.prefix_length);
            let bits = offset + u32::from(length.unwrap_or(usual));
            let differing = u128::from_be_bytes(one.gid) ^ u128::from_be_bytes(other.gid);
            differing.leading_zeros() >= bits
        }
    };
    u32::from(!is_same)
}

/// The subnet prefix of a GID without the 16 bits that may hold a FLID.
fn without_flid(gid: ibnet_verbs::Gid) -> u64 {
    gid.subnet_prefix() & !(0xffff << 16)
}

fn address(offer: &DeviceOffer) -> IpAddr {
    let v6 = offer.gid().to_ipv6();
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// Two ends that have no pairing, in words: both ends' devices with their addresses, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpairable {
    local: String,
    remote: String,
    why: String,
}

impl Unpairable {
    fn new(local: &[DeviceOffer], remote: &[DeviceOffer]) -> Self {
        Self {
            local: list(local),
            remote: list(remote),
            why: why(local, remote),
        }
    }
}

impl fmt::Display for Unpairable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no way from the devices here ({}) to those there ({}): {}",
            self.local, self.remote, self.why
        )
    }
}

fn list(offers: &[DeviceOffer]) -> String {
    let texts: Vec<String> = offers.iter().map(describe).collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}

/// Name, port and address of a device, for people.
fn describe(offer: &DeviceOffer) -> String {
    let name = printable(&offer.name);
    let port = offer.port;
    match offer.link {
        Link::InfiniBand => format!("{name}:{port} InfiniBand LID {} {}", offer.lid, offer.gid()),
        Link::Ethernet => {
            let version = offer
                .roce_version
                .map_or_else(String::new, |version| format!("v{version}"));
            format!("{name}:{port} RoCE{version} {}", address(offer))
        }
    }
}

/// The first device that can talk to nobody; else the one that is too many for those that it can
/// talk to.
fn why(local: &[DeviceOffer], remote: &[DeviceOffer]) -> String {
    let lonely = |ones: &[DeviceOffer], others: &[DeviceOffer]| {
        ones.iter().find_map(|one| {
            let mut reasons: Vec<_> = others.iter().map(|other| obstacle(one, other)).collect();
            reasons.dedup();
            let reasons: Option<Vec<_>> = reasons.into_iter().collect();
            let reasons = reasons?.join(", or ");
            Some(format!(
                "{}:{} cannot talk to any of the others: {reasons}",
                printable(&one.name),
                one.port
            ))
        })
    };
    if local.is_empty() || remote.is_empty() {
        return "one end has no device".to_owned();
    }
    lonely(local, remote)
        .or_else(|| lonely(remote, local))
        .unwrap_or_else(|| "not all of them can be used at the same time".to_owned())
}

impl From<Unpairable> for Error {
    fn from(unpairable: Unpairable) -> Self {
        Self::Unpairable {
            reason: unpairable.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
