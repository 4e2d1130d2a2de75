//! [`Gid`] and [`GidTableEntry`]: the global addresses of ports.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ibverbs_sys::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, ibv_gid, ibv_gid_entry,
};

use crate::c_enum::open_enum;
use crate::netdev::Netdev;

/// A global identifier: 128 bits, in network byte order (`union ibv_gid`).
///
/// On InfiniBand it is a subnet prefix and a port GUID. With RoCE it is an IPv6 address, or an
/// IPv4 address mapped into one. It is printed like an IPv6 address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The upper half, in host byte order.
    pub const fn subnet_prefix(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The lower half, in host byte order: on InfiniBand the GUID of the port.
    pub const fn interface_id(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Whether all bits are zero, which marks an empty table entry.
    pub const fn is_zero(&self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// The same bits as an IPv6 address.
    pub const fn to_ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0))
    }

    /// The IPv4 address in a GID of the form `::ffff:a.b.c.d`, if it is the address of a host.
    ///
    /// Mapped addresses that no host can have are not: the unspecified address 0.0.0.0 (and the
    /// rest of 0.0.0.0/8), multicast, and the broadcast address.
    pub fn ipv4_mapped(&self) -> Option<Ipv4Addr> {
        let address = self.to_ipv6().to_ipv4_mapped()?;
        let of_a_host =
            address.octets()[0] != 0 && !address.is_multicast() && !address.is_broadcast();
        of_a_host.then_some(address)
    }

    pub(crate) fn to_raw(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }

    pub(crate) fn from_raw(raw: &ibv_gid) -> Self {
        // SAFETY: both views of the union cover all 16 bytes, and any bytes are a valid array.
        Self(unsafe { raw.raw })
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ipv6(), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// An entry of a port's GID table (`struct ibv_gid_entry`, ibv_query_gid_ex(3)) with everything that
/// a choice between entries needs: also its network interface, and also if it cannot be read.
///
/// Two readings of a table can be compared, to see whether it changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GidTableEntry {
    /// Its index in the port's table.
    pub index: u32,
    /// The address; all zero if it cannot be read.
    pub gid: Gid,
    /// By which protocol packets from this address travel. None if it cannot be told.
    pub gid_type: Option<GidType>,
    /// The network interface that the address belongs to. None on InfiniBand, or if it cannot be
    /// told.
    pub netdev: Option<Netdev>,
    /// Why the entry cannot be used from here, in words: it cannot be read, or its network
    /// interface is in another network namespace, or its address is on no interface of this one.
    pub unreadable: Option<String>,
}

impl GidTableEntry {
    /// An entry of which nothing could be read.
    pub fn unreadable(index: u32, reason: impl Into<String>) -> Self {
        Self {
            index,
            gid: Gid::default(),
            gid_type: None,
            netdev: None,
            unreadable: Some(reason.into()),
        }
    }

    pub(crate) fn from_raw(raw: &ibv_gid_entry) -> Self {
        let netdev = (raw.ndev_ifindex != 0).then_some(raw.ndev_ifindex);
        Self {
            index: raw.gid_index,
            gid: Gid::from_raw(&raw.gid),
            gid_type: Some(GidType::from_raw(raw.gid_type)),
            netdev: netdev.map(Netdev::numbered),
            unreadable: None,
        }
    }
}

open_enum! {
    /// By which protocol packets from a GID travel (`enum ibv_gid_type`).
    pub enum GidType(u32) {
        /// InfiniBand.
        InfiniBand = IBV_GID_TYPE_IB,
        /// RoCE version 1: directly over Ethernet, within one broadcast domain.
        RoceV1 = IBV_GID_TYPE_ROCE_V1,
        /// RoCE version 2: over UDP, routable.
        RoceV2 = IBV_GID_TYPE_ROCE_V2,
    }
}
