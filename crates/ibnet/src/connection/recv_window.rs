//! The receiver's account of what it has announced and what of it has arrived.
//!
//! Pure: immediates and byte counts go in, finished buffers come out. Everything that a sender
//! could get wrong is a [`Violation`].
#![forbid(unsafe_code)]

use crate::wire::cts::{self, ENTRIES};
use crate::wire::immediate::{Immediate, SizeTold, generation};

/// The announced buffers, as many as the ring has entries.
pub(crate) struct RecvWindow {
    entries: Box<[Entry; ENTRIES as usize]>,
    /// Id of the next entry to announce.
    next: u64,
    /// Id of the oldest entry that is not free.
    oldest: u64,
    /// Entries that may be open at once.
    most: u64,
}

/// In place of a request: the message is not waited for.
pub(crate) const NO_REQUEST: u16 = u16::MAX;

/// One announced buffer. Four lie in a cache line.
#[derive(Clone, Copy, Default)]
struct Entry {
    capacity: u32,
    bytes: u32,
    /// See [`generation`].
    generation: u16,
    request: u16,
    position: u8,
    parts: u8,
    is_open: bool,
}

const _: () = assert!(size_of::<Entry>() == 16);

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
    /// Bytes that there is room for, if the message was too long and none of it was sent.
    pub(crate) too_long_for: Option<u32>,
}

/// The sender broke the protocol: how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

impl RecvWindow {
    /// A window in which at most `most` entries are open at once, and never more than the ring has.
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

    /// Id of the oldest entry that may be open.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Whether entry `id`, which has been announced, waits for its message.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        let entry = &self.entries[cts::slot(id)];
        entry.is_open && entry.generation == generation(id)
    }

    /// Whether `buffers` more can be announced.
    #[inline]
    pub(crate) fn has_room(&self, buffers: u64) -> bool {
        self.next.wrapping_sub(self.oldest) + buffers <= self.most
    }

    /// Opens the next entry, for the buffer at `position` of `request`. There must be room, and
    /// `capacity` is at most [`cts::MAX_CAPACITY`].
    #[inline]
    pub(crate) fn open(&mut self, request: u16, position: u8, capacity: u32) {
        debug_assert!(capacity <= cts::MAX_CAPACITY);
        let id = self.next;
        self.entries[cts::slot(id)] = Entry {
            capacity,
            bytes: 0,
            generation: generation(id),
            request,
            position,
            parts: 0,
            is_open: true,
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
            .map(Immediate::decode)
            .ok_or(Violation("a write without its immediate"))?;
        let slot = usize::from(part.slot);
        let entry = &mut self.entries[slot];
        if !entry.is_open || entry.generation != part.generation {
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
            SizeTold::InTable | SizeTold::TooLong => size_in_table(slot),
        };
        let is_too_long = part.size_told == SizeTold::TooLong;
        if entry.parts > part.parts || (size > entry.capacity) != is_too_long {
            return Err(Violation(
                "a message larger than its buffer, or in too many parts",
            ));
        }
        entry.is_open = false;
        let arrived = Arrived {
            slot: part.slot,
            request: entry.request,
            position: entry.position,
            size,
            too_long_for: is_too_long.then_some(entry.capacity),
        };
        while self.oldest != self.next && !self.entries[cts::slot(self.oldest)].is_open {
            self.oldest = self.oldest.wrapping_add(1);
        }
        Ok(Some(arrived))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FIRST: u64 = 256;

    fn part(id: u64, size_told: SizeTold, parts: u8) -> Option<u32> {
        let slot = cts::slot(id) as u8;
        let immediate = Immediate {
            slot,
            size_told,
            parts,
            generation: generation(id),
        };
        Some(immediate.encode())
    }

    fn no_table(_: usize) -> u32 {
        panic!("the table was not to be read")
    }

    #[test]
    fn the_size_is_told_in_three_ways() {
        let mut window = RecvWindow::new(FIRST, ENTRIES);
        for position in 0..3 {
            window.open(7, position, 1000);
        }
        let by_sum = window.take(part(FIRST, SizeTold::BySum, 1), 123, no_table);
        let arrived = |position, size| {
            Ok(Some(Arrived {
                slot: position,
                request: 7,
                position,
                size,
                too_long_for: None,
            }))
        };
        assert_eq!(by_sum, arrived(0, 123));
        let announced = window.take(part(FIRST + 1, SizeTold::AsAnnounced, 1), 1, no_table);
        assert_eq!(announced, arrived(1, 1000));
        let in_table = window.take(part(FIRST + 2, SizeTold::InTable, 1), 1, |slot| {
            assert_eq!(slot, 2);
            555
        });
        assert_eq!(in_table, arrived(2, 555));
    }

    #[test]
    fn a_message_is_whole_with_its_last_part() {
        let mut window = RecvWindow::new(FIRST, ENTRIES);
        window.open(1, 0, 1000);
        for _ in 0..3 {
            assert_eq!(
                window.take(part(FIRST, SizeTold::BySum, 4), 100, no_table),
                Ok(None)
            );
        }
        let whole = window.take(part(FIRST, SizeTold::BySum, 4), 100, no_table);
        assert_eq!(whole.unwrap().unwrap().size, 400);
    }

    #[test]
    fn a_message_that_was_too_long_is_told_with_its_length() {
        let mut window = RecvWindow::new(FIRST, ENTRIES);
        window.open(1, 0, 1000);
        let taken = window.take(part(FIRST, SizeTold::TooLong, 1), 0, |_| 1001);
        let arrived = taken.unwrap().unwrap();
        assert_eq!((arrived.size, arrived.too_long_for), (1001, Some(1000)));
    }

    #[test]
    fn what_a_sender_could_get_wrong_is_a_violation() {
        let wrong = |immediate, bytes| {
            let mut window = RecvWindow::new(FIRST, ENTRIES);
            window.open(1, 0, 1000);
            window.take(immediate, bytes, |_| 1001)
        };
        assert!(wrong(None, 1).is_err());
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
        let mut window = RecvWindow::new(FIRST, ENTRIES);
        window.open(1, 0, 1000);
        assert!(
            window
                .take(part(FIRST, SizeTold::TooLong, 1), 0, |_| 1000)
                .is_err(),
            "not too long"
        );
        assert!(wrong(part(FIRST, SizeTold::BySum, 1), 1000).is_ok());

        // Twice the same message, and more parts than the last one says.
        let mut window = RecvWindow::new(FIRST, ENTRIES);
        window.open(1, 0, 1000);
        window.open(1, 1, 1000);
        assert!(
            window
                .take(part(FIRST, SizeTold::BySum, 1), 1, no_table)
                .is_ok()
        );
        assert!(
            window
                .take(part(FIRST, SizeTold::BySum, 1), 1, no_table)
                .is_err()
        );
        assert_eq!(
            window.take(part(FIRST + 1, SizeTold::BySum, 3), 1, no_table),
            Ok(None)
        );
        assert!(
            window
                .take(part(FIRST + 1, SizeTold::BySum, 1), 1, no_table)
                .is_err()
        );
        // Byte counts that overflow are no small message, in whichever part they do.
        for bytes in [[u32::MAX, 100, 0], [0, u32::MAX, 100]] {
            let mut window = RecvWindow::new(FIRST, ENTRIES);
            window.open(1, 0, 1000);
            let huge = part(FIRST, SizeTold::BySum, 3);
            assert_eq!(window.take(huge, bytes[0], no_table), Ok(None));
            assert_eq!(window.take(huge, bytes[1], no_table), Ok(None));
            assert!(window.take(huge, bytes[2], no_table).is_err());
        }
    }

    #[test]
    fn entries_are_free_again_in_the_order_announced() {
        let mut window = RecvWindow::new(u64::MAX - 100, ENTRIES);
        for _ in 0..ENTRIES {
            assert!(window.has_room(1));
            window.open(0, 0, 8);
        }
        assert!(!window.has_room(1));
        let take = |window: &mut RecvWindow, ahead: u64| {
            let id = (u64::MAX - 100).wrapping_add(ahead);
            window
                .take(part(id, SizeTold::BySum, 1), 8, no_table)
                .unwrap()
                .unwrap();
        };
        take(&mut window, 1);
        assert!(!window.has_room(1), "the oldest is still open");
        take(&mut window, 0);
        assert!(window.has_room(2) && !window.has_room(3));
    }
}
