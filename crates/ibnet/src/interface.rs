//! Which local address carries the handshake.
//!
//! The choice is pure; [`local_addresses`] reads what the system has.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::error::Error;
use crate::name_list::{InvalidList, NameList};

/// Which network interfaces to use, in NCCL's grammar for `NCCL_SOCKET_IFNAME`:
/// `[^][=]prefix,…`.
///
/// Without a filter, interfaces that begin with `ib` come first, and those that begin with `lo` or
/// `docker` are used only when there is nothing else.
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

/// An address of a local interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    pub(crate) interface: String,
    /// With port 0.
    pub(crate) address: SocketAddr,
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

    fn names_any(&self) -> bool {
        !self.names.is_empty()
    }

    fn admits(&self, interface: &str) -> bool {
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

/// The addresses of all interfaces that are up.
pub(crate) fn local_addresses() -> Result<Vec<LocalAddress>, Error> {
    use nix::net::if_::InterfaceFlags;
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|errno| Error::system("listing the network interfaces", errno))?;
    Ok(all
        .filter(|entry| entry.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|entry| {
            let storage = entry.address?;
            let address = if let Some(v4) = storage.as_sockaddr_in() {
                SocketAddr::new(IpAddr::V4(v4.ip()), 0)
            } else {
                let v6 = storage.as_sockaddr_in6()?;
                SocketAddr::V6(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id()))
            };
            Some(LocalAddress {
                interface: entry.interface_name,
                address,
            })
        })
        .collect())
}

/// The length in bits of the network's prefix of the address in `gid`, if it is an address of
/// this network namespace.
pub(crate) fn prefix_length(gid: &verbs::Gid) -> Option<u8> {
    let v6 = gid.to_ipv6();
    let wanted = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    let mask = all.find_map(|entry| {
        let own = entry.address.as_ref().and_then(ip_of)?;
        (own == wanted).then_some(entry.netmask)
    })??;
    match ip_of(&mask)? {
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

/// The address to listen on.
///
/// # Errors
/// A line that says what was wanted and what there is.
pub(crate) fn choose<'a>(
    addresses: &'a [LocalAddress],
    filter: &InterfaceFilter,
    family: Option<Family>,
) -> Result<&'a LocalAddress, Error> {
    let usable = |candidate: &&LocalAddress| match (family, candidate.address) {
        (Some(Family::V4), SocketAddr::V6(_)) | (Some(Family::V6), SocketAddr::V4(_)) => false,
        // NCCL skips the IPv6 loop-back address: on many hosts it does not answer.
        (_, SocketAddr::V6(v6)) => !v6.ip().is_loopback(),
        _ => true,
    };
    let is_last_resort = |name: &str| name.starts_with("lo") || name.starts_with("docker");
    let best = if filter.names_any() {
        addresses
            .iter()
            .filter(usable)
            .filter(|candidate| filter.admits(&candidate.interface))
            .min_by_key(|candidate| {
                // Who only says what is not wanted does not ask for these.
                let is_unasked = filter.exclude && is_last_resort(&candidate.interface);
                (is_unasked, is_link_local(candidate))
            })
    } else {
        addresses.iter().filter(usable).min_by_key(|candidate| {
            (
                is_last_resort(&candidate.interface),
                !candidate.interface.starts_with("ib"),
                is_link_local(candidate),
            )
        })
    };
    best.ok_or_else(|| {
        let there: Vec<String> = addresses
            .iter()
            .map(|candidate| format!("{} {}", candidate.interface, candidate.address.ip()))
            .collect();
        Error::InvalidArgument(format!(
            "no network interface fits NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY; there are: {}",
            there.join(", ")
        ))
    })
}

fn is_link_local(candidate: &LocalAddress) -> bool {
    matches!(candidate.address.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn addresses() -> Vec<LocalAddress> {
        [
            ("lo", "127.0.0.1:0"),
            ("docker0", "172.17.0.1:0"),
            ("lo", "[::1]:0"),
            ("eth0", "[fe80::1%2]:0"),
            ("eth0", "10.0.0.5:0"),
            ("eth1", "192.168.0.5:0"),
            ("eth1", "[2001:db8::5]:0"),
        ]
        .map(|(interface, address)| LocalAddress {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
        })
        .to_vec()
    }

    #[test]
    fn interfaces_of_infiniband_come_first_as_with_nccl() {
        let mut all = addresses();
        let ib0 = LocalAddress {
            interface: "ib0".to_owned(),
            address: "10.9.0.5:0".parse().unwrap(),
        };
        all.push(ib0.clone());
        let without = InterfaceFilter::default();
        assert_eq!(*choose(&all, &without, None).unwrap(), ib0);
        let named = InterfaceFilter::parse("eth1").unwrap();
        assert_eq!(choose(&all, &named, None).unwrap().interface, "eth1");
    }

    #[test]
    fn the_choice() {
        let all = addresses();
        for (filter, family, expected) in [
            ("", None, "10.0.0.5"),
            ("", Some(Family::V6), "2001:db8::5"),
            ("eth1", None, "192.168.0.5"),
            ("^eth0,docker,lo", None, "192.168.0.5"),
            ("^docker", None, "10.0.0.5"),
            ("^eth", None, "127.0.0.1"),
            ("lo", None, "127.0.0.1"),
            ("docker", None, "172.17.0.1"),
            ("=eth0", Some(Family::V6), "fe80::1"),
        ] {
            let chosen = choose(&all, &InterfaceFilter::parse(filter).unwrap(), family).unwrap();
            assert_eq!(
                chosen.address.ip().to_string(),
                expected,
                "{filter:?} {family:?}"
            );
        }
    }

    #[test]
    fn loop_back_serves_when_there_is_nothing_else() {
        let all = &addresses()[..2];
        let chosen = choose(all, &InterfaceFilter::default(), None).unwrap();
        assert_eq!(chosen.interface, "lo");
    }

    #[test]
    fn a_filter_without_a_match_lists_what_there_is() {
        let error =
            choose(&addresses(), &InterfaceFilter::parse("ib0").unwrap(), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("eth0 10.0.0.5") && text.contains("NCCL_SOCKET_IFNAME"),
            "{text}"
        );
    }

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
        let gid = verbs::Gid::from(loop_back.to_ipv6_mapped());
        assert_eq!(prefix_length(&gid), Some(8));
        let foreign = "2001:db8::1234:5678".parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(prefix_length(&verbs::Gid::from(foreign)), None);
    }

    #[test]
    fn the_system_has_interfaces() {
        let all = local_addresses().unwrap();
        assert!(
            all.iter().any(|local| local.address.ip().is_loopback()),
            "{all:?}"
        );
    }
}
