//! [`GidSlot`]: one place in a port's GID table.

use std::net::{Ipv4Addr, Ipv6Addr};

use ibnet_verbs::{Gid, GidType};

/// The loop-back interface, whose index is 1 in every network namespace of Linux.
const LOOPBACK_INTERFACE: u32 = 1;

/// One place in a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidSlot {
    /// No address: ibv_query_gid(3) gives zeros, `ibv_query_gid_ex` gives `ENODATA`.
    Empty,
    /// An address.
    Entry {
        /// The address.
        gid: Gid,
        /// By which protocol packets from it travel.
        gid_type: GidType,
        /// The network interface that it belongs to, as in if_nametoindex(3).
        netdev: Option<u32>,
    },
    /// An entry that cannot be read, such as one of another network namespace. Every query of it
    /// fails with this errno, and so does the query of the whole table.
    Unreadable(i32),
}

impl GidSlot {
    /// RoCE version 1, of an IPv4 address, on the loop-back interface.
    pub fn roce_v1(address: Ipv4Addr) -> Self {
        Self::of_type(Gid::from(address.to_ipv6_mapped()), GidType::RoceV1)
    }

    /// RoCE version 2, of an IPv4 address, on the loop-back interface.
    pub fn roce_v2(address: Ipv4Addr) -> Self {
        Self::of_type(Gid::from(address.to_ipv6_mapped()), GidType::RoceV2)
    }

    /// RoCE version 2, of an IPv6 address, on the loop-back interface.
    pub fn roce_v2_ipv6(address: Ipv6Addr) -> Self {
        Self::of_type(Gid::from(address), GidType::RoceV2)
    }

    /// InfiniBand: a subnet prefix and a port GUID, both in host byte order.
    pub fn infiniband(subnet_prefix: u64, guid: u64) -> Self {
        let bits = u128::from(subnet_prefix) << 64 | u128::from(guid);
        Self::Entry {
            gid: Gid(bits.to_be_bytes()),
            gid_type: GidType::InfiniBand,
            netdev: None,
        }
    }

    /// Any address with any type, on the loop-back interface.
    pub fn of_type(gid: Gid, gid_type: GidType) -> Self {
        Self::Entry {
            gid,
            gid_type,
            netdev: Some(LOOPBACK_INTERFACE),
        }
    }

    /// The address, if there is one and it can be read.
    pub const fn gid(&self) -> Option<Gid> {
        match self {
            Self::Entry { gid, .. } => Some(*gid),
            Self::Empty | Self::Unreadable(_) => None,
        }
    }

    /// Whether it holds this address with this type.
    pub(crate) fn holds(&self, wanted: Gid, wanted_type: GidType) -> bool {
        matches!(self, Self::Entry { gid, gid_type, .. } if *gid == wanted && *gid_type == wanted_type)
    }
}
