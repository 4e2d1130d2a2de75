//! An address, in whose network an interface is to be.

use std::net::{IpAddr, ToSocketAddrs};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Near {
    pub(super) ip: IpAddr,
    /// The only interface that counts: that of a link-local address, where it was named.
    pub(super) interface: Option<String>,
}

impl Near {
    /// That of a text as in `NCCL_COMM_ID`: `HOST:PORT`, or `[ADDRESS%INTERFACE]:PORT` with an IPv6
    /// address and perhaps an interface. Looks up the address of a host that is named, as NCCL does.
    pub(super) fn of_comm_id(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (ip, _) = rest.split_once(']')?;
            let (ip, interface) = match ip.split_once('%') {
                Some((ip, interface)) => (ip, Some(interface.to_owned())),
                None => (ip, None),
            };
            let ip = IpAddr::V6(ip.parse().ok()?);
            return Some(Self { ip, interface });
        }
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        let ip = match host.parse() {
            Ok(ip) => ip,
            Err(_) => (host, 0).to_socket_addrs().ok()?.next()?.ip(),
        };
        Some(Self {
            ip,
            interface: None,
        })
    }

    /// Whether it is in the network that `address` of `interface` is in, whose prefix has `prefix` bits,
    /// if that is known.
    pub(super) fn is_in_network_of(
        &self,
        interface: &str,
        address: IpAddr,
        prefix: Option<u8>,
    ) -> bool {
        let is_same_link = self.interface.as_ref().is_none_or(|own| own == interface);
        let Some(prefix) = prefix.filter(|_| is_same_link) else {
            return false;
        };
        // In each family, what the network's prefix leaves of the difference.
        match (self.ip, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                let difference = one.to_bits() ^ other.to_bits();
                difference.leading_zeros() >= u32::from(prefix)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                let difference = one.to_bits() ^ other.to_bits();
                difference.leading_zeros() >= u32::from(prefix)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nccl_takes_for_a_communicators_id() {
        let near = |ip: &str, interface: Option<&str>| {
            ip.parse().ok().map(|ip| Near {
                ip,
                interface: interface.map(str::to_owned),
            })
        };
        for (text, expected) in [
            ("10.1.2.3:4567", near("10.1.2.3", None)),
            ("10.1.2.3", near("10.1.2.3", None)),
            ("localhost:80", near("127.0.0.1", None)),
            ("[2001:db8::1]:80", near("2001:db8::1", None)),
            ("[fe80::1%eth0]:80", near("fe80::1", Some("eth0"))),
            ("[fe80::1", None),
            ("[10.1.2.3]:80", None),
            ("", None),
            (":80", None),
        ] {
            let found = Near::of_comm_id(text);
            // Where the name stands for ::1, too, that may come first.
            if text.starts_with("localhost") {
                assert!(found.is_some_and(|near| near.ip.is_loopback()));
            } else {
                assert_eq!(found, expected, "{text}");
            }
        }
    }
}
