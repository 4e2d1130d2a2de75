//! What kind of address a GID holds.

use std::fmt;

use ibnet_verbs::Gid;

/// The kind of address in a GID.
///
/// GIDs are IPv6 addresses (InfiniBand Architecture Specification, volume 1, section 4.1); RoCE
/// keeps IPv4 addresses in them as IPv4-mapped ones (annex A17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// An IPv4-mapped unicast address, private ones included.
    Ipv4,
    /// An IPv4-mapped address that a host gave itself (`169.254.0.0/16`).
    Ipv4LinkLocal,
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
        matches!(
            self,
            Self::Ipv4 | Self::Ipv4LinkLocal | Self::Ipv6 | Self::LinkLocal
        )
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv4LinkLocal => "IPv4 link-local",
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
    let v6 = gid.to_ipv6();
    if gid.is_zero() {
        AddressClass::Empty
    } else if v6.to_ipv4_mapped().is_some() {
        // `ipv4_mapped` leaves out what no host can have.
        match gid.ipv4_mapped() {
            None => AddressClass::NotUnicast,
            Some(v4) if v4.is_loopback() => AddressClass::NotUnicast,
            Some(v4) if v4.is_link_local() => AddressClass::Ipv4LinkLocal,
            Some(_) => AddressClass::Ipv4,
        }
    } else if v6.is_multicast() || v6.is_loopback() {
        AddressClass::NotUnicast
    } else if !v6.is_unicast_link_local() {
        AddressClass::Ipv6
    } else if gid.interface_id() == 0 {
        AddressClass::BarePrefix
    } else {
        AddressClass::LinkLocal
    }
}

/// The FLID in a GID of InfiniBand: 16 bits in bytes 4 and 5, which tell subnets apart where
/// routers connect them. 0 where there are none.
pub fn flid(gid: &Gid) -> u16 {
    // 16 bits of the upper half.
    (gid.subnet_prefix() >> 16) as u16
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
            ("::ffff:0.0.0.0", AddressClass::NotUnicast),
            ("::ffff:224.0.0.1", AddressClass::NotUnicast),
            ("::ffff:255.255.255.255", AddressClass::NotUnicast),
            ("::ffff:0.1.2.3", AddressClass::NotUnicast),
            ("::ffff:127.0.0.1", AddressClass::NotUnicast),
            ("::ffff:169.254.1.2", AddressClass::Ipv4LinkLocal),
            ("ff0e::ffff:10.0.0.1", AddressClass::NotUnicast),
            ("::ffff:172.16.0.1", AddressClass::Ipv4),
            ("::ffff:100.64.0.1", AddressClass::Ipv4),
        ] {
            let gid = Gid(text.parse::<Ipv6Addr>().unwrap().octets());
            assert_eq!(classify(&gid), class, "{text}");
        }
    }

    #[test]
    fn the_flid_is_in_bytes_4_and_5() {
        let gid = Gid::from("fec0:0:abcd:12::7".parse::<Ipv6Addr>().unwrap());
        assert_eq!(flid(&gid), 0xabcd);
        assert_eq!(&gid.0[4..6], &[0xab, 0xcd]);
    }
}
