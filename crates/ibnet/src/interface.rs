//! Which local address carries the handshake.
//!
//! The choice is pure; [`local_addresses`] reads what the system has.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::error::Error;

/// Which network interfaces to use, in NCCL's grammar for `NCCL_SOCKET_IFNAME`:
/// `[^][=]prefix,…`.
///
/// Without a filter, interfaces that begin with `lo` or `docker` are used only when there is
/// nothing else.
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
    /// Reads a filter. Every text is one.
    pub fn parse(text: &str) -> Self {
        let (exclude, text) = match text.trim().strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let (exact, text) = match text.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        Self {
            exclude,
            exact,
            names: names.collect(),
        }
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
            .min_by_key(|candidate| is_link_local(candidate))
    } else {
        addresses.iter().filter(usable).min_by_key(|candidate| {
            (
                is_last_resort(&candidate.interface),
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
    fn the_choice() {
        let all = addresses();
        for (filter, family, expected) in [
            ("", None, "10.0.0.5"),
            ("", Some(Family::V6), "2001:db8::5"),
            ("eth1", None, "192.168.0.5"),
            ("^eth0,docker,lo", None, "192.168.0.5"),
            ("lo", None, "127.0.0.1"),
            ("docker", None, "172.17.0.1"),
            ("=eth0", Some(Family::V6), "fe80::1"),
        ] {
            let chosen = choose(&all, &InterfaceFilter::parse(filter), family).unwrap();
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
        let error = choose(&addresses(), &InterfaceFilter::parse("ib0"), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("eth0 10.0.0.5") && text.contains("NCCL_SOCKET_IFNAME"),
            "{text}"
        );
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
