//! [`Ranges`]: finds a range that covers another one in O(log n), however ranges overlap and nest.
//!
//! A tree in the order of the ranges' starts, in which each node knows how far its ranges reach. Of
//! the ranges that start no later than the wanted one, any that reaches its end covers it. So the first
//! node that starts early enough and reaches far enough has one, unless it is the last that starts
//! early enough: only that one may have ranges that start too late.
//!
//! Ordered maps of the standard library were tried, one for each layer of ranges that do not contain
//! each other. A hit with 100,000 nested ranges took 1.3 times as long, and a range with a key of its own
//! twice the memory.

use std::mem;

use crate::range::AddressRange;

/// A node with so many elements is split. In the tests trees are deep.
const FULL: usize = if cfg!(test) { 4 } else { 32 };

/// Ranges with values `T`. No range is in it twice.
pub(crate) struct Ranges<T> {
    /// The first of the ranges; any if there are none.
    first: AddressRange,
    /// The last byte of all.
    reach: usize,
    node: Node<T>,
}

/// Elements in order. A part of a tree has at least one.
enum Node<T> {
    Leaf(Vec<(AddressRange, T)>),
    Inner(Vec<Ranges<T>>),
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self::of(Node::Leaf(Vec::new()))
    }
}

impl<T> Ranges<T> {
    pub(crate) fn is_empty(&self) -> bool {
        match &self.node {
            Node::Leaf(ranges) => ranges.is_empty(),
            Node::Inner(parts) => parts.is_empty(),
        }
    }

    /// The value of a range that covers `wanted`.
    pub(crate) fn covering(&self, wanted: AddressRange) -> Option<&T> {
        match &self.node {
            Node::Leaf(ranges) => {
                let mut started = ranges
                    .iter()
                    .take_while(|(range, _)| range.start() <= wanted.start());
                let range = started.find(|(range, _)| range.last() >= wanted.last());
                range.map(|(_, value)| value)
            }
            Node::Inner(parts) => {
                let started = parts
                    .iter()
                    .take_while(|part| part.first.start() <= wanted.start());
                let mut reaching = started.filter(|part| part.reach >= wanted.last());
                reaching.find_map(|part| part.covering(wanted))
            }
        }
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, range: AddressRange, value: T) {
        if let Some(right) = self.insert_or_split(range, value) {
            let left = mem::take(self);
            *self = Self::of(Node::Inner(vec![left, right]));
        }
    }

    /// Gives the right half if this has become full.
    fn insert_or_split(&mut self, range: AddressRange, value: T) -> Option<Self> {
        let right = match &mut self.node {
            Node::Leaf(ranges) => {
                let place = ranges.partition_point(|(other, _)| *other < range);
                // Many sets have one range: each DMA-BUF has a set of its own.
                ranges.reserve_exact(usize::from(ranges.is_empty()));
                ranges.insert(place, (range, value));
                split_if_full(ranges, place).map(Node::Leaf)
            }
            Node::Inner(parts) => {
                let mut place = part_of(parts, range);
                if let Some(right) = parts[place].insert_or_split(range, value) {
                    place += 1;
                    parts.insert(place, right);
                }
                split_if_full(parts, place).map(Node::Inner)
            }
        };
        self.measure();
        right.map(Self::of)
    }

    /// Takes out exactly this range.
    pub(crate) fn remove(&mut self, range: AddressRange) -> Option<T> {
        let value = match &mut self.node {
            Node::Leaf(ranges) => {
                let place = ranges.binary_search_by_key(&range, |(range, _)| *range);
                ranges.remove(place.ok()?).1
            }
            Node::Inner(parts) => {
                let place = part_of(parts, range);
                let value = parts[place].remove(range)?;
                if parts[place].is_empty() {
                    parts.remove(place);
                }
                value
            }
        };
        self.measure();
        Some(value)
    }

    /// Takes out all ranges that have a byte of `met`.
    pub(crate) fn take(&mut self, met: AddressRange, taken: &mut Vec<T>) {
        match &mut self.node {
            Node::Leaf(ranges) => {
                let ranges = ranges.extract_if(.., |(range, _)| range.meets(met));
                taken.extend(ranges.map(|(_, value)| value));
            }
            Node::Inner(parts) => parts.retain_mut(|part| {
                if part.first.start() <= met.last() && part.reach >= met.start() {
                    part.take(met, taken);
                }
                !part.is_empty()
            }),
        }
        self.measure();
    }

    fn of(node: Node<T>) -> Self {
        let (first, reach) = (AddressRange::ALL, 0);
        let mut ranges = Self { first, reach, node };
        ranges.measure();
        ranges
    }

    /// Finds out anew where the ranges start and end.
    fn measure(&mut self) {
        let (first, reach) = match &self.node {
            Node::Leaf(ranges) => (
                ranges.first().map(|(range, _)| *range),
                ranges.iter().map(|(range, _)| range.last()).max(),
            ),
            Node::Inner(parts) => (
                parts.first().map(|part| part.first),
                parts.iter().map(|part| part.reach).max(),
            ),
        };
        self.first = first.unwrap_or(AddressRange::ALL);
        self.reach = reach.unwrap_or(0);
        // An inner node without parts becomes a leaf again.
        if first.is_none() {
            self.node = Node::Leaf(Vec::new());
        }
    }
}

/// The place of the part that has `range`, or into which it belongs.
fn part_of<T>(parts: &[Ranges<T>], range: AddressRange) -> usize {
    let started = parts.partition_point(|part| part.first <= range);
    started.saturating_sub(1)
}

/// The right half of elements of which the one at `place` is new, if they fill a node.
fn split_if_full<E>(elements: &mut Vec<E>, place: usize) -> Option<Vec<E>> {
    if elements.len() < FULL {
        return None;
    }
    // Ranges that come in order fill their nodes.
    let is_last = place + 1 == FULL;
    Some(elements.split_off(if is_last { place } else { FULL / 2 }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::Random;

    fn range(start: usize, length: usize) -> AddressRange {
        AddressRange::new(start, length).unwrap()
    }

    /// Ranges of all sizes in a space in which they overlap and nest.
    fn any(random: &mut Random) -> AddressRange {
        let most = 1 << random.below(11);
        let length = 1 + random.below(most) as usize;
        range(1 + random.below(1000) as usize, length)
    }

    #[test]
    fn ranges_agree_with_a_list() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut ranges, mut list) = (Ranges::default(), Vec::<AddressRange>::new());
            for step in 0..4000 {
                // Grows, then shrinks until it is empty.
                let grows = step < 2000;
                match random.below(16) {
                    0 if step % 50 == 0 => {
                        let met = any(&mut random);
                        let mut taken = Vec::new();
                        ranges.take(met, &mut taken);
                        taken.sort_unstable();
                        let is_met = |own: &mut AddressRange| own.meets(met);
                        let mut expected: Vec<_> = list.extract_if(.., is_met).collect();
                        expected.sort_unstable();
                        assert_eq!(taken, expected);
                    }
                    0..=10 if grows => {
                        let new = any(&mut random);
                        if !list.contains(&new) {
                            ranges.insert(new, new);
                            list.push(new);
                        }
                    }
                    _ if list.is_empty() => {}
                    _ => {
                        let place = random.below(list.len() as u64) as usize;
                        let old = list.swap_remove(place);
                        assert_eq!(ranges.remove(old), Some(old));
                        assert_eq!(ranges.remove(old), None);
                    }
                }
                let wanted = any(&mut random);
                match ranges.covering(wanted) {
                    Some(found) => assert!(list.contains(found) && found.covers(wanted)),
                    None => assert!(!list.iter().any(|own| own.covers(wanted)), "{wanted:?}"),
                }
                assert_eq!(ranges.is_empty(), list.is_empty());
            }
            assert!(list.is_empty(), "all were taken out again");
        }
    }

    #[test]
    fn the_tree_is_as_deep_as_a_logarithm() {
        for step in [1, 7, 999] {
            let mut ranges = Ranges::default();
            for place in 0..1000 {
                let start = 1 + place * step % 1000;
                ranges.insert(range(start, 5000 - start), ());
            }
            // Of 4 elements a node has at least 2, unless it is the last.
            assert!(depth(&ranges) <= 10, "{}", depth(&ranges));
        }
    }

    fn depth<T>(ranges: &Ranges<T>) -> usize {
        match &ranges.node {
            Node::Leaf(_) => 1,
            Node::Inner(parts) => 1 + parts.iter().map(depth).max().unwrap_or(0),
        }
    }
}
