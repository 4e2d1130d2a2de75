//! The tree against a list that is searched from end to end.
#![allow(clippy::unwrap_used)]

use super::{Interval, Tree};
use crate::random::Random;

struct Pair<const F: usize> {
    tree: Tree<u64, u64, F>,
    list: Vec<(Interval<u64>, u64)>,
}

impl<const F: usize> Pair<F> {
    fn check_query(&self, wanted: Interval<u64>) {
        let covers = |interval: &Interval<u64>| interval.contains(&wanted);
        match self.tree.cover(&wanted) {
            Some(value) => {
                let (interval, _) = self.list.iter().find(|(_, own)| own == value).unwrap();
                assert!(covers(interval), "{interval:?} does not cover {wanted:?}");
            }
            None => assert!(
                !self.list.iter().any(|(interval, _)| covers(interval)),
                "a cover of {wanted:?} was missed"
            ),
        }
    }

    fn check_overlaps(&self, wanted: Interval<u64>) {
        let mut expected: Vec<_> = self
            .list
            .iter()
            .map(|(interval, _)| *interval)
            .filter(|own| own.first <= wanted.last && own.last >= wanted.first)
            .collect();
        expected.sort();
        assert_eq!(self.tree.overlapping(&wanted), expected);
    }
}

fn play<const F: usize>(seed: u64, steps: u64, places: u64, most: usize) {
    let mut random = Random::new(seed);
    let mut pair = Pair::<F> {
        tree: Tree::new(),
        list: Vec::new(),
    };
    let interval = |random: &mut Random| {
        let first = random.below(places);
        let length = match random.below(4) {
            0 => random.below(places),
            _ => random.below(4),
        };
        Interval {
            first,
            last: first + length,
        }
    };
    let mut growing = true;
    for step in 0..steps {
        growing = match pair.list.len() {
            0 => true,
            length if length >= most => false,
            _ => growing,
        };
        let change = interval(&mut random);
        if random.below(8) < if growing { 6 } else { 2 } {
            if !pair.list.iter().any(|(own, _)| *own == change) {
                pair.tree.insert(change, step);
                pair.list.push((change, step));
            }
        } else if !pair.list.is_empty() {
            let victim = random.below(pair.list.len() as u64) as usize;
            let (interval, value) = pair.list.swap_remove(victim);
            assert_eq!(pair.tree.remove(&interval), Some(value));
            assert_eq!(pair.tree.remove(&interval), None);
        }
        assert_eq!(pair.tree.is_empty(), pair.list.is_empty());
        pair.check_query(interval(&mut random));
        if step % 16 == 0 {
            pair.check_overlaps(interval(&mut random));
        }
    }
}

#[test]
fn small_nodes_agree_with_the_list() {
    for seed in 0..8 {
        play::<4>(seed, 20_000, 200, 120);
        play::<5>(seed, 20_000, 12, 60);
    }
}

#[test]
fn the_products_nodes_agree_with_the_list() {
    play::<32>(1, 40_000, 100_000, 1500);
}

#[test]
fn an_emptied_tree_is_small_again() {
    let mut tree: Tree<u64, u64, 32> = Tree::new();
    let all: Vec<_> = (0..100_000)
        .map(|first| Interval {
            first,
            last: first + 10,
        })
        .collect();
    for round in 0..3 {
        for interval in &all {
            tree.insert(*interval, round);
        }
        assert!(tree.bytes() < all.len() * 64, "{} bytes", tree.bytes());
        for interval in &all {
            assert_eq!(tree.remove(interval), Some(round));
        }
        assert!(tree.is_empty());
        assert_eq!(tree.height, 0);
    }
}

#[test]
fn the_last_place_of_all_is_found() {
    let mut tree: Tree<u64, u64, 4> = Tree::new();
    let end = Interval {
        first: u64::MAX - 4095,
        last: u64::MAX,
    };
    tree.insert(end, 1);
    assert_eq!(
        tree.cover(&Interval {
            first: u64::MAX,
            last: u64::MAX
        }),
        Some(&1)
    );
}
