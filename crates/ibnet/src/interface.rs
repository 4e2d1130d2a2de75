//! Which local address carries the handshake.
//!
//! [`choice`] is pure; [`system`] reads what interfaces there are, and [`handshake`] says which of
//! them listeners and connectors use.
#![forbid(unsafe_code)]

mod choice;
mod handshake;
mod near;
mod system;

use std::net::IpAddr;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use choice::{Address, Interface, State, Wanted, choose};
pub(crate) use handshake::{HandshakeInterface, Route};

use crate::name_list::{InvalidList, NameList};

/// Which network interfaces to use, in NCCL's grammar for `NCCL_SOCKET_IFNAME`:
/// `[^][=]prefix,…`.
///
/// A name that is in the list comes before those that only begin like one. Without a list of what to
/// use, or of what not, interfaces that begin with `ib` come first, then those in the network of
/// [`Config::comm_id`](crate::Config::comm_id). In any case those without a carrier come last, and
/// before these virtual ones (bridges, tunnels, those of containers, `docker…`, `lo`, `virbr…`) and
/// link-local addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFilter {
    exclude: bool,
    exact: bool,
    names: Vec<String>,
}

/// An address family for the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl InterfaceFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A mark inside the list.
    pub fn parse(text: &str) -> Result<Self, InvalidList> {
        let NameList {
            exclude,
            exact,
            names,
        } = NameList::parse(text)?;
        Ok(Self {
            exclude,
            exact,
            names: names.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Whether it says anything.
    fn names_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether it says which interfaces to use, not only which not.
    fn asks_for_some(&self) -> bool {
        self.names_any() && !self.exclude
    }

    /// Whether it asks for this very name, not only for names that begin like it.
    fn asks_for(&self, interface: &str) -> bool {
        !self.exclude && self.names.iter().any(|name| name == interface)
    }

    fn admits(&self, interface: &str) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let listed = self.names.iter().any(|name| {
            if self.exact {
                interface == name
            } else {
                interface.starts_with(name.as_str())
            }
        });
        listed != self.exclude
    }
}

/// The length in bits of the network's prefix of the address in `gid`, if it is an address of
/// this network namespace.
pub(crate) fn prefix_length(gid: &ibnet_verbs::Gid) -> Option<u8> {
    let v6 = gid.to_ipv6();
    let wanted = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    let mask = all.find_map(|entry| {
        let own = entry.address.as_ref().and_then(ip_of)?;
        (own == wanted).then_some(entry.netmask)
    })??;
    mask_length(&mask)
}

/// The length in bits of the prefix that a network's mask stands for.
fn mask_length(mask: &nix::sys::socket::SockaddrStorage) -> Option<u8> {
    match ip_of(mask)? {
        IpAddr::V4(mask) => contiguous(mask.to_bits().into(), 32),
        IpAddr::V6(mask) => contiguous(mask.to_bits(), 128),
    }
}

/// The number of leading ones of a mask of `width` bits, if nothing but zeros follows.
fn contiguous(mask: u128, width: u32) -> Option<u8> {
    let aligned = mask.checked_shl(128 - width)?;
    let length = aligned.leading_ones();
    let is_mask = length == 128 || aligned << length == 0;
    is_mask.then(|| u8::try_from(length).ok()).flatten()
}

fn ip_of(storage: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(IpAddr::V4(v4.ip()));
    }
    storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prefixes_are_leading_ones() {
        for (mask, width, length) in [
            (0xffff_ff00, 32, Some(24)),
            (0xffff_ffff, 32, Some(32)),
            (0, 32, Some(0)),
            (0xff00_ff00, 32, None),
            (u128::MAX << 64, 128, Some(64)),
            (u128::MAX, 128, Some(128)),
            (1, 128, None),
        ] {
            assert_eq!(contiguous(mask, width), length, "{mask:x}");
        }
        let loop_back: std::net::Ipv4Addr = "127.0.0.1".parse().unwrap();
        let gid = ibnet_verbs::Gid::from(loop_back.to_ipv6_mapped());
        assert_eq!(prefix_length(&gid), Some(8));
        let foreign = "2001:db8::1234:5678".parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(prefix_length(&ibnet_verbs::Gid::from(foreign)), None);
    }
}
