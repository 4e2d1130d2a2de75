//! [`Policy`]: what the user wants of the choice, and the small types it is made of.

use std::fmt;
use std::str::FromStr;

use ibnet_verbs::GidType;

use crate::class::AddressClass;
use crate::invalid::InvalidRule;
use crate::netdevs::Netdevs;
use crate::range::AddressRanges;

/// What the user wants of the choice. All but `flid_index` is for RoCE and ignored on InfiniBand, as
/// NCCL does.
///
/// ```
/// use ibnet_gid::{Policy, Wish};
///
/// let policy = Policy {
///     family: Wish::Require("AF_INET6".parse()?),
///     ranges: "fd00:10::/64, 10.0.0.0/8".parse()?,
///     ..Policy::default()
/// };
/// # assert_ne!(policy, Policy::default());
/// # Ok::<(), ibnet_gid::InvalidRule>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Use this entry and no other, whatever its kind. The other fields are then ignored. From a
    /// setting for several ports it comes by [`IndexRules::for_port`](crate::IndexRules::for_port).
    pub index: Option<u32>,
    /// Which addresses come first, or alone.
    pub family: Wish<Family>,
    /// In which of these ranges the address must lie. Empty for any.
    pub ranges: AddressRanges,
    /// Which version comes first, or alone.
    pub roce_version: Wish<RoceVersion>,
    /// Which network interfaces come first, or alone: the way to choose between a port's own
    /// network and its VLANs. `None` for any.
    pub netdevs: Option<Wish<Netdevs>>,
    /// On InfiniBand, the entry to use if its GID can be routed between subnets, that is, if its
    /// FLID is not zero: see [`flid`](crate::flid). None to use the port's own GID always.
    pub flid_index: Option<u8>,
}

impl Default for Policy {
    /// IPv4 and version 2 preferred, everything allowed, as in NCCL.
    fn default() -> Self {
        Self {
            index: None,
            family: Wish::Prefer(Family::Ipv4),
            ranges: AddressRanges::default(),
            roce_version: Wish::Prefer(RoceVersion::V2),
            netdevs: None,
            flid_index: Some(1),
        }
    }
}

/// A preference, a request, or a demand.
///
/// A preference has its place in the order of the [crate](crate). A request weighs more than all of
/// that order: what meets it is chosen, and only if nothing does, something else, with
/// [`Because::Despite`](crate::Because::Despite). Entries that do not meet a demand are never
/// chosen; if none does, that is an error which names the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wish<T> {
    /// This first, and others after it.
    Prefer(T),
    /// This before all others, which are better than none.
    Ask(T),
    /// This and no other.
    Require(T),
}

impl<T> Wish<T> {
    /// What is wished for, however strongly.
    pub fn wanted(&self) -> &T {
        match self {
            Self::Prefer(wanted) | Self::Ask(wanted) | Self::Require(wanted) => wanted,
        }
    }

    /// What is demanded, if it is.
    pub fn required(&self) -> Option<&T> {
        match self {
            Self::Prefer(_) | Self::Ask(_) => None,
            Self::Require(wanted) => Some(wanted),
        }
    }

    /// What is asked for, if it is.
    pub fn asked(&self) -> Option<&T> {
        match self {
            Self::Ask(wanted) => Some(wanted),
            Self::Prefer(_) | Self::Require(_) => None,
        }
    }
}

/// A family of addresses. Read from `AF_INET` or `AF_INET6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4, mapped into the GID.
    Ipv4,
    /// IPv6, link-local addresses included.
    Ipv6,
}

impl Family {
    /// Whether an address of this kind belongs to the family.
    pub fn includes(self, class: AddressClass) -> bool {
        match self {
            Self::Ipv4 => matches!(class, AddressClass::Ipv4 | AddressClass::Ipv4LinkLocal),
            Self::Ipv6 => matches!(class, AddressClass::Ipv6 | AddressClass::LinkLocal),
        }
    }

    /// The name in the C interface of sockets, as NCCL writes it.
    pub fn c_name(self) -> &'static str {
        match self {
            Self::Ipv4 => "AF_INET",
            Self::Ipv6 => "AF_INET6",
        }
    }
}

impl FromStr for Family {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim();
        [Self::Ipv4, Self::Ipv6]
            .into_iter()
            .find(|family| family.c_name() == text)
            .ok_or_else(|| InvalidRule::new(text, "AF_INET or AF_INET6"))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// A version of RoCE. Read from `1` or `2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoceVersion {
    /// Directly over Ethernet, within one broadcast domain.
    V1,
    /// Over UDP, routable.
    V2,
}

impl RoceVersion {
    /// The version of an entry's type on a port with Ethernet, where older drivers say "InfiniBand"
    /// for version 1. None if the type is not known.
    pub fn of(gid_type: Option<GidType>) -> Option<Self> {
        match gid_type {
            Some(GidType::InfiniBand | GidType::RoceV1) => Some(Self::V1),
            Some(GidType::RoceV2) => Some(Self::V2),
            Some(GidType::Unknown(_)) | None => None,
        }
    }
}

impl FromStr for RoceVersion {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        match text.trim() {
            "1" => Ok(Self::V1),
            "2" => Ok(Self::V2),
            other => Err(InvalidRule::new(other, "1 or 2")),
        }
    }
}

impl fmt::Display for RoceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "1",
            Self::V2 => "2",
        })
    }
}
