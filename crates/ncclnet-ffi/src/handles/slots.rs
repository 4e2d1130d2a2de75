//! Storage that only grows: slots keep their address, so a look-up needs no lock.
//!
//! The slots lie in chunks of 64, 128, 256, … slots. A chunk, once there, stays until the whole
//! storage goes (for the plugin's tables: never), and a slot is given back to a queue and used
//! again. What a slot means, and how it is told from the slot's former users, is not known here.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

const FIRST_CHUNK_LOG2: u32 = 6;

/// Chunks that a storage may have: 2^25 slots in all.
const CHUNKS: usize = 19;

/// A growing number of slots that never move.
pub(super) struct Slots<S> {
    chunks: [AtomicPtr<S>; CHUNKS],
    free: Mutex<Free>,
    limit: u32,
    /// The storage owns slots: it may be sent or shared if they may.
    owned: PhantomData<Box<S>>,
}

struct Free {
    /// Slots given back. First in, first out, so that a slot rests for as long as possible.
    queue: VecDeque<u32>,
    /// Slots that were ever used.
    used: u32,
}

impl<S> Slots<S> {
    /// No slots yet, and never more than `limit`.
    pub(super) const fn new(limit: u32) -> Self {
        assert!(limit <= first_index(CHUNKS as u32));
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            free: Mutex::new(Free {
                queue: VecDeque::new(),
                used: 0,
            }),
            limit,
            owned: PhantomData,
        }
    }

    /// The slot at `index`, if there ever was one. Lock-free.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&S> {
        let (chunk, offset) = position(index)?;
        let slots = self.chunks[chunk].load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: `slots` is the start of chunk `chunk`, published complete by `take`, which has
        // more than `offset` slots and lives as long as `self`; shared references only are given out.
        Some(unsafe { &*slots.add(offset) })
    }

    /// How many slots are taken.
    pub(super) fn taken(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.used as usize - free.queue.len()
    }
}

impl<S: Default> Slots<S> {
    /// Takes a slot that nobody else has, or none if the limit is reached. May allocate.
    pub(super) fn take(&self) -> Option<(u32, &S)> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.queue.pop_front() {
                Some(index) => index,
                None => {
                    if free.used == self.limit {
                        return None;
                    }
                    let index = free.used;
                    self.provide_chunk(index);
                    free.used += 1;
                    index
                }
            }
        };
        Some((index, self.get(index)?))
    }

    /// Gives a slot back. The caller took it and does not use it any more.
    pub(super) fn give_back(&self, index: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.queue.push_back(index);
    }

    /// Makes the chunk that holds `index` if there is none. Called under the lock.
    fn provide_chunk(&self, index: u32) {
        let Some((chunk, _)) = position(index) else {
            return;
        };
        if !self.chunks[chunk].load(Ordering::Relaxed).is_null() {
            return;
        }
        let slots: Box<[S]> = (0..chunk_len(chunk as u32)).map(|_| S::default()).collect();
        self.chunks[chunk].store(Box::into_raw(slots).cast::<S>(), Ordering::Release);
    }
}

impl<S> Drop for Slots<S> {
    fn drop(&mut self) {
        for (chunk, slots) in self.chunks.iter_mut().enumerate() {
            let slots = *slots.get_mut();
            if !slots.is_null() {
                let len = chunk_len(chunk as u32) as usize;
                // SAFETY: `provide_chunk` made this pointer from a boxed slice of this length, and
                // `&mut self` proves that no reference to a slot is left.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, len)) });
            }
        }
    }
}

/// Slots of chunk `chunk`.
const fn chunk_len(chunk: u32) -> u32 {
    1 << (FIRST_CHUNK_LOG2 + chunk)
}

/// Index of the first slot of chunk `chunk`.
const fn first_index(chunk: u32) -> u32 {
    chunk_len(chunk) - chunk_len(0)
}

/// The chunk of a slot, and its place in there. None if there can be no such slot.
#[inline]
fn position(index: u32) -> Option<(usize, usize)> {
    let shifted = index.checked_add(chunk_len(0))?;
    let chunk = shifted.ilog2() - FIRST_CHUNK_LOG2;
    if chunk as usize >= CHUNKS {
        return None;
    }
    Some((chunk as usize, (shifted - chunk_len(chunk)) as usize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn positions_follow_each_other_without_a_gap() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(position(index), Some(expected));
            expected.1 += 1;
            if expected.1 == chunk_len(expected.0 as u32) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(position(u32::MAX), None);
        assert_eq!(position(first_index(CHUNKS as u32)), None);
    }

    #[test]
    fn slots_stay_where_they_are_while_more_come() {
        let slots = Slots::<AtomicU32>::new(1000);
        let (index, slot) = slots.take().unwrap();
        slot.store(7, Ordering::Relaxed);
        let address = ptr::from_ref(slot);
        for _ in 1..1000 {
            slots.take().unwrap();
        }
        assert!(slots.take().is_none(), "the limit holds");
        assert_eq!(slots.taken(), 1000);
        let again = slots.get(index).unwrap();
        assert!(ptr::eq(again, address));
        assert_eq!(again.load(Ordering::Relaxed), 7);
        slots.give_back(index);
        assert_eq!(slots.take().unwrap().0, index);
    }

    #[test]
    fn a_slot_belongs_to_one_thread_at_a_time() {
        let slots = Slots::<AtomicU32>::new(5000);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let taken: Vec<_> = (0..16).map(|_| slots.take().unwrap()).collect();
                        for (_, slot) in &taken {
                            assert_eq!(slot.fetch_add(1, Ordering::AcqRel), 0, "round {round}");
                        }
                        for (index, slot) in taken {
                            slot.fetch_sub(1, Ordering::AcqRel);
                            slots.give_back(index);
                        }
                    }
                });
            }
        });
        assert_eq!(slots.taken(), 0);
        let all: HashSet<_> = slots.free.lock().unwrap().queue.iter().copied().collect();
        assert_eq!(
            all.len(),
            slots.free.lock().unwrap().used as usize,
            "none is lost or doubled"
        );
    }
}
