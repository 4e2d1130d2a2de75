//! Storage that only grows: slots keep their address, so a look-up needs no lock.
//!
//! The slots lie in chunks of [`CHUNK`] slots. A chunk, once there, stays until the whole storage
//! goes (for the plugin's tables: never), and a slot is given back to a queue and used again. Where
//! the chunks are is in an array of its own, most of which is never touched and takes no memory.
//! What a slot means, and how it is told from the slot's former users, is not known here.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// Slots of a chunk.
pub(crate) const CHUNK: usize = 64;

/// A growing number of slots that never move, at most `CHUNKS` times [`CHUNK`].
pub(super) struct Slots<S, const CHUNKS: usize> {
    chunks: [AtomicPtr<S>; CHUNKS],
    /// `None` until a slot is taken: an empty queue is not all zeros.
    free: Mutex<Option<Box<Free>>>,
    /// The storage owns slots: it may be sent or shared if they may.
    owned: PhantomData<Box<S>>,
}

#[derive(Default)]
struct Free {
    /// Slots given back. First in, first out, so that a slot rests for as long as possible.
    queue: VecDeque<u32>,
    /// Slots that were ever used.
    used: u32,
}

impl<S, const CHUNKS: usize> Slots<S, CHUNKS> {
    /// No slots yet.
    pub(super) const fn new() -> Self {
        assert!(CHUNKS * CHUNK <= u32::MAX as usize);
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            free: Mutex::new(None),
            owned: PhantomData,
        }
    }

    /// The slot at `index`, if there ever was one. Lock-free.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&S> {
        let index = index as usize;
        let slots = self.chunks.get(index / CHUNK)?.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: `slots` is the start of a chunk, published complete by `take`, which has `CHUNK`
        // slots and lives as long as `self`; shared references only are given out.
        Some(unsafe { &*slots.add(index % CHUNK) })
    }

    /// How many slots are taken.
    pub(super) fn taken(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.as_ref()
            .map_or(0, |free| free.used as usize - free.queue.len())
    }
}

impl<S: Default, const CHUNKS: usize> Slots<S, CHUNKS> {
    /// Takes a slot that nobody else has, or none if all are taken. May allocate.
    pub(super) fn take(&self) -> Option<(u32, &S)> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let free = free.get_or_insert_default();
            match free.queue.pop_front() {
                Some(index) => index,
                None => {
                    let index = free.used;
                    self.provide_chunk(self.chunks.get(index as usize / CHUNK)?);
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
        free.get_or_insert_default().queue.push_back(index);
    }

    /// Makes `chunk` if it is not there. Called under the lock.
    fn provide_chunk(&self, chunk: &AtomicPtr<S>) {
        if chunk.load(Ordering::Relaxed).is_null() {
            let slots: Box<[S]> = (0..CHUNK).map(|_| S::default()).collect();
            chunk.store(Box::into_raw(slots).cast::<S>(), Ordering::Release);
        }
    }
}

impl<S, const CHUNKS: usize> Drop for Slots<S, CHUNKS> {
    fn drop(&mut self) {
        for slots in &mut self.chunks {
            let slots = *slots.get_mut();
            // They are made in order.
            if slots.is_null() {
                break;
            }
            // SAFETY: `provide_chunk` made this pointer from a boxed slice of this length, and
            // `&mut self` proves that no reference to a slot is left.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, CHUNK)) });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn every_index_has_a_slot_of_its_own() {
        let slots = Slots::<u64, 4>::new();
        assert!(slots.get(0).is_none(), "none was taken yet");
        let taken: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        let indices: Vec<_> = taken.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, (0..4 * CHUNK as u32).collect::<Vec<_>>());
        let places: HashSet<_> = taken.iter().map(|(_, slot)| ptr::from_ref(*slot)).collect();
        assert_eq!(places.len(), taken.len());
        assert!(slots.get(4 * CHUNK as u32).is_none() && slots.get(u32::MAX).is_none());
    }

    #[test]
    fn slots_stay_where_they_are_while_more_come() {
        let slots = Slots::<AtomicU32, 16>::new();
        let (index, slot) = slots.take().unwrap();
        slot.store(7, Ordering::Relaxed);
        let address = ptr::from_ref(slot);
        for _ in 1..16 * CHUNK {
            slots.take().unwrap();
        }
        assert!(slots.take().is_none(), "the limit holds");
        assert_eq!(slots.taken(), 16 * CHUNK);
        let again = slots.get(index).unwrap();
        assert!(ptr::eq(again, address));
        assert_eq!(again.load(Ordering::Relaxed), 7);
        slots.give_back(index);
        assert_eq!(slots.take().unwrap().0, index);
    }

    #[test]
    fn a_slot_belongs_to_one_thread_at_a_time() {
        let slots = Slots::<AtomicU32, 80>::new();
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
        let free = slots.free.lock().unwrap();
        let free = free.as_ref().unwrap();
        let all: HashSet<_> = free.queue.iter().copied().collect();
        assert_eq!(all.len(), free.used as usize, "none is lost or doubled");
    }
}
