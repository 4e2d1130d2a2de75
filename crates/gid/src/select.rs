//! The choice itself: a table, a link layer and a policy in; an entry and the reasons out.

use std::fmt;

use thiserror::Error;
use verbs::{GidEntry, GidType, LinkLayer};

use crate::class::{AddressClass, classify};

/// What the user wants of the choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Use this entry of a RoCE port and no other (`NCCL_IB_GID_INDEX`). Ignored on InfiniBand, as
    /// NCCL does. `None` (the default) chooses by the order in the crate's documentation.
    pub index: Option<u32>,
}

/// The chosen entry, with what was thought of every other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The entry to use.
    pub entry: GidEntry,
    /// One verdict for each entry of the table, in the table's order.
    pub verdicts: Vec<Verdict>,
}

/// What was thought of one entry, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The entry.
    pub entry: GidEntry,
    /// The judgement.
    pub kind: VerdictKind,
}

/// The judgement on one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerdictKind {
    /// This is the one.
    Chosen,
    /// It could be used, but the chosen one has the newer RoCE version.
    OlderVersion,
    /// It could be used, but the chosen one has the better kind of address.
    LesserAddress,
    /// It is as good as the chosen one, which has the lower index.
    HigherIndex,
    /// It cannot be used: this is what it holds.
    Unusable(AddressClass),
    /// The policy names another index.
    NotAsked,
}

/// No entry of the table can be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no usable GID: {}", self.reason())]
pub struct NoGid {
    /// The link layer of the port.
    pub link_layer: LinkLayer,
    /// The index that the policy names, if it does.
    pub wanted: Option<u32>,
    /// One verdict for each entry of the table.
    pub verdicts: Vec<Verdict>,
}

impl NoGid {
    fn reason(&self) -> String {
        let table = list(&self.verdicts);
        match (self.wanted, self.verdicts.is_empty()) {
            (_, true) => {
                "the table is empty; has its network interface an address, and is it up?".to_owned()
            }
            (Some(index), false) => format!(
                "index {index} was asked for (NCCL_IB_GID_INDEX), but the table holds: {table}"
            ),
            (None, false) => format!("the table holds: {table}"),
        }
    }
}

/// Chooses an entry of `entries`, the GID table of one port with link layer `link_layer`.
///
/// The result does not depend on the order of `entries`, only on their indices.
///
/// # Errors
/// [`NoGid`] when no entry can be used, with a verdict on each.
pub fn select(
    entries: &[GidEntry],
    link_layer: LinkLayer,
    policy: &Policy,
) -> Result<Selection, NoGid> {
    let wanted = policy.index.filter(|_| link_layer != LinkLayer::InfiniBand);
    let chosen = entries
        .iter()
        .filter(|entry| wanted.is_none_or(|index| index == entry.index))
        .filter(|entry| is_candidate(entry, link_layer))
        .min_by_key(|entry| (rank(entry, link_layer), entry.index))
        .copied();

    let verdicts = entries
        .iter()
        .map(|entry| Verdict {
            entry: *entry,
            kind: judge(entry, chosen.as_ref(), wanted, link_layer),
        })
        .collect();
    match chosen {
        Some(entry) => Ok(Selection { entry, verdicts }),
        None => Err(NoGid {
            link_layer,
            wanted,
            verdicts,
        }),
    }
}

/// On InfiniBand the subnet prefix may still be the default `fe80::`, and the GID is unicast by
/// construction; on Ethernet the address must be one that a peer can send to.
fn is_candidate(entry: &GidEntry, link_layer: LinkLayer) -> bool {
    match link_layer {
        LinkLayer::InfiniBand => !entry.gid.is_zero(),
        _ => classify(&entry.gid).is_usable(),
    }
}

/// The order of preference: less is better.
fn rank(entry: &GidEntry, link_layer: LinkLayer) -> (u8, AddressClass) {
    match link_layer {
        // Entry 0 is the port's own GID; the others are aliases.
        LinkLayer::InfiniBand => (0, AddressClass::LinkLocal),
        _ => (
            u8::from(entry.gid_type != GidType::RoceV2),
            classify(&entry.gid),
        ),
    }
}

fn judge(
    entry: &GidEntry,
    chosen: Option<&GidEntry>,
    wanted: Option<u32>,
    link_layer: LinkLayer,
) -> VerdictKind {
    if !is_candidate(entry, link_layer) {
        return VerdictKind::Unusable(classify(&entry.gid));
    }
    let Some(chosen) = chosen else {
        return VerdictKind::NotAsked;
    };
    if chosen.index == entry.index {
        return VerdictKind::Chosen;
    }
    if wanted.is_some() {
        return VerdictKind::NotAsked;
    }
    let (mine, theirs) = (rank(entry, link_layer), rank(chosen, link_layer));
    if mine.0 > theirs.0 {
        VerdictKind::OlderVersion
    } else if mine.1 > theirs.1 {
        VerdictKind::LesserAddress
    } else {
        VerdictKind::HigherIndex
    }
}

fn list(verdicts: &[Verdict]) -> String {
    verdicts
        .iter()
        .map(Verdict::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl fmt::Display for Selection {
    /// One line for each entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, verdict) in self.verdicts.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{verdict}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GidEntry {
            index,
            gid,
            gid_type,
            ..
        } = &self.entry;
        write!(f, "{index}: ")?;
        match gid_type {
            GidType::InfiniBand => f.write_str("InfiniBand ")?,
            GidType::RoceV1 => f.write_str("RoCEv1 ")?,
            GidType::RoceV2 => f.write_str("RoCEv2 ")?,
            GidType::Unknown(raw) => write!(f, "type {raw} ")?,
        }
        match gid.to_ipv6().to_ipv4_mapped() {
            Some(v4) => write!(f, "{v4}")?,
            None => write!(f, "{gid}")?,
        }
        match self.kind {
            VerdictKind::Chosen => f.write_str(": chosen"),
            VerdictKind::OlderVersion => f.write_str(": older RoCE version"),
            VerdictKind::LesserAddress => write!(f, ": {}", classify(gid)),
            VerdictKind::HigherIndex => f.write_str(": as good, higher index"),
            VerdictKind::Unusable(class) => write!(f, ": {class}"),
            VerdictKind::NotAsked => f.write_str(": not the index asked for"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv6Addr;

    use verbs::Gid;

    use super::*;

    fn entry(index: u32, address: &str, gid_type: GidType) -> GidEntry {
        let gid = Gid(address.parse::<Ipv6Addr>().unwrap().octets());
        GidEntry {
            index,
            gid,
            gid_type,
            netdev: None,
        }
    }

    fn usual_table() -> Vec<GidEntry> {
        vec![
            entry(0, "fe80::5054:ff:fe12:3456", GidType::RoceV1),
            entry(1, "fe80::5054:ff:fe12:3456", GidType::RoceV2),
            entry(2, "::ffff:10.1.2.3", GidType::RoceV1),
            entry(3, "::ffff:10.1.2.3", GidType::RoceV2),
            entry(4, "2001:db8::7", GidType::RoceV2),
            entry(5, "::ffff:10.1.9.9", GidType::RoceV2),
        ]
    }

    #[test]
    fn lowest_roce_v2_ipv4_wins_whatever_the_order() {
        let mut table = usual_table();
        for _ in 0..table.len() {
            table.rotate_left(1);
            let selection = select(&table, LinkLayer::Ethernet, &Policy::default()).unwrap();
            assert_eq!(selection.entry.index, 3);
        }
    }

    #[test]
    fn verdicts_say_why() {
        let selection = select(&usual_table(), LinkLayer::Ethernet, &Policy::default()).unwrap();
        let text = selection.to_string();
        for line in [
            "0: RoCEv1 fe80::5054:ff:fe12:3456: older RoCE version",
            "1: RoCEv2 fe80::5054:ff:fe12:3456: link-local",
            "3: RoCEv2 10.1.2.3: chosen",
            "4: RoCEv2 2001:db8::7: IPv6",
            "5: RoCEv2 10.1.9.9: as good, higher index",
        ] {
            assert!(
                text.lines().any(|candidate| candidate == line),
                "{line} in\n{text}"
            );
        }
    }

    #[test]
    fn ipv6_only_fabric_prefers_global_to_link_local() {
        let table = [
            entry(0, "fe80::1", GidType::RoceV2),
            entry(1, "2001:db8::1", GidType::RoceV1),
            entry(2, "fd00::1", GidType::RoceV2),
        ];
        let selection = select(&table, LinkLayer::Ethernet, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index, 2);
    }

    #[test]
    fn unknown_type_is_a_last_resort_not_garbage() {
        // Pitfall 23: a type that cannot be read must not pass for the wanted version.
        let table = [
            entry(0, "::ffff:10.0.0.1", GidType::Unknown(9)),
            entry(1, "fe80::1", GidType::RoceV2),
        ];
        let selection = select(&table, LinkLayer::Ethernet, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index, 1);
        let selection = select(&table[..1], LinkLayer::Ethernet, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index, 0);
    }

    #[test]
    fn first_candidate_is_judged_like_any_other() {
        // Pitfall 24: the entry at index 0 has no privilege.
        let table = [
            entry(0, "ff02::1", GidType::RoceV2),
            entry(1, "fe80::", GidType::RoceV2),
            entry(2, "::ffff:10.0.0.1", GidType::RoceV2),
        ];
        let selection = select(&table, LinkLayer::Ethernet, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index, 2);
        assert_eq!(
            selection.verdicts[0].kind,
            VerdictKind::Unusable(AddressClass::NotUnicast)
        );
        assert_eq!(
            selection.verdicts[1].kind,
            VerdictKind::Unusable(AddressClass::BarePrefix)
        );
    }

    #[test]
    fn a_named_index_is_used_or_refused() {
        let policy = Policy { index: Some(4) };
        let selection = select(&usual_table(), LinkLayer::Ethernet, &policy).unwrap();
        assert_eq!(selection.entry.index, 4);

        // Pitfall 27: an index outside the table is an error that shows the table.
        let policy = Policy { index: Some(77) };
        let error = select(&usual_table(), LinkLayer::Ethernet, &policy).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("index 77") && text.contains("10.1.2.3"),
            "{text}"
        );
    }

    #[test]
    fn infiniband_takes_the_ports_own_gid_and_ignores_the_index() {
        let table = [
            entry(0, "fe80::2:c903:1:1", GidType::InfiniBand),
            entry(1, "fec0::2:c903:1:1", GidType::InfiniBand),
        ];
        let policy = Policy { index: Some(1) };
        let selection = select(&table, LinkLayer::InfiniBand, &policy).unwrap();
        assert_eq!(selection.entry.index, 0);
    }

    #[test]
    fn an_empty_table_says_what_to_look_at() {
        let error = select(&[], LinkLayer::Ethernet, &Policy::default()).unwrap_err();
        assert!(error.to_string().contains("address"), "{error}");
    }
}
