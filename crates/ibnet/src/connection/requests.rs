//! The table of outstanding requests of one end of a connection.
//!
//! Slots come from a free list, so taking and returning one costs the same however many are
//! outstanding. Each slot has a generation, so a handle of a finished request is recognised.
#![forbid(unsafe_code)]

use crate::error::{Error, Failed};

/// Names an outstanding request of one connection.
///
/// It is dead once `test` has reported the request as done; a later use is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u32);

impl RequestId {
    /// The id as a number, for callers that must pass it through C.
    pub fn into_raw(self) -> u32 {
        self.0
    }

    /// The inverse of [`into_raw`](Self::into_raw). Any number is allowed; one that names no
    /// outstanding request is refused where it is used.
    pub fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    pub(crate) fn new(index: u16, generation: u16) -> Self {
        Self(u32::from(generation) << 16 | u32::from(index))
    }

    pub(crate) fn index(self) -> u16 {
        self.0 as u16
    }

    pub(crate) fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// A table of at most [`CAPACITY`] requests of type `T`.
pub(crate) struct Table<T> {
    slots: Box<[Slot<T>]>,
    first_free: u16,
}

/// Requests that one end can have outstanding: NCCL's 32 grouped receives
/// (`NCCL_NET_MAX_REQUESTS`) of 8 buffers each.
pub(crate) const CAPACITY: u16 = 256;

const NONE: u16 = u16::MAX;

struct Slot<T> {
    generation: u16,
    in_use: bool,
    /// Parts that have not completed.
    outstanding: u8,
    next_free: u16,
    request: T,
}

impl<T: Default> Table<T> {
    pub(crate) fn new() -> Self {
        let slots = (0..CAPACITY)
            .map(|index| Slot {
                generation: 0,
                in_use: false,
                outstanding: 0,
                next_free: if index + 1 < CAPACITY {
                    index + 1
                } else {
                    NONE
                },
                request: T::default(),
            })
            .collect();
        Self {
            slots,
            first_free: 0,
        }
    }
}

impl<T> Table<T> {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.first_free == NONE
    }

    /// Takes a free slot for `request`, which waits for `outstanding` parts. `None` if the table is full.
    #[inline]
    pub(crate) fn insert(&mut self, outstanding: u8, request: T) -> Option<RequestId> {
        let index = self.first_free;
        let slot = self.slots.get_mut(usize::from(index))?;
        self.first_free = slot.next_free;
        slot.in_use = true;
        slot.outstanding = outstanding;
        slot.request = request;
        Some(RequestId::new(index, slot.generation))
    }

    /// Whether all parts of `id` have completed. Errors if there is no such request.
    #[inline]
    pub(crate) fn is_done(&self, id: RequestId) -> Result<bool, Failed> {
        match self.slots.get(usize::from(id.index())) {
            Some(slot) if slot.in_use && slot.generation == id.generation() => {
                Ok(slot.outstanding == 0)
            }
            _ => Err(stale(id)),
        }
    }

    /// A part of the request in slot `index`, if there is one, has completed. Returns it.
    #[inline]
    pub(crate) fn part_done(&mut self, index: u16) -> Option<&mut T> {
        let slot = self.slots.get_mut(usize::from(index))?;
        if !slot.in_use {
            return None;
        }
        slot.outstanding = slot.outstanding.saturating_sub(1);
        Some(&mut slot.request)
    }

    /// The request in slot `index`, if there is one.
    pub(crate) fn get(&self, index: u16) -> Option<&T> {
        let slot = self.slots.get(usize::from(index))?;
        slot.in_use.then_some(&slot.request)
    }

    /// All requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let in_use = self.slots.iter().filter(|slot| slot.in_use);
        in_use.map(|slot| &slot.request)
    }

    /// Frees the slot of `id`, which is outstanding, and returns what was in it.
    #[inline]
    pub(crate) fn remove(&mut self, id: RequestId) -> &T {
        let slot = &mut self.slots[usize::from(id.index())];
        slot.in_use = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.first_free;
        self.first_free = id.index();
        &slot.request
    }

    /// Whether all requests that there can be are done.
    pub(crate) fn is_full_of_finished(&self) -> bool {
        self.is_full() && self.slots.iter().all(|slot| slot.outstanding == 0)
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.slots.iter().filter(|slot| slot.in_use).count()
    }
}

#[cold]
fn stale(id: RequestId) -> Failed {
    Error::StaleRequest { raw: id.into_raw() }.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_table_says_try_again() {
        // Exhaustion is no error.
        let mut table = Table::new();
        let ids: Vec<_> = (0..CAPACITY).map(|n| table.insert(1, n).unwrap()).collect();
        assert!(table.is_full());
        assert_eq!(table.insert(1, 0), None);
        assert_eq!(*table.remove(ids[17]), 17);
        assert!(!table.is_full());
        let again = table.insert(1, 999).unwrap();
        assert_eq!(again.index(), ids[17].index());
        assert_eq!(*table.part_done(again.index()).unwrap(), 999);
        assert_eq!(table.outstanding(), usize::from(CAPACITY));
        assert!(!table.is_full_of_finished());
    }

    #[test]
    fn stale_and_foreign_ids_are_refused() {
        let mut table = Table::new();
        let id = table.insert(0, 1).unwrap();
        assert!(table.is_done(id).unwrap());
        table.remove(id);
        assert!(matches!(
            table.is_done(id).map_err(|failed| *failed),
            Err(Error::StaleRequest { .. })
        ));
        assert!(table.part_done(id.index()).is_none());
        let newer = table.insert(0, 2).unwrap();
        assert_eq!(newer.index(), id.index());
        assert!(table.is_done(id).is_err());
        assert!(table.is_done(newer).unwrap());
        for raw in [0xffff_ffff, 0x0000_ffff, 0x1234_0005] {
            assert!(table.is_done(RequestId::from_raw(raw)).is_err());
        }
    }

    #[test]
    fn a_request_is_done_with_its_last_part() {
        let mut table = Table::new();
        let id = table.insert(2, ()).unwrap();
        for is_done in [false, true, true] {
            table.part_done(id.index());
            assert_eq!(table.is_done(id).unwrap(), is_done);
        }
    }

    #[test]
    fn many_rounds_keep_the_free_list_whole() {
        let mut table = Table::new();
        let mut live = Vec::new();
        let mut random = 7_u32;
        for step in 0..200_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random & 0x8000_0000 != 0 && !live.is_empty() {
                let (id, value) = live.swap_remove(random as usize % live.len());
                assert!(!table.is_done(id).unwrap());
                assert_eq!(*table.remove(id), value);
            } else if let Some(id) = table.insert(1, step) {
                live.push((id, step));
            } else {
                assert_eq!(live.len(), usize::from(CAPACITY));
            }
        }
        assert_eq!(table.outstanding(), live.len());
    }
}
