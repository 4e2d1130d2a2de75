//! Which of the addresses of this host to use, and why not the others.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::near::Near;
use super::{Family, InterfaceFilter};
use crate::error::Error;

/// A network interface as the system has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) addresses: Vec<Address>,
}

/// Whether an interface can carry anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not up (no IFF_UP): its addresses cannot be used.
    Down,
    /// Up, but nothing is plugged in (no IFF_RUNNING): its addresses reach this host only.
    NoCarrier,
    Running,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// With port 0.
    pub(crate) address: SocketAddr,
    /// Length in bits of its network's prefix.
    pub(crate) prefix: Option<u8>,
}

/// What an interface is wanted for.
pub(crate) struct Wanted<'a> {
    pub(crate) filter: &'a InterfaceFilter,
    pub(crate) family: Option<Family>,
    /// The network that is best.
    pub(crate) near: Option<&'a Near>,
}

/// An address and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) interface: String,
    /// With port 0.
    pub(crate) address: SocketAddr,
}

/// Reads as `eth0 10.1.2.3`.
impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.address.ip())
    }
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) best: Local,
    /// Only this host can be reached from it.
    pub(crate) lacks_carrier: bool,
    /// What else would do, the better first.
    pub(crate) others: Vec<Local>,
    /// Each other address with the reason why it was passed over.
    pub(crate) passed_over: String,
}

/// What can speak against an address, what counts for more first: how much it does, and its name. The address
/// with the least is the best.
type Rank = [(u8, &'static str); 7];

/// How the names of virtual interfaces begin.
const VIRTUAL: [&str; 18] = [
    "br-",
    "veth",
    "vxlan",
    "cbr",
    "cni",
    "flannel",
    "cali",
    "cilium",
    "kube",
    "lxcbr",
    "lxdbr",
    "ovn-",
    "podman",
    "tailscale",
    "tun",
    "tap",
    "weave",
    "wg",
];

/// Chooses an address.
///
/// # Errors
/// Each interface with the reason why it is none.
pub(crate) fn choose(interfaces: &[Interface], wanted: &Wanted<'_>) -> Result<Choice, Error> {
    let mut unusable = Vec::new();
    let mut usable = Vec::new();
    for interface in interfaces {
        if interface.addresses.is_empty() {
            let why = unusable_interface(interface, wanted).unwrap_or("without an address");
            unusable.push(format!("{} ({why})", interface.name));
        }
        for address in &interface.addresses {
            let local = Local {
                interface: interface.name.clone(),
                address: address.address,
            };
            let why = unusable_interface(interface, wanted);
            match why.or_else(|| unusable_address(address, wanted)) {
                Some(why) => unusable.push(format!("{local} ({why})")),
                None => usable.push((rank(interface, address, wanted), local)),
            }
        }
    }
    // What is equal stays in the system's order.
    usable.sort_by_key(|(rank, _)| *rank);
    let mut usable = usable.into_iter();
    let Some((best_rank, best)) = usable.next() else {
        return Err(Error::InvalidArgument(format!(
            "no network interface can carry the handshake of connections; there are: {}",
            unusable.join(", ")
        )));
    };
    let [(no_carrier, _), ..] = best_rank;
    let (reasons, others): (Vec<_>, Vec<_>) = usable
        .map(|(other, local)| (format!("{local} ({})", behind(&other, &best_rank)), local))
        .unzip();
    Ok(Choice {
        best,
        lacks_carrier: no_carrier > 0,
        others,
        passed_over: [reasons, unusable].concat().join(", "),
    })
}

/// Why an interface cannot be used.
fn unusable_interface(interface: &Interface, wanted: &Wanted<'_>) -> Option<&'static str> {
    if !wanted.filter.admits(&interface.name) {
        Some("left out by `interfaces`")
    } else if interface.state == State::Down {
        Some("down")
    } else {
        None
    }
}

/// Why an address cannot be used.
fn unusable_address(address: &Address, wanted: &Wanted<'_>) -> Option<&'static str> {
    match (wanted.family, address.address) {
        (Some(Family::V4), SocketAddr::V6(_)) | (Some(Family::V6), SocketAddr::V4(_)) => {
            Some("left out by the family of addresses, `socket_family` or the peer's")
        }
        // NCCL skips the IPv6 loop-back address: on many hosts it does not answer.
        (_, SocketAddr::V6(v6)) if v6.ip().is_loopback() => Some("IPv6's loop-back"),
        _ => None,
    }
}

/// What speaks against an address.
fn rank(interface: &Interface, address: &Address, wanted: &Wanted<'_>) -> Rank {
    let (name, filter, ip) = (&interface.name, wanted.filter, address.address.ip());
    let link_local = is_link_local(ip);
    let is_near = |near: &Near| near.is_in_network_of(name, ip, address.prefix);
    let virtuality = virtuality(name);
    [
        (u8::from(interface.state == State::NoCarrier), "no carrier"),
        // NCCL looks at `ib…` first, unless it is told what to look at. Interfaces of InfiniBand that are not
        // configured have link-local addresses.
        (
            u8::from(!filter.names_any() && (link_local || !name.starts_with("ib"))),
            "not InfiniBand",
        ),
        (
            u8::from(wanted.near.is_some_and(|near| !is_near(near))),
            "another network",
        ),
        (
            u8::from(filter.asks_for_some() && !filter.asks_for(name)),
            "only begins like the name that is asked for",
        ),
        // Of an interface that leads to nothing but this host and its guests.
        (u8::from(virtuality > 1), "virtual"),
        (u8::from(link_local), "link-local"),
        (virtuality, "virtual"),
    ]
}

/// Why an address comes after a better one.
fn behind(rank: &Rank, better: &Rank) -> &'static str {
    let difference = rank.iter().zip(better).find(|(one, other)| one != other);
    difference.map_or("not the first", |((_, objection), _)| objection)
}

/// Whether an interface is a virtual one, by its name, and how unlikely it is to lead to other hosts. NCCL's
/// order: what it has not heard of, then docker, lo and virbr.
fn virtuality(name: &str) -> u8 {
    if name.starts_with("virbr") {
        4
    } else if name == "lo" {
        3
    } else if name.starts_with("docker") {
        2
    } else {
        // Bridges, tunnels and ends of containers: hosts that have their address on one have it
        // nowhere else.
        u8::from(VIRTUAL.iter().any(|begin| name.starts_with(begin)))
    }
}

/// Whether an address is of no use beyond one link: fe80::/10, or 169.254/16, which a host gives itself
/// when there is nobody to give it one, and which management controllers use over USB.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
