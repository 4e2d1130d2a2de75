//! [`NoGid`]: why no entry was chosen, with all that was there.

use ibnet_verbs::LinkLayer;
use thiserror::Error;

use crate::netdevs::Netdevs;
use crate::policy::{Family, Policy, RoceVersion, Wish};
use crate::range::AddressRanges;
use crate::select::{is_infiniband, unmet};
use crate::verdict::{Rule, Verdict};

/// How many entries an error lists. Tables of 256 are common, and most of it repeats.
const LISTED: usize = 32;

/// No entry of the table can be used, or none is allowed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no usable GID: {cause}{}", list(verdicts))]
#[non_exhaustive]
pub struct NoGid {
    /// The link layer of the port.
    pub link_layer: LinkLayer,
    /// What stands in the way.
    pub cause: Cause,
    /// One verdict for each entry of the table, in the table's order.
    pub verdicts: Vec<Verdict>,
}

/// What stands in the way of a choice.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The table has no entries: usually the network interface is down or has no address.
    #[error("the table is empty; has its network interface an address, and is it up?")]
    EmptyTable,

    /// The index asked for is not in the table, or empty.
    #[error("index {0} was asked for (`index`), but the table has no such entry")]
    NoSuchIndex(u32),

    /// The entry asked for holds nothing that packets can be sent from.
    #[error("index {0} was asked for (`index`), but cannot be used")]
    UnusableIndex(u32),

    /// Entries can be used, but no address lies in the ranges.
    #[error("no address lies in `ranges`={0}")]
    Ranges(AddressRanges),

    /// Entries can be used, but no address is of the family asked for.
    #[error("no address is {0}, as was asked for (`family`={name})", name = .0.c_name())]
    Family(Family),

    /// Entries can be used, but none has the version asked for.
    #[error("no entry has RoCE version {0}, as was asked for (`roce_version`)")]
    Version(RoceVersion),

    /// Entries can be used, but none is on an interface asked for.
    #[error("no entry is on {0}, as was asked for")]
    Netdevs(Netdevs),

    /// Entries can be used, but each misses one or another of the demands.
    #[error("no entry meets everything that was asked for")]
    Together,

    /// There is none that can be used, whatever the policy.
    #[error("no entry can be used; has the network interface an address, and is it up?")]
    Unusable,
}

impl NoGid {
    pub(crate) fn new(link_layer: LinkLayer, policy: &Policy, verdicts: Vec<Verdict>) -> Self {
        Self {
            link_layer,
            cause: cause(link_layer, policy, &verdicts),
            verdicts,
        }
    }

    /// The entries that another policy could choose.
    pub fn candidates(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.is_candidate())
    }
}

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
    if verdicts.is_empty() {
        return Cause::EmptyTable;
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

/// The verdicts behind the cause, those on candidates first, because they tell what to ask for.
fn list(verdicts: &[Verdict]) -> String {
    let (candidates, others): (Vec<_>, Vec<_>) =
        verdicts.iter().partition(|verdict| verdict.is_candidate());
    let lines = candidates.into_iter().chain(others).take(LISTED);
    let lines: Vec<_> = lines.map(Verdict::to_string).collect();
    if lines.is_empty() {
        return String::new();
    }
    let more = match verdicts.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("; the table holds: {}{more}", lines.join("; "))
}
