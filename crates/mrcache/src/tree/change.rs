//! Putting intervals in and taking them out.
//!
//! A full node is split in two. A node that shrinks is merged with a neighbour as soon as both
//! together fill no more than three quarters of one, so that neighbours are always more than three
//! eighths full on average: that bounds the height and the memory, and leaves room before the next
//! split.

use super::{Interval, Place, Tree};

impl<P: Place, T, const F: usize> Tree<P, T, F> {
    const MERGED: usize = F * 3 / 4;

    /// How much of a full node stays in it if something new belongs at `place`. Usually half. What
    /// is put in in ascending order leaves full nodes behind.
    fn kept(place: usize) -> usize {
        if place == F { F } else { F / 2 }
    }

    /// Puts an interval in that is not there yet. O(log n).
    pub(crate) fn insert(&mut self, interval: Interval<P>, value: T) {
        if let Some(upper) = self.insert_below(self.root, self.height, interval, value) {
            let lower = self.root;
            self.root = self.inners.take();
            for (place, child) in [lower, upper].into_iter().enumerate() {
                if let Some(summary) = self.summary(child, self.height) {
                    self.inners.at_mut(self.root).insert(place, child, summary);
                }
            }
            self.height += 1;
        }
        self.length += 1;
    }

    /// Gives the upper half of the node if it had to be split.
    fn insert_below(
        &mut self,
        number: u32,
        height: u32,
        interval: Interval<P>,
        value: T,
    ) -> Option<u32> {
        if height == 0 {
            return self.insert_in_leaf(number, interval, value);
        }
        let place = self.inners.at(number).place_of(&interval);
        let child = self.inners.at(number).child(place);
        let upper = self.insert_below(child, height - 1, interval, value);
        self.describe(number, place, height);
        let upper = upper?;
        let summary = self.summary(upper, height - 1)?;
        let node = self.inners.at_mut(number);
        if node.length() < F {
            node.insert(place + 1, upper, summary);
            return None;
        }
        let mut half = node.split(Self::kept(place + 1));
        match (place + 1).checked_sub(node.length()) {
            Some(place) if place > 0 || half.length() == 0 => half.insert(place, upper, summary),
            _ => node.insert(place + 1, upper, summary),
        }
        let sibling = self.inners.take();
        *self.inners.at_mut(sibling) = half;
        Some(sibling)
    }

    fn insert_in_leaf(&mut self, number: u32, interval: Interval<P>, value: T) -> Option<u32> {
        let leaf = self.leaves.at_mut(number);
        let place = match leaf.find(&interval) {
            Err(place) => place,
            Ok(place) => {
                debug_assert!(false, "an interval is put in twice");
                place
            }
        };
        if leaf.length() < F {
            leaf.insert(place, interval, value);
            return None;
        }
        let mut half = leaf.split(Self::kept(place));
        match place.checked_sub(leaf.length()) {
            Some(place) if place > 0 || half.length() == 0 => half.insert(place, interval, value),
            _ => leaf.insert(place, interval, value),
        }
        let sibling = self.leaves.take();
        *self.leaves.at_mut(sibling) = half;
        Some(sibling)
    }

    /// Takes an interval out. None if it is not there. O(log n).
    pub(crate) fn remove(&mut self, interval: &Interval<P>) -> Option<T> {
        let value = self.remove_below(self.root, self.height, interval)?;
        self.length -= 1;
        // A root with a single child is one level too many.
        while self.height > 0 && self.inners.at(self.root).length() == 1 {
            let old = self.inners.give_back(self.root);
            self.root = old.child(0);
            self.height -= 1;
        }
        Some(value)
    }

    fn remove_below(&mut self, number: u32, height: u32, interval: &Interval<P>) -> Option<T> {
        if height == 0 {
            let leaf = self.leaves.at_mut(number);
            let place = leaf.find(interval).ok()?;
            return leaf.remove(place);
        }
        let place = self.inners.at(number).place_of(interval);
        let child = self.inners.at(number).child(place);
        let value = self.remove_below(child, height - 1, interval)?;
        if self.inners.at(number).length() == 1 && self.child_length(child, height) == 0 {
            // No neighbour to merge it with: this node is empty, too, and its parent sees to it.
            self.inners.at_mut(number).remove(0);
            match height {
                1 => drop(self.leaves.give_back(child)),
                _ => drop(self.inners.give_back(child)),
            }
            return Some(value);
        }
        self.describe(number, place, height);
        if place + 1 < self.inners.at(number).length() {
            self.merge(number, place, height);
        }
        if let Some(before) = place.checked_sub(1)
            && place < self.inners.at(number).length()
        {
            self.merge(number, before, height);
        }
        Some(value)
    }

    /// How many places of a child of a node at `height` are taken.
    fn child_length(&self, child: u32, height: u32) -> usize {
        match height {
            1 => self.leaves.at(child).length(),
            _ => self.inners.at(child).length(),
        }
    }

    /// Brings what a node says of a child up to date. An empty child is left to the merging, which
    /// follows.
    fn describe(&mut self, number: u32, place: usize, height: u32) {
        let child = self.inners.at(number).child(place);
        if let Some(summary) = self.summary(child, height - 1) {
            self.inners.at_mut(number).describe(place, summary);
        }
    }

    /// Merges the children at `place` and behind it, if together they are small enough or one is
    /// empty.
    fn merge(&mut self, number: u32, place: usize, height: u32) {
        let node = self.inners.at(number);
        let (lower, upper) = (node.child(place), node.child(place + 1));
        let lengths = [lower, upper].map(|child| self.child_length(child, height));
        if lengths[0] + lengths[1] > Self::MERGED && !lengths.contains(&0) {
            return;
        }
        if height == 1 {
            let moved = self.leaves.give_back(upper);
            self.leaves.at_mut(lower).append(moved);
        } else {
            let moved = self.inners.give_back(upper);
            self.inners.at_mut(lower).append(&moved);
        }
        self.inners.at_mut(number).remove(place + 1);
        self.describe(number, place, height);
    }
}
