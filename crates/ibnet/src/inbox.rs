//! The receiver's account of what it has announced and what of it has arrived.
//!
//! Pure: immediates and byte counts go in, finished buffers come out. Everything that a sender
//! could get wrong is a [`Violation`].
#![forbid(unsafe_code)]

use crate::immediate::{Immediate, SizeTold, lap};
use crate::ring::{self, ENTRIES};

/// The announced buffers, as many as the ring has entries.
///
/// An entry is open until its message is whole, and claimed until its size has been collected.
pub(crate) struct Inbox {
    entries: Box<[Entry; ENTRIES as usize]>,
    /// Id of the next entry to announce.
    next: u64,
    /// Id of the oldest entry that is not free.
    oldest: u64,
    /// Entries that may be taken at once.
    most: u64,
}

/// In place of a request: nobody waits for the message.
pub(crate) const NO_REQUEST: u16 = u16::MAX;

/// One announced buffer.
#[derive(Clone, Copy, Default)]
struct Entry {
    is_open: bool,
    is_claimed: bool,
    request: u16,
    position: u8,
    parts: u8,
    capacity: u32,
    /// What has arrived; once the message is whole, its size.
    bytes: u32,
    id: u64,
}

/// A buffer whose message is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Slot of its entry in the ring.
    pub(crate) slot: u8,
    /// Slot of the request that it belongs to.
    pub(crate) request: u16,
    /// Its position in the request's group.
    pub(crate) position: u8,
    /// Bytes of the message.
    pub(crate) size: u32,
}

/// The sender broke the protocol: how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

impl Inbox {
    /// An inbox in which at most `most` entries are taken at once, and never more than the ring has.
    pub(crate) fn new(first_entry: u64, most: u64) -> Self {
        Self {
            most: most.min(ENTRIES),
            entries: Box::new([Entry::default(); ENTRIES as usize]),
            next: first_entry,
            oldest: first_entry,
        }
    }

    /// Id of the next entry to announce.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether `buffers` more can be announced.
    #[inline]
    pub(crate) fn has_room(&self, buffers: u64) -> bool {
        self.next.wrapping_sub(self.oldest) + buffers <= self.most
    }

    /// Opens the next entry, for the buffer at `position` of `request`. There must be room, and
    /// `capacity` is at most [`ring::MAX_CAPACITY`].
    #[inline]
    pub(crate) fn open(&mut self, request: u16, position: u8, capacity: u32) {
        debug_assert!(capacity <= ring::MAX_CAPACITY);
        let id = self.next;
        self.entries[ring::slot(id)] = Entry {
            is_open: true,
            is_claimed: true,
            request,
            position,
            parts: 0,
            capacity,
            bytes: 0,
            id,
        };
        self.next = id.wrapping_add(1);
    }

    /// A part of `bytes` bytes has arrived, with `immediate`; `size_in_table` reads the size table
    /// at a slot. Gives the buffer if its message is whole.
    #[inline]
    pub(crate) fn take(
        &mut self,
        immediate: Option<u32>,
        bytes: u32,
        size_in_table: impl FnOnce(usize) -> u32,
    ) -> Result<Option<Arrived>, Violation> {
        let part = immediate
            .and_then(Immediate::decode)
            .ok_or(Violation("an immediate that means nothing"))?;
        let slot = usize::from(part.slot);
        let entry = &mut self.entries[slot];
        if !entry.is_open || lap(entry.id) != part.lap {
            return Err(Violation("a part of a message that is not expected"));
        }
        entry.parts += 1;
        // A sum that saturates is more than any buffer holds, and stays so whatever is added.
        entry.bytes = entry.bytes.saturating_add(bytes);
        if entry.parts < part.parts {
            return Ok(None);
        }
        let size = match part.size_told {
            SizeTold::BySum => entry.bytes,
            SizeTold::AsAnnounced => entry.capacity,
            SizeTold::InTable => size_in_table(slot),
        };
        if entry.parts > part.parts || size > entry.capacity {
            return Err(Violation(
                "a message larger than its buffer, or in too many parts",
            ));
        }
        entry.is_open = false;
        entry.bytes = size;
        let arrived = Arrived {
            slot: part.slot,
            request: entry.request,
            position: entry.position,
            size,
        };
        if !entry.is_claimed {
            self.free();
        }
        Ok(Some(arrived))
    }

    /// Calls `tell` with the position and the size of each of the `buffers` messages in the entries
    /// from slot `first` on, which nobody has a claim to any more: of those that nobody waits for
    /// the capacity, of others what has arrived.
    #[inline]
    pub(crate) fn collect(&mut self, first: u8, buffers: u8, mut tell: impl FnMut(usize, u32)) {
        for position in 0..buffers {
            let entry = &mut self.entries[usize::from(first.wrapping_add(position))];
            entry.is_claimed = false;
            let size = if entry.request == NO_REQUEST {
                entry.capacity
            } else {
                entry.bytes
            };
            tell(position.into(), size);
        }
        self.free();
    }

    /// Frees the oldest entries, as far as nothing is to be expected of them any more.
    #[inline]
    fn free(&mut self) {
        while self.oldest != self.next {
            let entry = &self.entries[ring::slot(self.oldest)];
            if entry.is_open || entry.is_claimed {
                break;
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FIRST: u64 = 256;

    fn part(id: u64, size_told: SizeTold, parts: u8) -> Option<u32> {
        let slot = ring::slot(id) as u8;
        let immediate = Immediate {
            slot,
            size_told,
            parts,
            lap: lap(id),
        };
        Some(immediate.encode())
    }

    fn no_table(_: usize) -> u32 {
        panic!("the table was not to be read")
    }

    #[test]
    fn the_size_is_told_in_three_ways() {
        let mut inbox = Inbox::new(FIRST, ENTRIES);
        for position in 0..3 {
            inbox.open(7, position, 1000);
        }
        let by_sum = inbox.take(part(FIRST, SizeTold::BySum, 1), 123, no_table);
        let arrived = |position, size| {
            Ok(Some(Arrived {
                slot: position,
                request: 7,
                position,
                size,
            }))
        };
        assert_eq!(by_sum, arrived(0, 123));
        let announced = inbox.take(part(FIRST + 1, SizeTold::AsAnnounced, 1), 1, no_table);
        assert_eq!(announced, arrived(1, 1000));
        let in_table = inbox.take(part(FIRST + 2, SizeTold::InTable, 1), 1, |slot| {
            assert_eq!(slot, 2);
            555
        });
        assert_eq!(in_table, arrived(2, 555));
    }

    #[test]
    fn a_message_is_whole_with_its_last_part() {
        let mut inbox = Inbox::new(FIRST, ENTRIES);
        inbox.open(1, 0, 1000);
        for _ in 0..3 {
            assert_eq!(
                inbox.take(part(FIRST, SizeTold::BySum, 4), 100, no_table),
                Ok(None)
            );
        }
        let whole = inbox.take(part(FIRST, SizeTold::BySum, 4), 100, no_table);
        assert_eq!(whole.unwrap().unwrap().size, 400);
    }

    #[test]
    fn what_a_sender_could_get_wrong_is_a_violation() {
        let wrong = |immediate, bytes| {
            let mut inbox = Inbox::new(FIRST, ENTRIES);
            inbox.open(1, 0, 1000);
            inbox.take(immediate, bytes, |_| 1001)
        };
        assert!(wrong(None, 1).is_err());
        assert!(wrong(Some(3 << 8), 1).is_err(), "meaningless bits");
        assert!(
            wrong(part(FIRST + 1, SizeTold::BySum, 1), 1).is_err(),
            "not announced"
        );
        assert!(
            wrong(part(FIRST + 256, SizeTold::BySum, 1), 1).is_err(),
            "another lap"
        );
        assert!(
            wrong(part(FIRST, SizeTold::BySum, 1), 1001).is_err(),
            "too large"
        );
        assert!(
            wrong(part(FIRST, SizeTold::InTable, 1), 1).is_err(),
            "too large, in the table"
        );
        assert!(wrong(part(FIRST, SizeTold::BySum, 1), 1000).is_ok());

        // Twice the same message, and more parts than the last one says.
        let mut inbox = Inbox::new(FIRST, ENTRIES);
        inbox.open(1, 0, 1000);
        inbox.open(1, 1, 1000);
        assert!(
            inbox
                .take(part(FIRST, SizeTold::BySum, 1), 1, no_table)
                .is_ok()
        );
        assert!(
            inbox
                .take(part(FIRST, SizeTold::BySum, 1), 1, no_table)
                .is_err()
        );
        assert_eq!(
            inbox.take(part(FIRST + 1, SizeTold::BySum, 3), 1, no_table),
            Ok(None)
        );
        assert!(
            inbox
                .take(part(FIRST + 1, SizeTold::BySum, 1), 1, no_table)
                .is_err()
        );
        // Byte counts that overflow are no small message, in whichever part they do.
        for bytes in [[u32::MAX, 100, 0], [0, u32::MAX, 100]] {
            let mut inbox = Inbox::new(FIRST, ENTRIES);
            inbox.open(1, 0, 1000);
            let huge = part(FIRST, SizeTold::BySum, 3);
            assert_eq!(inbox.take(huge, bytes[0], no_table), Ok(None));
            assert_eq!(inbox.take(huge, bytes[1], no_table), Ok(None));
            assert!(inbox.take(huge, bytes[2], no_table).is_err());
        }
    }

    #[test]
    fn entries_are_free_again_in_the_order_announced() {
        let mut inbox = Inbox::new(u64::MAX - 100, ENTRIES);
        for _ in 0..ENTRIES {
            assert!(inbox.has_room(1));
            inbox.open(0, 0, 8);
        }
        assert!(!inbox.has_room(1));
        let take = |inbox: &mut Inbox, ahead: u64| {
            let id = (u64::MAX - 100).wrapping_add(ahead);
            inbox
                .take(part(id, SizeTold::BySum, 1), 8, no_table)
                .unwrap()
                .unwrap();
        };
        let first = ring::slot(u64::MAX - 100) as u8;
        take(&mut inbox, 1);
        inbox.collect(first + 1, 1, |_, _| ());
        assert!(!inbox.has_room(1), "the oldest is still open");
        take(&mut inbox, 0);
        assert!(!inbox.has_room(1), "its size is still to be asked for");
        inbox.collect(first, 1, |_, _| ());
        assert!(inbox.has_room(2) && !inbox.has_room(3));
    }

    #[test]
    fn sizes_are_kept_until_they_are_collected() {
        let mut inbox = Inbox::new(255, ENTRIES);
        inbox.open(3, 0, 100);
        inbox.open(3, 1, 100);
        inbox.open(NO_REQUEST, 0, 77);
        // Nobody waits for the third: its request is done before anything has come.
        inbox.collect(1, 1, |_, capacity| assert_eq!(capacity, 77));
        for (id, bytes) in [(256, 20), (257, 30), (255, 10)] {
            assert!(
                inbox
                    .take(part(id, SizeTold::BySum, 1), bytes, no_table)
                    .is_ok()
            );
        }
        assert!(
            !inbox.has_room(ENTRIES),
            "two sizes are still to be asked for"
        );
        let mut sizes = [0; 2];
        inbox.collect(255, 2, |position, size| sizes[position] = size);
        assert_eq!(sizes, [10, 20], "also over the end of the ring");
        assert!(inbox.has_room(ENTRIES));
    }
}
