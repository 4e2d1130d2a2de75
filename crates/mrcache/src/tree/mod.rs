//! A set of intervals that answers "which of them contains this one?" in O(log n) in every case.
//!
//! It is a B+ tree ordered by where the intervals begin. Each node keeps, for each child, how far the
//! intervals in the child reach. Of the intervals that begin no later than the wanted one, *any*
//! that reaches its end contains it. So in each node either a child that begins early enough as a
//! whole reaches far enough, and then the answer is surely in there; or only the one child in
//! which the beginnings straddle can have it. Either way one path is walked down, whatever
//! overlaps or nests.
//!
//! Nodes lie in arrays and are addressed by number. What the intervals mean, and who may use the
//! tree when, is not known here.

mod arena;
mod change;
mod node;
#[cfg(test)]
mod tests;

use arena::Arena;
use node::{Inner, Leaf, Summary};

/// A place that intervals begin and end at.
pub(crate) trait Place: Copy + Ord + Default {
    /// What must be kept of the last place of an interval if its first is known.
    type End: Copy + Default;

    fn end(self) -> Self::End;

    /// The last place of an interval that begins here.
    fn at(self, end: Self::End) -> Self;
}

impl Place for u64 {
    type End = Self;

    fn end(self) -> Self {
        self
    }

    fn at(self, end: Self) -> Self {
        end
    }
}

/// From its first to its last place, both included, so that the end of the address space is a
/// place like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Interval<P> {
    pub(crate) first: P,
    pub(crate) last: P,
}

impl<P: Ord> Interval<P> {
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.first <= other.first && self.last >= other.last
    }
}

/// Intervals over places `P` with values `T`. Nodes have up to `F` children, and `F` is at least 4.
/// No interval is in it twice.
pub(crate) struct Tree<P: Place, T, const F: usize = 32> {
    leaves: Arena<Leaf<P, T, F>>,
    inners: Arena<Inner<P, F>>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: u32,
    length: usize,
}

impl<P: Place, T, const F: usize> Tree<P, T, F> {
    pub(crate) fn new() -> Self {
        const { assert!(F >= 4, "a smaller node cannot be split") };
        let mut leaves = Arena::new();
        Self {
            root: leaves.take(),
            leaves,
            inners: Arena::new(),
            height: 0,
            length: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Heap bytes that the tree's nodes take.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes()
    }

    /// The value of an interval that contains `wanted`. O(log n).
    pub(crate) fn cover(&self, wanted: &Interval<P>) -> Option<&T> {
        let mut number = self.root;
        // Whether all in this node begins early enough, so that only the reach counts.
        let mut all_begun = false;
        for _ in 0..self.height {
            let node = self.inners.at(number);
            let begun = if all_begun {
                node.length()
            } else {
                node.begun(&wanted.first)
            };
            // The last child that has begun may hold intervals that have not. All before it have.
            let whole = if all_begun {
                begun
            } else {
                begun.checked_sub(1)?
            };
            let place = match node.reaching(whole, &wanted.last) {
                Some(place) => {
                    all_begun = true;
                    place
                }
                None if whole < begun && node.reach(whole) >= wanted.last => whole,
                None => return None,
            };
            number = node.child(place);
        }
        self.leaves.at(number).cover(wanted)
    }

    /// All intervals that share a place with `wanted`, in order. O(log n) for each that is found.
    pub(crate) fn overlapping(&self, wanted: &Interval<P>) -> Vec<Interval<P>> {
        let mut all = Vec::new();
        self.visit(self.root, self.height, wanted, &mut |found| {
            all.push(found);
        });
        all
    }

    fn visit(
        &self,
        number: u32,
        height: u32,
        wanted: &Interval<P>,
        found: &mut impl FnMut(Interval<P>),
    ) {
        if height == 0 {
            self.leaves.at(number).overlapping(wanted, found);
            return;
        }
        let node = self.inners.at(number);
        for place in 0..node.begun(&wanted.last) {
            if node.reach(place) >= wanted.first {
                self.visit(node.child(place), height - 1, wanted, found);
            }
        }
    }

    fn summary(&self, number: u32, height: u32) -> Option<Summary<P>> {
        match height {
            0 => self.leaves.at(number).summary(),
            _ => self.inners.at(number).summary(),
        }
    }
}
