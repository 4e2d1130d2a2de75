//! Which announced buffer a message goes to.
//!
//! Groups are matched in the order of the ring; within the oldest one that still has free buffers
//! the tag decides, so the sender may post its messages in any order.

use crate::memory::cts_ring::CtsRing;
use crate::wire::cts::{CtsEntry, MAX_GROUP};

/// The sender's view of what has been announced and what of it is taken.
pub(crate) struct CtsQueue {
    ring: CtsRing,
    group: Group,
    /// Messages in a row for which the oldest group had no buffer.
    misses: u32,
}

/// So many misses are no coincidence any more: seconds of asking.
const MANY_MISSES: u32 = 1 << 20;

/// The oldest group that still has free buffers.
struct Group {
    /// Id of its first entry.
    first: u64,
    /// Number of its entries; 0 if it has not been seen yet.
    length: u8,
    /// Bit n: entry n is taken.
    taken: u8,
}

/// A free buffer for a message.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    /// Id of the entry.
    pub(crate) id: u64,
    /// Its position in the group.
    position: u8,
    pub(crate) entry: CtsEntry,
}

/// The receiver has announced something that cannot be.
#[derive(Debug)]
pub(crate) struct ImpossibleCts;

impl CtsQueue {
    /// Nothing is announced yet; the first entry will be `first_entry`.
    pub(crate) fn new(ring: CtsRing, first_entry: u64) -> Self {
        let group = Group {
            first: first_entry,
            length: 0,
            taken: 0,
        };
        Self {
            ring,
            group,
            misses: 0,
        }
    }

    /// The free buffer for `tag` in the oldest group, if it is announced.
    #[inline]
    pub(crate) fn find(&mut self, tag: u32) -> Result<Option<Match>, ImpossibleCts> {
        let mut first = None;
        if self.group.length == 0 {
            first = self.see_group()?;
            if first.is_none() {
                return Ok(None);
            }
        }
        for position in 0..self.group.length {
            if self.group.taken & (1 << position) != 0 {
                continue;
            }
            let id = self.group.first.wrapping_add(u64::from(position));
            // Lines of one write may become visible in any order: this one may not be there yet.
            let Some(entry) = first.take().or_else(|| self.ring.read(id)) else {
                continue;
            };
            // Each entry is judged, not only the first.
            if !entry.is_possible(self.group.length, position) {
                return Err(ImpossibleCts);
            }
            if entry.tag == tag {
                return Ok(Some(Match {
                    id,
                    position,
                    entry,
                }));
            }
        }
        self.misses = self.misses.saturating_add(1);
        Ok(None)
    }

    /// Whether messages have found no buffer of their tag for long enough that the log should
    /// hear of it, though there is a group with free ones. Once for each time.
    pub(crate) fn is_stuck(&self) -> bool {
        self.misses == MANY_MISSES
    }

    /// The tags of the oldest group's free buffers.
    pub(crate) fn free_tags(&self) -> Vec<u32> {
        let free =
            (0..self.group.length).filter(|position| self.group.taken & (1 << position) == 0);
        free.filter_map(|position| {
            let id = self.group.first.wrapping_add(u64::from(position));
            self.ring.read(id).map(|entry| entry.tag)
        })
        .collect()
    }

    /// The ring, for those who play the peer that writes it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn ring(&self) -> &CtsRing {
        &self.ring
    }

    /// The key of entry `id`, which [`find`](Self::find) has found, for the receiver's device
    /// `device`.
    #[inline]
    pub(crate) fn rkey(&self, id: u64, device: usize) -> u32 {
        self.ring.rkey(id, device)
    }

    /// The buffer that [`find`](Self::find) found last is taken.
    #[inline]
    pub(crate) fn take(&mut self, found: &Match) {
        self.misses = 0;
        self.group.take(found.position);
    }

    /// Whether the oldest group has been seen, and messages for it are still to come.
    #[inline]
    pub(crate) fn is_within_group(&self) -> bool {
        self.group.length > 0
    }

    /// The first entry of the next group, if it is there: it tells how many there are.
    #[inline]
    fn see_group(&mut self) -> Result<Option<CtsEntry>, ImpossibleCts> {
        let Some(entry) = self.ring.read(self.group.first) else {
            return Ok(None);
        };
        if !(1..=MAX_GROUP).contains(&usize::from(entry.group)) {
            return Err(ImpossibleCts);
        }
        self.group.length = entry.group;
        self.group.taken = 0;
        Ok(Some(entry))
    }
}

impl Group {
    /// Marks the entry at `position` as taken; after the last one the next group is due.
    fn take(&mut self, position: u8) {
        self.taken |= 1 << position;
        if u32::from(self.length) == self.taken.count_ones() {
            self.first = self.first.wrapping_add(u64::from(self.length));
            self.length = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_matched_in_any_order_and_then_left() {
        let mut group = Group {
            first: u64::MAX - 1,
            length: 4,
            taken: 0,
        };
        for position in [2, 0, 3] {
            group.take(position);
            assert_eq!(group.length, 4);
        }
        group.take(1);
        assert_eq!((group.first, group.length), (2, 0));
        let mut full = Group {
            first: 0,
            length: 8,
            taken: 0x7f,
        };
        full.take(7);
        assert_eq!((full.first, full.length), (8, 0));
    }
}
