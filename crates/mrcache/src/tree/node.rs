//! The two kinds of nodes: sorted arrays of up to `F` places. They know nothing of their tree.

use super::{Interval, Place};

/// The bottom of a tree: intervals in order, each with its value.
pub(super) struct Leaf<P: Place, T, const F: usize> {
    length: usize,
    firsts: [P; F],
    ends: [P::End; F],
    values: [Option<T>; F],
}

/// A node above others: for each child, in order, its smallest interval and how far the intervals
/// in it reach.
pub(super) struct Inner<P, const F: usize> {
    length: usize,
    /// Where the child's smallest interval begins.
    firsts: [P; F],
    /// The largest end of any interval in the child.
    reaches: [P; F],
    children: [u32; F],
    /// Where the child's smallest interval ends. Only changes of the tree look at it.
    lasts: [P; F],
}

/// What a parent keeps of a child.
#[derive(Clone, Copy)]
pub(super) struct Summary<P> {
    pub(super) smallest: Interval<P>,
    pub(super) reach: P,
}

impl<P: Place, T, const F: usize> Default for Leaf<P, T, F> {
    fn default() -> Self {
        Self {
            length: 0,
            firsts: [P::default(); F],
            ends: [P::End::default(); F],
            values: [const { None }; F],
        }
    }
}

impl<P: Copy + Default, const F: usize> Default for Inner<P, F> {
    fn default() -> Self {
        Self {
            length: 0,
            firsts: [P::default(); F],
            reaches: [P::default(); F],
            children: [0; F],
            lasts: [P::default(); F],
        }
    }
}

/// How many of the sorted `places` are at most `bound`. Counts instead of searching: without
/// branches that could be mispredicted, and over memory that is fetched in order.
fn count_up_to<P: Ord>(places: &[P], bound: &P) -> usize {
    places.iter().map(|place| usize::from(place <= bound)).sum()
}

impl<P: Place, T, const F: usize> Leaf<P, T, F> {
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn interval(&self, place: usize) -> Interval<P> {
        Interval {
            first: self.firsts[place],
            last: self.last(place),
        }
    }

    fn last(&self, place: usize) -> P {
        self.firsts[place].at(self.ends[place])
    }

    pub(super) fn summary(&self) -> Option<Summary<P>> {
        let reach = (0..self.length).map(|place| self.last(place)).max()?;
        Some(Summary {
            smallest: self.interval(0),
            reach,
        })
    }

    /// A value whose interval contains `wanted`.
    pub(super) fn cover(&self, wanted: &Interval<P>) -> Option<&T> {
        // All places in one go, without branches: no load waits for another, nor for a guess.
        let mut found = F;
        for (place, (first, end)) in self.firsts.iter().zip(&self.ends).enumerate() {
            let (begun, reaches) = (*first <= wanted.first, first.at(*end) >= wanted.last);
            if begun && reaches && place < self.length {
                found = place;
            }
        }
        self.values.get(found)?.as_ref()
    }

    /// Calls `found` for each interval that shares a place with `wanted`.
    pub(super) fn overlapping(&self, wanted: &Interval<P>, found: &mut impl FnMut(Interval<P>)) {
        let begun = count_up_to(&self.firsts[..self.length], &wanted.last);
        for place in (0..begun).filter(|place| self.last(*place) >= wanted.first) {
            found(self.interval(place));
        }
    }

    /// Where `interval` is, or where it belongs.
    pub(super) fn find(&self, interval: &Interval<P>) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.length);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.interval(middle).cmp(interval) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Puts a value in. The leaf is not full.
    pub(super) fn insert(&mut self, place: usize, interval: Interval<P>, value: T) {
        self.firsts.copy_within(place..self.length, place + 1);
        self.ends.copy_within(place..self.length, place + 1);
        // The value beyond the length is none, and comes round to the place.
        self.values[place..=self.length].rotate_right(1);
        self.firsts[place] = interval.first;
        self.ends[place] = interval.last.end();
        self.values[place] = Some(value);
        self.length += 1;
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<T> {
        let value = self.values[place].take();
        self.firsts.copy_within(place + 1..self.length, place);
        self.ends.copy_within(place + 1..self.length, place);
        self.values[place..self.length].rotate_left(1);
        self.length -= 1;
        value
    }

    /// All but the first `kept`, which leave this one.
    pub(super) fn split(&mut self, kept: usize) -> Self {
        let moved = self.length - kept;
        let mut upper = Self::default();
        upper.firsts[..moved].copy_from_slice(&self.firsts[kept..self.length]);
        upper.ends[..moved].copy_from_slice(&self.ends[kept..self.length]);
        upper.values[..moved].swap_with_slice(&mut self.values[kept..self.length]);
        upper.length = moved;
        self.length = kept;
        upper
    }

    /// Takes in all of the leaf that follows. There is room.
    pub(super) fn append(&mut self, mut next: Self) {
        let end = self.length + next.length;
        self.firsts[self.length..end].copy_from_slice(&next.firsts[..next.length]);
        self.ends[self.length..end].copy_from_slice(&next.ends[..next.length]);
        self.values[self.length..end].swap_with_slice(&mut next.values[..next.length]);
        self.length = end;
    }
}

impl<P: Copy + Ord + Default, const F: usize> Inner<P, F> {
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn child(&self, place: usize) -> u32 {
        self.children[place]
    }

    pub(super) fn summary(&self) -> Option<Summary<P>> {
        let reach = self.reaches[..self.length].iter().copied().max()?;
        Some(Summary {
            smallest: self.smallest(0),
            reach,
        })
    }

    fn smallest(&self, place: usize) -> Interval<P> {
        Interval {
            first: self.firsts[place],
            last: self.lasts[place],
        }
    }

    /// How many children have an interval that begins at `place` or before.
    pub(super) fn begun(&self, place: &P) -> usize {
        count_up_to(&self.firsts[..self.length], place)
    }

    pub(super) fn reach(&self, place: usize) -> P {
        self.reaches[place]
    }

    /// The last of the first `count` children that reaches `end`.
    pub(super) fn reaching(&self, count: usize, end: &P) -> Option<usize> {
        self.reaches[..count].iter().rposition(|reach| reach >= end)
    }

    /// The child that `interval` is in, if it is in any.
    pub(super) fn place_of(&self, interval: &Interval<P>) -> usize {
        let (mut low, mut high) = (0, self.length);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.smallest(middle) <= *interval {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    pub(super) fn describe(&mut self, place: usize, summary: Summary<P>) {
        self.firsts[place] = summary.smallest.first;
        self.lasts[place] = summary.smallest.last;
        self.reaches[place] = summary.reach;
    }

    /// Puts a child in. The node is not full.
    pub(super) fn insert(&mut self, place: usize, child: u32, summary: Summary<P>) {
        self.firsts.copy_within(place..self.length, place + 1);
        self.lasts.copy_within(place..self.length, place + 1);
        self.reaches.copy_within(place..self.length, place + 1);
        self.children.copy_within(place..self.length, place + 1);
        self.children[place] = child;
        self.describe(place, summary);
        self.length += 1;
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.firsts.copy_within(place + 1..self.length, place);
        self.lasts.copy_within(place + 1..self.length, place);
        self.reaches.copy_within(place + 1..self.length, place);
        self.children.copy_within(place + 1..self.length, place);
        self.length -= 1;
    }

    /// All but the first `kept`, which leave this one.
    pub(super) fn split(&mut self, kept: usize) -> Self {
        let mut upper = Self::default();
        upper.copy_in(self, kept..self.length);
        self.length = kept;
        upper
    }

    /// Takes in all of the node that follows. There is room.
    pub(super) fn append(&mut self, next: &Self) {
        self.copy_in(next, 0..next.length);
    }

    fn copy_in(&mut self, other: &Self, range: std::ops::Range<usize>) {
        let end = self.length + range.len();
        let own = self.length..end;
        self.firsts[own.clone()].copy_from_slice(&other.firsts[range.clone()]);
        self.lasts[own.clone()].copy_from_slice(&other.lasts[range.clone()]);
        self.reaches[own.clone()].copy_from_slice(&other.reaches[range.clone()]);
        self.children[own].copy_from_slice(&other.children[range]);
        self.length = end;
    }
}
