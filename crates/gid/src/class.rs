//! What kind of address a GID holds.

use std::fmt;

use verbs::Gid;

/// The kind of address in a GID, best first.
///
/// GIDs are IPv6 addresses (InfiniBand Architecture Specification, volume 1, section 4.1); RoCE
/// keeps IPv4 addresses in them as IPv4-mapped ones (annex A17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressClass {
    /// An IPv4-mapped unicast address, private ones included.
    Ipv4,
    /// A global or unique local IPv6 address.
    Ipv6,
    /// An IPv6 link-local address (`fe80::/10`).
    LinkLocal,
    /// All zero: an empty slot of the table.
    Empty,
    /// `fe80::` without an interface identifier: a port without an address.
    BarePrefix,
    /// A multicast, unspecified, loop-back or broadcast address, which cannot name one port.
    NotUnicast,
}

impl AddressClass {
    /// Whether a queue pair can use such an address at all.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Ipv4 | Self::Ipv6 | Self::LinkLocal)
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::LinkLocal => "link-local",
            Self::Empty => "empty slot",
            Self::BarePrefix => "link-local prefix without an interface",
            Self::NotUnicast => "not a unicast address",
        })
    }
}

/// Tells what kind of address `gid` holds.
pub fn classify(gid: &Gid) -> AddressClass {
    if gid.is_zero() {
        return AddressClass::Empty;
    }
    if let Some(v4) = gid.to_ipv6().to_ipv4_mapped() {
        let unusable =
            v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || v4.is_loopback();
        return if unusable {
            AddressClass::NotUnicast
        } else {
            AddressClass::Ipv4
        };
    }
    let v6 = gid.to_ipv6();
    if v6.is_multicast() || v6.is_loopback() {
        return AddressClass::NotUnicast;
    }
    if v6.is_unicast_link_local() {
        return if gid.interface_id() == 0 {
            AddressClass::BarePrefix
        } else {
            AddressClass::LinkLocal
        };
    }
    AddressClass::Ipv6
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn every_kind_is_recognised() {
        for (text, class) in [
            ("::", AddressClass::Empty),
            ("fe80::", AddressClass::BarePrefix),
            ("fe80::1", AddressClass::LinkLocal),
            ("febf::1", AddressClass::LinkLocal),
            ("fec0::1", AddressClass::Ipv6),
            ("fd00::1", AddressClass::Ipv6),
            ("2001:db8::1", AddressClass::Ipv6),
            ("ff02::1", AddressClass::NotUnicast),
            ("::1", AddressClass::NotUnicast),
            ("::ffff:10.0.0.1", AddressClass::Ipv4),
            ("::ffff:192.168.1.1", AddressClass::Ipv4),
            ("::ffff:0.0.0.0", AddressClass::NotUnicast), // pitfall 30
            ("::ffff:224.0.0.1", AddressClass::NotUnicast), // pitfall 30
            ("::ffff:255.255.255.255", AddressClass::NotUnicast),
        ] {
            let gid = Gid(text.parse::<Ipv6Addr>().unwrap().octets());
            assert_eq!(classify(&gid), class, "{text}");
        }
    }
}
