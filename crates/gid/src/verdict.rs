//! [`Verdict`]: what was thought of one entry, and why, in words.

use std::fmt;

use ibnet_verbs::NetdevKind;

use crate::Entry;
use crate::class::AddressClass;
use crate::policy::{Family, RoceVersion};
use crate::text::Content;

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
    /// It could be used, but the chosen one has the newer RoCE version.
    OlderVersion,
    /// It could be used, but the chosen one has the older RoCE version, which is preferred.
    NewerVersion,
    /// It could be used, but its type is not known, and that of the chosen one is.
    UnknownType,
    /// It could be used, but the chosen one has the better kind of address.
    LesserAddress(AddressClass),
    /// It has the same address as the chosen one, of this index, on another interface.
    SameAddress(u32),
    /// It is as good as the chosen one, which has the lower index.
    HigherIndex,

    /// InfiniBand: another GID of the port than its own.
    Alias,
    /// InfiniBand: the chosen one can be routed between subnets.
    LessRoutable,

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
        write!(f, "{}: ", self.entry.index)?;
        let content = Content(&self.entry).to_string();
        if !content.is_empty() {
            write!(f, "{content}: ")?;
        }
        self.judgement().fmt(f)
    }
}

/// The part of a [`Verdict`] behind the entry, in words.
pub(crate) struct Judgement<'a>(&'a Verdict);

impl Verdict {
    pub(crate) fn judgement(&self) -> Judgement<'_> {
        Judgement(self)
    }
}

impl fmt::Display for Judgement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { entry, kind } = self.0;
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
            VerdictKind::OlderVersion => f.write_str("older version"),
            VerdictKind::NewerVersion => f.write_str("newer version than preferred"),
            VerdictKind::UnknownType => f.write_str("type not known"),
            VerdictKind::LesserAddress(class) | VerdictKind::Unusable(class) => class.fmt(f),
            VerdictKind::SameAddress(index) => write!(f, "same address as {index}"),
            VerdictKind::HigherIndex => f.write_str("as good, higher index"),
            VerdictKind::Alias => f.write_str("another GID of the port"),
            VerdictKind::LessRoutable => f.write_str("not the routable one"),
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
