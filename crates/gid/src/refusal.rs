//! [`NoGid`]: why no entry was chosen, with all that was there.

use thiserror::Error;

use crate::netdevs::Netdevs;
use crate::policy::{Family, RoceVersion};
use crate::range::AddressRanges;
use crate::verdict::Verdict;

/// How many entries an error lists. Tables of 256 are common, and most of it repeats.
const LISTED: usize = 32;

/// No entry of the table can be used, or none is allowed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no usable GID: {cause}{}", list(verdicts))]
#[non_exhaustive]
pub struct NoGid {
    /// What stands in the way.
    pub cause: Cause,
    /// One verdict for each entry of the table, in the table's order.
    pub verdicts: Vec<Verdict>,
}

/// What stands in the way of a choice.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
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
    /// The entries that another policy could choose.
    pub fn candidates(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.is_candidate())
    }
}

/// The verdicts behind the cause, those on candidates first, because they tell what to ask for.
fn list(verdicts: &[Verdict]) -> String {
    let (candidates, others): (Vec<_>, Vec<_>) =
        verdicts.iter().partition(|verdict| verdict.is_candidate());
    let lines = candidates.into_iter().chain(others).take(LISTED);
    let lines: Vec<_> = lines.map(Verdict::to_string).collect();
    if lines.is_empty() {
        return "; the table is empty".to_owned();
    }
    let more = match verdicts.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("; the table holds: {}{more}", lines.join("; "))
}
