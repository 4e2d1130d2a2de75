//! [`Verdict`]: what was thought of one entry, and why, in words.

use std::fmt;

use ibnet_verbs::{GidTableEntry as Entry, GidType, Netdev, NetdevKind};

use crate::class::AddressClass;
use crate::policy::{Family, RoceVersion};

/// What was thought of one entry, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The entry.
    pub entry: Entry,
    /// The judgement.
    pub kind: VerdictKind,
}

/// The judgement on one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerdictKind {
    /// This is the one.
    Chosen(Because),

    /// It could be used, but the chosen one is on an interface that is wanted more.
    OtherNetdev,
    /// It could be used, but it is on an interface of this kind, and the chosen one is not.
    SideNetdev(NetdevKind),
    /// It could be used, but its RoCE version, or a type that is not known, comes after that of the
    /// chosen one.
    OtherVersion(Option<RoceVersion>),
    /// It could be used, but the chosen one has the better kind of address.
    LesserAddress(AddressClass),
    /// It has the same address as the chosen one, of this index, on another interface.
    SameAddress(u32),
    /// It is as good as the chosen one, which has the lower index.
    HigherIndex,
    /// InfiniBand: another GID of the port than the chosen one.
    Alias,
    /// It does not meet this demand of the policy; or has not what it asks for, and the chosen one
    /// has.
    Excluded(Rule),
    /// Its network interface is down.
    Down,
    /// It cannot be used: this is what it holds.
    Unusable(AddressClass),
    /// It cannot be read, or belongs to another network namespace: see
    /// [`Entry::unreadable`](ibnet_verbs::GidTableEntry::unreadable).
    Unreadable,
}

/// Why an entry was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because {
    /// It is the best in the order of preference.
    Order,
    /// It is the best, although it has not what the policy asks for: no entry has all of it.
    Despite([Option<Rule>; 3]),
    /// The policy names its index.
    Index,
    /// InfiniBand: it is the port's own GID.
    Own,
    /// InfiniBand: it can be routed between subnets; this is its FLID.
    Routable(u16),
}

/// A request or demand of a [`Policy`](crate::Policy) that an entry may not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Another index is asked for.
    Index,
    /// The address lies in none of the ranges.
    Range,
    /// The address is not of this family.
    Family(Family),
    /// The type is not this version of RoCE.
    Version(RoceVersion),
    /// The interface is none of those asked for.
    Netdev,
}

impl Verdict {
    /// Whether this is the entry to use.
    pub fn is_chosen(&self) -> bool {
        matches!(self.kind, VerdictKind::Chosen(_))
    }

    /// Whether the entry could be used, were the policy another.
    pub fn is_candidate(&self) -> bool {
        !matches!(
            self.kind,
            VerdictKind::Down | VerdictKind::Unusable(_) | VerdictKind::Unreadable
        )
    }
}

impl fmt::Display for Verdict {
    /// One line: index, type, address and interface, then the judgement.
    ///
    /// ```text
    /// 3: RoCEv2 10.1.2.3 on eth2: chosen
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, kind } = self;
        write!(f, "{}: {}", entry.index, content(entry))?;
        match kind {
            VerdictKind::Chosen(Because::Order) => f.write_str("chosen"),
            VerdictKind::Chosen(Because::Despite(missed)) => {
                f.write_str("chosen")?;
                let mut word = "although";
                for rule in missed.iter().flatten() {
                    write!(f, " {word} {rule}")?;
                    word = "and";
                }
                Ok(())
            }
            VerdictKind::Chosen(Because::Index) => {
                f.write_str("chosen, as asked for (`index`)")?;
                match &entry.netdev {
                    _ if entry.unreadable.is_some() => f.write_str(" although it is unreadable"),
                    Some(netdev) if netdev.up == Some(false) => {
                        write!(f, " although {netdev} is down")
                    }
                    _ => Ok(()),
                }
            }
            VerdictKind::Chosen(Because::Own) => f.write_str("chosen, the port's own"),
            VerdictKind::Chosen(Because::Routable(flid)) => {
                write!(f, "chosen, routable between subnets (FLID {flid})")
            }
            VerdictKind::OtherNetdev => f.write_str("another interface is preferred"),
            VerdictKind::SideNetdev(NetdevKind::Vlan) => f.write_str("on a VLAN"),
            VerdictKind::SideNetdev(NetdevKind::BondMember) => f.write_str("on a member of a bond"),
            VerdictKind::SideNetdev(NetdevKind::Tunnel) => {
                f.write_str("on a tunnel, which does not carry RoCE")
            }
            VerdictKind::SideNetdev(_) => f.write_str("on another interface"),
            VerdictKind::OtherVersion(Some(RoceVersion::V1)) => f.write_str("older version"),
            VerdictKind::OtherVersion(Some(RoceVersion::V2)) => {
                f.write_str("newer version than preferred")
            }
            VerdictKind::OtherVersion(None) => f.write_str("type not known"),
            VerdictKind::LesserAddress(class) | VerdictKind::Unusable(class) => class.fmt(f),
            VerdictKind::SameAddress(index) => write!(f, "same address as {index}"),
            VerdictKind::HigherIndex => f.write_str("as good, higher index"),
            VerdictKind::Alias => f.write_str("another GID of the port"),
            VerdictKind::Excluded(rule) => rule.fmt(f),
            VerdictKind::Down => f.write_str("interface is down"),
            VerdictKind::Unreadable => {
                let reason = entry.unreadable.as_deref().unwrap_or_default();
                write!(f, "unreadable: {reason}")
            }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str("not the index asked for (`index`)"),
            Self::Range => f.write_str("outside the ranges asked for (`ranges`)"),
            Self::Family(family) => write!(f, "not {family}, as asked for (`family`)"),
            Self::Version(version) => {
                write!(f, "not version {version}, as asked for (`roce_version`)")
            }
            Self::Netdev => f.write_str("not on an interface asked for"),
        }
    }
}

/// An entry without its index: `RoCEv2 10.1.2.3 on eth2.100 (vlan, down): `. Nothing if nothing of
/// it is known.
fn content(entry: &Entry) -> String {
    let Entry { gid, netdev, .. } = entry;
    let is_unknown = gid.is_zero() && entry.gid_type.is_none() && netdev.is_none();
    if is_unknown && entry.unreadable.is_some() {
        return String::new();
    }
    let gid_type = match entry.gid_type {
        Some(GidType::InfiniBand) => "InfiniBand",
        Some(GidType::RoceV1) => "RoCEv1",
        Some(GidType::RoceV2) => "RoCEv2",
        Some(GidType::Unknown(raw)) => &format!("type-{raw}"),
        None => "type-unknown",
    };
    let address = match gid.to_ipv6().to_ipv4_mapped() {
        Some(v4) => v4.to_string(),
        None => gid.to_string(),
    };
    match netdev {
        Some(netdev) => format!("{gid_type} {address} on {netdev}{}: ", remarks(netdev)),
        None => format!("{gid_type} {address}: "),
    }
}

/// What is remarkable about an interface, in brackets. Nothing if nothing is.
fn remarks(netdev: &Netdev) -> String {
    let kind = match netdev.kind {
        Some(NetdevKind::Bond) => Some("bond"),
        Some(NetdevKind::BondMember) => Some("slave"),
        Some(NetdevKind::Vlan) => Some("vlan"),
        Some(NetdevKind::Tunnel) => Some("tunnel"),
        _ => None,
    };
    let down = (netdev.up == Some(false)).then_some("down");
    let words: Vec<_> = kind.into_iter().chain(down).collect();
    match words[..] {
        [] => String::new(),
        _ => format!(" ({})", words.join(", ")),
    }
}
