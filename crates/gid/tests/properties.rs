//! What holds for every table and every policy, tried on many random ones.
#![allow(clippy::unwrap_used)]

mod common;

use ibnet_gid::{
    AddressClass, Entry, Family, NoGid, Policy, RoceVersion, Selection, Verdict, Wish, classify,
    select,
};
use ibnet_verbs::{LinkLayer, NetdevKind};

use common::{Random, entry, policy, table};

const RUNS: u64 = 4_000;

fn chosen(entries: &[Entry], policy: &Policy) -> Option<Entry> {
    let selection = select(entries, LinkLayer::Ethernet, policy);
    selection.ok().map(|selection| selection.entry)
}

fn verdicts(result: Result<Selection, NoGid>) -> Vec<Verdict> {
    match result {
        Ok(selection) => selection.verdicts,
        Err(error) => error.verdicts,
    }
}

fn is_skipped(entry: &Entry) -> bool {
    entry.unreadable.is_some()
        || !classify(&entry.gid).is_usable()
        || entry.netdev.as_ref().and_then(|netdev| netdev.up) == Some(false)
}

#[test]
fn the_choice_does_not_depend_on_the_order_of_the_entries() {
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (mut entries, mut policy) = (table(random), policy(random));
        if random.one_in(6) {
            policy.index = Some(random.below(12) as u32);
        }
        for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
            let sorted = |mut verdicts: Vec<Verdict>| {
                verdicts.sort_by_key(|verdict| verdict.entry.index);
                verdicts
            };
            let before = sorted(verdicts(select(&entries, link_layer, &policy)));
            random.shuffle(&mut entries);
            let after = sorted(verdicts(select(&entries, link_layer, &policy)));
            assert_eq!(before, after, "seed {seed}");
        }
    }
}

#[test]
fn every_entry_gets_one_verdict_and_at_most_one_is_chosen() {
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (entries, policy) = (table(random), policy(random));
        for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
            let result = select(&entries, link_layer, &policy);
            let expected = usize::from(result.is_ok());
            let verdicts = verdicts(result);
            let of = verdicts.iter().map(|verdict| &verdict.entry);
            assert!(of.eq(&entries), "seed {seed}");
            let number = verdicts
                .iter()
                .filter(|verdict| verdict.is_chosen())
                .count();
            assert_eq!(number, expected, "seed {seed}");
        }
    }
}

#[test]
fn an_entry_that_cannot_be_used_changes_nothing_else() {
    // Pitfall 26: one bad slot aborted the whole connection.
    let mut tried = 0;
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (entries, policy) = (table(random), policy(random));
        let without: Vec<_> = entries
            .iter()
            .filter(|entry| !is_skipped(entry))
            .cloned()
            .collect();
        tried += usize::from(without.len() < entries.len() && !without.is_empty());
        let all = verdicts(select(&entries, LinkLayer::Ethernet, &policy));
        let kept: Vec<_> = all
            .into_iter()
            .filter(|verdict| !is_skipped(&verdict.entry))
            .collect();
        let alone = verdicts(select(&without, LinkLayer::Ethernet, &policy));
        assert_eq!(kept, alone, "seed {seed}");
    }
    assert!(tried > RUNS as usize / 4, "{tried}");
}

#[test]
fn the_choice_stays_when_another_entry_goes() {
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (mut entries, policy) = (table(random), policy(random));
        let Some(best) = chosen(&entries, &policy) else {
            continue;
        };
        let others: Vec<_> = (0..entries.len())
            .filter(|&place| entries[place] != best)
            .collect();
        if !others.is_empty() {
            entries.remove(*random.pick(&others));
        }
        assert_eq!(chosen(&entries, &policy), Some(best), "seed {seed}");
    }
}

#[test]
fn a_new_entry_is_chosen_or_changes_nothing() {
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (mut entries, policy) = (table(random), policy(random));
        let before = chosen(&entries, &policy);
        let new = entry(random, 100);
        entries.push(new.clone());
        let after = chosen(&entries, &policy);
        assert!(after == before || after == Some(new), "seed {seed}");
    }
}

#[test]
fn a_preference_or_request_never_leaves_a_port_without_a_choice() {
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let entries = table(random);
        let asking = Policy {
            family: Wish::Ask(*random.pick(&[Family::Ipv4, Family::Ipv6])),
            roce_version: Wish::Ask(*random.pick(&[RoceVersion::V1, RoceVersion::V2])),
            netdevs: Some(Wish::Ask("none,eth2.100".parse().unwrap())),
            ..Policy::default()
        };
        let preferring = Policy {
            family: Wish::Prefer(*random.pick(&[Family::Ipv4, Family::Ipv6])),
            roce_version: Wish::Prefer(*random.pick(&[RoceVersion::V1, RoceVersion::V2])),
            netdevs: Some(Wish::Prefer("none,eth2.100".parse().unwrap())),
            ..Policy::default()
        };
        let usable = entries.iter().any(|entry| !is_skipped(entry));
        assert_eq!(
            chosen(&entries, &preferring).is_some(),
            usable,
            "seed {seed}"
        );
        assert_eq!(chosen(&entries, &asking).is_some(), usable, "seed {seed}");
        let default = Policy::default();
        assert_eq!(chosen(&entries, &default).is_some(), usable, "seed {seed}");
    }
}

#[test]
fn an_index_is_used_or_refused_and_nothing_else_is_chosen() {
    let (mut used, mut refused) = (0, 0);
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let entries = table(random);
        let index = random.below(12) as u32;
        let policy = Policy {
            index: Some(index),
            ..policy(random)
        };
        let of_index = entries.iter().find(|entry| entry.index == index);
        let usable = of_index.filter(|entry| classify(&entry.gid).is_usable());
        assert_eq!(chosen(&entries, &policy).as_ref(), usable, "seed {seed}");
        match usable {
            Some(_) => used += 1,
            None => refused += 1,
        }
    }
    assert!(used > 100 && refused > 100, "{used} {refused}");
}

/// What is kept if there is any of it.
type Step = Box<dyn Fn(&Entry) -> bool>;

/// The order of the crate's documentation, said in another way: of all entries, step by step only
/// the best are kept.
fn by_steps(entries: &[Entry], policy: &Policy) -> Option<Entry> {
    let kind = |entry: &Entry| entry.netdev.as_ref().and_then(|netdev| netdev.kind);
    let version = |entry: &Entry| RoceVersion::of(entry.gid_type);
    let name = |entry: &Entry| entry.netdev.as_ref().and_then(|netdev| netdev.name.clone());
    let mut left: Vec<Entry> = entries
        .iter()
        .filter(|entry| !is_skipped(entry))
        .cloned()
        .collect();

    left.retain(|entry| policy.ranges.allow(&entry.gid));
    if let Wish::Require(family) = policy.family {
        left.retain(|entry| {
            let is_v4 = entry.gid.to_ipv6().to_ipv4_mapped().is_some();
            is_v4 == (family == Family::Ipv4)
        });
    }
    if let Wish::Require(wanted) = policy.roce_version {
        left.retain(|entry| version(entry) == Some(wanted));
    }
    let mut steps: Vec<Step> = Vec::new();
    // First of all, as many as possible of what is asked for.
    let asked = policy.clone();
    let missed = move |entry: &Entry| {
        let is_v4 = entry.gid.to_ipv6().to_ipv4_mapped().is_some();
        let family = asked.family.asked();
        let other_family = family.is_some_and(|family| is_v4 != (*family == Family::Ipv4));
        let wanted = asked.roce_version.asked();
        let other_version = wanted.is_some_and(|wanted| version(entry) != Some(*wanted));
        let netdevs = asked.netdevs.as_ref().and_then(Wish::asked);
        let other_netdev = netdevs.is_some_and(|netdevs| {
            let names = netdevs.to_string();
            !name(entry).is_some_and(|name| names.split(',').any(|other| other == name))
        });
        u8::from(other_family) + u8::from(other_version) + u8::from(other_netdev)
    };
    let missed = std::rc::Rc::new(missed);
    for most in 0..3 {
        let missed = std::rc::Rc::clone(&missed);
        steps.push(Box::new(move |entry| missed(entry) <= most));
    }
    if let Some(wish) = &policy.netdevs {
        let names = wish.wanted().to_string();
        let names: Vec<_> = names.split(',').map(str::to_owned).collect();
        if wish.required().is_some() {
            left.retain(|entry| name(entry).is_some_and(|name| names.contains(&name)));
        }
        for wanted in names {
            steps.push(Box::new(move |entry| name(entry).as_ref() == Some(&wanted)));
        }
    }
    let preferred = *policy.roce_version.wanted();
    steps.push(Box::new(move |entry| {
        kind(entry) != Some(NetdevKind::Tunnel)
    }));
    steps.push(Box::new(move |entry| version(entry) == Some(preferred)));
    steps.push(Box::new(move |entry| version(entry).is_some()));
    use AddressClass::{Ipv4, Ipv4LinkLocal, Ipv6};
    let classes = match policy.family.wanted() {
        Family::Ipv4 => [Ipv4, Ipv6, Ipv4LinkLocal],
        Family::Ipv6 => [Ipv6, Ipv4, Ipv4LinkLocal],
    };
    for class in classes {
        steps.push(Box::new(move |entry| classify(&entry.gid) == class));
    }
    for lesser in [NetdevKind::BondMember, NetdevKind::Vlan] {
        steps.push(Box::new(move |entry| kind(entry) != Some(lesser)));
    }
    for step in steps {
        if left.iter().any(&step) {
            left.retain(&step);
        }
    }
    left.into_iter().min_by_key(|entry| entry.index)
}

#[test]
fn the_order_is_that_of_the_documentation() {
    let mut found = 0;
    for seed in 0..4 * RUNS {
        let random = &mut Random::new(seed);
        let (entries, policy) = (table(random), policy(random));
        let expected = by_steps(&entries, &policy);
        found += usize::from(expected.is_some());
        assert_eq!(
            chosen(&entries, &policy),
            expected,
            "seed {seed}: {entries:#?}\n{policy:#?}"
        );
    }
    assert!(found > RUNS as usize / 2, "{found}");
}

#[test]
fn an_error_lists_every_candidate() {
    let mut errors = 0;
    for seed in 0..RUNS {
        let random = &mut Random::new(seed);
        let (entries, policy) = (table(random), policy(random));
        let Err(error) = select(&entries, LinkLayer::Ethernet, &policy) else {
            continue;
        };
        let text = error.to_string();
        assert!(text.starts_with("no usable GID: "), "{text}");
        let usable = entries.iter().filter(|entry| !is_skipped(entry));
        assert!(error.candidates().map(|verdict| &verdict.entry).eq(usable));
        for verdict in error.candidates() {
            assert!(text.contains(&verdict.to_string()), "{text}");
            errors += 1;
        }
    }
    assert!(errors > 100, "{errors}");
}
