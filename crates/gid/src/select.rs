//! The choice itself: a table, a link layer and a policy in; an entry and the reasons out.

use std::fmt;

use ibnet_verbs::{Gid, GidTableEntry as Entry, LinkLayer, NetdevKind};

use crate::class::{AddressClass, classify, flid};
use crate::netdevs::Netdevs;
use crate::policy::{Family, Policy, RoceVersion, Wish};
use crate::refusal::{Cause, NoGid};
use crate::verdict::{Because, Rule, Verdict, VerdictKind};

/// The chosen entry, with what was thought of every other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The entry to use.
    pub entry: Entry,
    /// One verdict for each entry of the table, in the table's order.
    pub verdicts: Vec<Verdict>,
}

impl Selection {
    /// Entries with another address that are as good as the chosen one, which only has the lowest
    /// index. In a text, such an entry may belong to another network namespace with an interface of
    /// the same name, and so may the chosen one: only the host knows which address is its own.
    pub fn ties(&self) -> impl Iterator<Item = &Entry> {
        let ties = self.verdicts.iter();
        ties.filter(|verdict| verdict.kind == VerdictKind::HigherIndex)
            .map(|verdict| &verdict.entry)
    }
}

impl fmt::Display for Selection {
    /// One line for each entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.verdicts.iter().map(Verdict::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Chooses an entry of `entries`, the GID table of one port with link layer `link_layer`.
///
/// The result does not depend on the order of `entries`, only on their indices. A port whose driver
/// names no link layer counts as InfiniBand.
///
/// # Errors
/// [`NoGid`] when no entry can be used or is allowed, with a verdict on each.
pub fn select(
    entries: &[Entry],
    link_layer: LinkLayer,
    policy: &Policy,
) -> Result<Selection, NoGid> {
    let verdicts = match policy.index {
        _ if is_infiniband(link_layer) => infiniband(entries, policy),
        Some(index) => forced(entries, index),
        None => by_order(entries, policy),
    };
    let verdicts: Vec<_> = entries
        .iter()
        .zip(verdicts)
        .map(|(entry, kind)| Verdict {
            entry: entry.clone(),
            kind,
        })
        .collect();
    let chosen = verdicts.iter().find(|verdict| verdict.is_chosen());
    match chosen {
        Some(verdict) => Ok(Selection {
            entry: verdict.entry.clone(),
            verdicts,
        }),
        None => Err(NoGid {
            cause: cause(link_layer, policy, &verdicts),
            verdicts,
        }),
    }
}

/// A driver that names no link layer is older than the others.
fn is_infiniband(link_layer: LinkLayer) -> bool {
    matches!(link_layer, LinkLayer::InfiniBand | LinkLayer::Unspecified)
}

/// On InfiniBand the port's own GID comes first in the table and the others are aliases. One of
/// them may be routable between subnets, which is then used.
///
/// Any unicast GID will do: the subnet prefix may still be the default `fe80::`. The network
/// interface does not matter, because IP over InfiniBand has no part in it.
fn infiniband(entries: &[Entry], policy: &Policy) -> Vec<VerdictKind> {
    let usable = || {
        entries
            .iter()
            .filter(|entry| skipped(entry, false).is_none())
    };
    let wanted = policy.flid_index.map(u32::from);
    let routable = usable().find(|entry| Some(entry.index) == wanted && flid(&entry.gid) != 0);
    let own = usable().min_by_key(|entry| tie(entry));
    let (chosen, because) = match (routable, own) {
        (Some(entry), _) => (routable, Because::Routable(flid(&entry.gid))),
        (None, Some(entry)) if entry.index == 0 => (own, Because::Own),
        // If the port's own GID cannot be read, an alias will do.
        (None, _) => (own, Because::Order),
    };
    let judge = |entry: &Entry| match skipped(entry, false) {
        Some(kind) => kind,
        None if is_same(entry, chosen) => VerdictKind::Chosen(because),
        None => VerdictKind::Alias,
    };
    entries.iter().map(judge).collect()
}

/// The entry of this index, if packets can be sent from its address at all. Its kind, its version
/// and the state of its interface are the user's business.
fn forced(entries: &[Entry], index: u32) -> Vec<VerdictKind> {
    let is_it = |entry: &&Entry| entry.index == index && classify(&entry.gid).is_usable();
    let chosen = entries.iter().filter(is_it).min_by_key(|entry| tie(entry));
    let judge = |entry: &Entry| match skipped(entry, true) {
        _ if is_same(entry, chosen) => VerdictKind::Chosen(Because::Index),
        Some(kind) => kind,
        None => VerdictKind::Excluded(Rule::Index),
    };
    entries.iter().map(judge).collect()
}

/// The best entry in the order of the crate's documentation.
fn by_order(entries: &[Entry], policy: &Policy) -> Vec<VerdictKind> {
    let fits: Vec<_> = entries.iter().map(|entry| fit(entry, policy)).collect();
    let ranked = fits.iter().zip(entries).filter_map(|(fit, entry)| {
        let rank = fit.as_ref().ok()?;
        Some((rank, entry))
    });
    let best = ranked.min_by_key(|(rank, entry)| (*rank, tie(entry)));
    let judge = |(fit, entry): (&Result<Rank, VerdictKind>, &Entry)| match (fit, best) {
        (Err(kind), _) => *kind,
        (Ok(_), Some((_, chosen))) if is_same(entry, Some(chosen)) => {
            VerdictKind::Chosen(match missed(entry, policy) {
                [None, None, None] => Because::Order,
                missed => Because::Despite(missed),
            })
        }
        (Ok(rank), Some((theirs, chosen))) => why_not(entry, rank, chosen, theirs, policy),
        // A rank that no rank is the least of: there is none.
        (Ok(_), None) => VerdictKind::HigherIndex,
    };
    fits.iter().zip(entries).map(judge).collect()
}

/// What decides between equals. No two entries of a port have the same index; if a caller's do, it
/// is still not their order that decides.
fn tie(entry: &Entry) -> (u32, Gid) {
    (entry.index, entry.gid)
}

/// Whether `entry` is the very one, not merely equal to it.
fn is_same(entry: &Entry, chosen: Option<&Entry>) -> bool {
    chosen.is_some_and(|chosen| std::ptr::eq(chosen, entry))
}

/// Why an entry cannot be used, whatever the policy. None if it can.
fn skipped(entry: &Entry, over_ethernet: bool) -> Option<VerdictKind> {
    if entry.unreadable.is_some() {
        return Some(VerdictKind::Unreadable);
    }
    let class = classify(&entry.gid);
    let is_down = entry.netdev.as_ref().and_then(|netdev| netdev.up) == Some(false);
    if !class.is_usable() {
        Some(VerdictKind::Unusable(class))
    } else if over_ethernet && is_down {
        Some(VerdictKind::Down)
    } else {
        None
    }
}

/// How good an entry is, or why it is none. Every entry is judged by itself alone.
fn fit(entry: &Entry, policy: &Policy) -> Result<Rank, VerdictKind> {
    let excluded = || unmet(entry, policy).next().map(VerdictKind::Excluded);
    match skipped(entry, true).or_else(excluded) {
        Some(kind) => Err(kind),
        None => Ok(Rank::of(entry, policy)),
    }
}

/// The demands of the policy that an entry does not meet.
fn unmet(entry: &Entry, policy: &Policy) -> impl Iterator<Item = Rule> {
    let range = !policy.ranges.allow(&entry.gid);
    let netdevs = policy.netdevs.as_ref().and_then(Wish::required);
    let (family, version) = (policy.family.required(), policy.roce_version.required());
    let others = broken(entry, family, version, netdevs);
    let range = range.then_some(Rule::Range);
    range.into_iter().chain(others.into_iter().flatten())
}

/// What the policy asks for, but does not demand, and an entry does not have.
fn missed(entry: &Entry, policy: &Policy) -> [Option<Rule>; 3] {
    let netdevs = policy.netdevs.as_ref().and_then(Wish::asked);
    let (family, version) = (policy.family.asked(), policy.roce_version.asked());
    broken(entry, family, version, netdevs)
}

fn broken(
    entry: &Entry,
    family: Option<&Family>,
    version: Option<&RoceVersion>,
    netdevs: Option<&Netdevs>,
) -> [Option<Rule>; 3] {
    let class = classify(&entry.gid);
    let own = RoceVersion::of(entry.gid_type);
    let netdev = entry.netdev.as_ref();
    let family = family.filter(|family| !family.includes(class));
    let version = version.filter(|version| own != Some(**version));
    let netdevs = netdevs.filter(|netdevs| netdevs.place(netdev).is_none());
    [
        family.map(|family| Rule::Family(*family)),
        version.map(|version| Rule::Version(*version)),
        netdevs.map(|_| Rule::Netdev),
    ]
}

/// The order of preference: less is better, and the upper fields weigh more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How much of what the policy asks for is missing.
    missed: usize,
    /// The place among the interfaces that the policy prefers.
    wanted_netdev: usize,
    /// RoCE does not go through tunnels: a last resort.
    is_tunnel: bool,
    version: u8,
    address: u8,
    /// A port's own network comes before others on top of it.
    netdev: u8,
}

impl Rank {
    fn of(entry: &Entry, policy: &Policy) -> Self {
        let netdev = entry.netdev.as_ref();
        let kind = netdev.and_then(|netdev| netdev.kind);
        let preferred = policy.roce_version.wanted();
        Self {
            missed: missed(entry, policy).iter().flatten().count(),
            wanted_netdev: policy.netdevs.as_ref().map_or(0, |wish| {
                let netdevs = wish.wanted();
                netdevs.place(netdev).unwrap_or(netdevs.len())
            }),
            is_tunnel: kind == Some(NetdevKind::Tunnel),
            version: match RoceVersion::of(entry.gid_type) {
                Some(version) if version == *preferred => 0,
                Some(_) => 1,
                None => 2,
            },
            address: address_rank(classify(&entry.gid), *policy.family.wanted()),
            netdev: match kind {
                Some(NetdevKind::Vlan) => 1,
                Some(NetdevKind::BondMember) => 2,
                _ => 0,
            },
        }
    }
}

/// The preferred family first, but link-local addresses last: they reach no other subnet.
fn address_rank(class: AddressClass, preferred: Family) -> u8 {
    match (preferred, class) {
        (Family::Ipv4, AddressClass::Ipv4) | (Family::Ipv6, AddressClass::Ipv6) => 0,
        (Family::Ipv4, AddressClass::Ipv6) | (Family::Ipv6, AddressClass::Ipv4) => 1,
        (_, AddressClass::Ipv4LinkLocal) => 2,
        _ => 3,
    }
}

/// In what a usable entry is behind the chosen one.
fn why_not(
    entry: &Entry,
    mine: &Rank,
    chosen: &Entry,
    theirs: &Rank,
    policy: &Policy,
) -> VerdictKind {
    if mine.missed != theirs.missed
        && let Some(rule) = missed(entry, policy).into_iter().flatten().next()
    {
        VerdictKind::Excluded(rule)
    } else if mine.wanted_netdev != theirs.wanted_netdev {
        VerdictKind::OtherNetdev
    } else if mine.is_tunnel != theirs.is_tunnel {
        VerdictKind::SideNetdev(NetdevKind::Tunnel)
    } else if mine.version != theirs.version {
        VerdictKind::OtherVersion(RoceVersion::of(entry.gid_type))
    } else if mine.address != theirs.address {
        VerdictKind::LesserAddress(classify(&entry.gid))
    } else if entry.gid == chosen.gid {
        VerdictKind::SameAddress(chosen.index)
    } else {
        match entry.netdev.as_ref().and_then(|netdev| netdev.kind) {
            Some(kind) if mine.netdev != theirs.netdev => VerdictKind::SideNetdev(kind),
            _ => VerdictKind::HigherIndex,
        }
    }
}

/// What stands in the way, if no verdict is that an entry is chosen.
fn cause(link_layer: LinkLayer, policy: &Policy, verdicts: &[Verdict]) -> Cause {
    if let Some(index) = policy.index
        && !is_infiniband(link_layer)
    {
        let is_there = verdicts.iter().any(|verdict| verdict.entry.index == index);
        return match is_there {
            true => Cause::UnusableIndex(index),
            false => Cause::NoSuchIndex(index),
        };
    }
    let mut candidates = verdicts.iter().filter(|verdict| verdict.is_candidate());
    let Some(first) = candidates.next() else {
        return Cause::Unusable;
    };
    // A demand that no candidate meets is to blame alone.
    let others: Vec<_> = candidates.collect();
    let to_blame = unmet(&first.entry, policy).find(|rule| {
        let breaks_it = |other: &&Verdict| unmet(&other.entry, policy).any(|own| own == *rule);
        others.iter().all(breaks_it)
    });
    match (to_blame, policy.netdevs.as_ref().and_then(Wish::required)) {
        (Some(Rule::Range), _) => Cause::Ranges(policy.ranges.clone()),
        (Some(Rule::Family(family)), _) => Cause::Family(family),
        (Some(Rule::Version(version)), _) => Cause::Version(version),
        (Some(Rule::Netdev), Some(netdevs)) => Cause::Netdevs(netdevs.clone()),
        _ => Cause::Together,
    }
}
