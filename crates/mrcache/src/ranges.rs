//! [`Ranges`]: a set of ranges that finds one that covers another in O(log n), whatever overlaps.
//!
//! A tree in the order of the ranges' starts, in which each node knows how far its ranges reach. Of
//! the ranges that start no later than the wanted one, any that reaches its end covers it. So the first
//! node that starts early enough and reaches far enough has one, unless it is the last that starts
//! early enough: only that one may have ranges that start too late.
//!
//! An ordered map does not do: it finds what starts last before the wanted range, and the one that
//! covers it may start any number of others earlier. Maps by classes of length were tried, and took 4
//! times as long for a hit and 20 times for a miss with 100,000 nested ranges.

use std::mem;

/// A node with so many elements is split. In the tests trees are deep.
const FULL: usize = if cfg!(test) { 4 } else { 32 };

/// The first and the last byte of a range: the end of the address space would have no address.
pub(crate) type Span = (u64, u64);

/// Ranges with values `T`. No range is in it twice.
pub(crate) struct Ranges<T> {
    /// The first of the ranges.
    start: Span,
    /// The last byte of all.
    reach: u64,
    node: Node<T>,
}

/// Elements in order. A part of a tree has at least one.
enum Node<T> {
    Leaf(Vec<(Span, T)>),
    Inner(Vec<Ranges<T>>),
}

impl<T> Ranges<T> {
    pub(crate) const fn new() -> Self {
        Self {
            start: (0, 0),
            reach: 0,
            node: Node::Leaf(Vec::new()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.node {
            Node::Leaf(ranges) => ranges.is_empty(),
            Node::Inner(parts) => parts.is_empty(),
        }
    }

    /// The value of a range that covers `wanted`.
    pub(crate) fn covering(&self, wanted: Span) -> Option<&T> {
        let (first, last) = wanted;
        match &self.node {
            Node::Leaf(ranges) => {
                let mut started = ranges.iter().take_while(|(span, _)| span.0 <= first);
                let range = started.find(|(span, _)| span.1 >= last);
                range.map(|(_, value)| value)
            }
            Node::Inner(parts) => {
                let started = parts.iter().take_while(|part| part.start.0 <= first);
                let mut reaching = started.filter(|part| part.reach >= last);
                reaching.find_map(|part| part.covering(wanted))
            }
        }
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, span: Span, value: T) {
        if let Some(right) = self.insert_or_split(span, value) {
            let left = mem::replace(self, Self::new());
            *self = Self::of(Node::Inner(vec![left, right]));
        }
    }

    /// Gives the right half if this has become full.
    fn insert_or_split(&mut self, span: Span, value: T) -> Option<Self> {
        let right = match &mut self.node {
            Node::Leaf(ranges) => {
                let place = ranges.partition_point(|(other, _)| *other < span);
                // Many sets have one range: each DMA-BUF has a set of its own.
                ranges.reserve_exact(usize::from(ranges.is_empty()));
                ranges.insert(place, (span, value));
                split_if_full(ranges, place).map(Node::Leaf)
            }
            Node::Inner(parts) => {
                let mut place = part_of(parts, span);
                if let Some(right) = parts[place].insert_or_split(span, value) {
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
    pub(crate) fn remove(&mut self, span: Span) -> Option<T> {
        let value = match &mut self.node {
            Node::Leaf(ranges) => {
                let place = ranges.binary_search_by_key(&span, |(span, _)| *span);
                ranges.remove(place.ok()?).1
            }
            Node::Inner(parts) => {
                let place = part_of(parts, span);
                let value = parts[place].remove(span)?;
                if parts[place].is_empty() {
                    parts.remove(place);
                }
                value
            }
        };
        self.measure();
        Some(value)
    }

    /// Takes out all ranges that have a byte of `span`.
    pub(crate) fn take(&mut self, span: Span, taken: &mut Vec<T>) {
        let (first, last) = span;
        match &mut self.node {
            Node::Leaf(ranges) => {
                let met = ranges.extract_if(.., |(span, _)| span.0 <= last && span.1 >= first);
                taken.extend(met.map(|(_, value)| value));
            }
            Node::Inner(parts) => parts.retain_mut(|part| {
                if part.start.0 <= last && part.reach >= first {
                    part.take(span, taken);
                }
                !part.is_empty()
            }),
        }
        self.measure();
    }

    fn of(node: Node<T>) -> Self {
        let mut ranges = Self {
            node,
            ..Self::new()
        };
        ranges.measure();
        ranges
    }

    /// Finds out anew where the ranges start and end.
    fn measure(&mut self) {
        let bounds = match &self.node {
            Node::Leaf(ranges) => {
                let reach = ranges.iter().map(|(span, _)| span.1).max();
                ranges.first().map(|(span, _)| *span).zip(reach)
            }
            Node::Inner(parts) => {
                let reach = parts.iter().map(|part| part.reach).max();
                parts.first().map(|part| part.start).zip(reach)
            }
        };
        match bounds {
            Some(bounds) => (self.start, self.reach) = bounds,
            None => *self = Self::new(),
        }
    }
}

/// The place of the part that has `span`, or into which it belongs.
fn part_of<T>(parts: &[Ranges<T>], span: Span) -> usize {
    let started = parts.partition_point(|part| part.start <= span);
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
    use super::*;
    use crate::random::Random;

    /// Ranges of all sizes in a space in which they overlap and nest.
    fn span(random: &mut Random) -> Span {
        let first = random.below(1000);
        let most = 1 << random.below(11);
        (first, first + random.below(most))
    }

    #[test]
    fn ranges_agree_with_a_list() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut ranges, mut list) = (Ranges::new(), Vec::<Span>::new());
            for step in 0..4000 {
                // Grows, then shrinks until it is empty.
                let grows = step < 2000;
                match random.below(16) {
                    0 if step % 50 == 0 => {
                        let met = span(&mut random);
                        let mut taken = Vec::new();
                        ranges.take(met, &mut taken);
                        taken.sort_unstable();
                        let is_met = |own: &mut Span| own.0 <= met.1 && own.1 >= met.0;
                        let mut expected: Vec<_> = list.extract_if(.., is_met).collect();
                        expected.sort_unstable();
                        assert_eq!(taken, expected);
                    }
                    0..=10 if grows => {
                        let new = span(&mut random);
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
                let wanted = span(&mut random);
                let covers = |own: &Span| own.0 <= wanted.0 && own.1 >= wanted.1;
                match ranges.covering(wanted) {
                    Some(found) => assert!(list.contains(found) && covers(found)),
                    None => assert!(!list.iter().any(covers), "{wanted:?}"),
                }
                assert_eq!(ranges.is_empty(), list.is_empty());
            }
            assert!(list.is_empty(), "all were taken out again");
        }
    }

    #[test]
    fn the_tree_is_as_deep_as_a_logarithm() {
        for step in [1, 7, 999] {
            let mut ranges = Ranges::new();
            for place in 0..1000 {
                let first = place * step % 1000;
                ranges.insert((first, 5000 - first), ());
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
