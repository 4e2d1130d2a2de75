//! A table of objects that one call at a time may use.
//!
//! Each slot has one atomic word: the generation of its object, a count of the calls that have left
//! it, and its state. Entering is one compare-and-swap on that word, which checks everything at once:
//! that the object is still the one meant, and that no other thread is in a call with it. It never
//! waits. NCCL promises to use a communicator's data path from one thread at a time; should it not,
//! the second thread gets [`HandleError::Busy`] instead of a data race.
//!
//! Beside the object a slot has a *shared part* behind a lock, for what other threads may do while
//! the data path is busy: registering memory. The data path never touches that lock.

use std::cell::UnsafeCell;
use std::hint;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::error::HandleError;
use super::slots::Slots;
use super::token::{Kind, ObjectId, RequestToken};

/// Objects of one kind: `T` for one call at a time, `S` shared by all threads.
pub(crate) struct Table<T, S> {
    kind: Kind,
    slots: Slots<Slot<T, S>>,
}

impl<T: Send, S: Send> Table<T, S> {
    /// An empty table for at most `limit` objects of `kind`.
    pub(crate) const fn new(kind: Kind, limit: u32) -> Self {
        Self {
            kind,
            slots: Slots::new(limit),
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.taken()
    }

    /// Adds an object.
    pub(crate) fn insert(&self, object: T, shared: S) -> Result<ObjectId, HandleError> {
        let (index, slot) = self.slots.take().ok_or(HandleError::Full(self.kind))?;
        let word = Word(slot.word.load(Ordering::Acquire));
        // SAFETY: the slot is free, so its word lets nobody in, and `take` gave it to this thread alone.
        unsafe { *slot.object.get() = Some(object) };
        *slot.shared() = Some(shared);
        slot.word
            .store(word.with_state(State::Idle).0, Ordering::Release);
        Ok(ObjectId {
            kind: self.kind,
            index,
            generation: word.generation(),
        })
    }

    /// Enters an object: it is this thread's until the guard goes. Lock-free, never waits.
    #[inline]
    pub(crate) fn enter(&self, id: ObjectId) -> Result<Entered<'_, T, S>, HandleError> {
        self.enter_masked(id.index, id.generation, u32::MAX)
    }

    /// Enters the communicator of a request, of whose generation the token has the low bits.
    #[inline]
    pub(crate) fn enter_for(&self, token: RequestToken) -> Result<Entered<'_, T, S>, HandleError> {
        self.enter_masked(token.index, token.generation, RequestToken::GENERATION_MASK)
    }

    #[inline]
    fn enter_masked(
        &self,
        index: u32,
        generation: u32,
        mask: u32,
    ) -> Result<Entered<'_, T, S>, HandleError> {
        let slot = self.slots.get(index).ok_or(HandleError::Foreign)?;
        let word = Word(slot.word.load(Ordering::Relaxed));
        if word.generation() & mask != generation || word.state() != State::Idle {
            return Err(word.refusal(generation, mask));
        }
        slot.word
            // SeqCst: see `Regions`. On failure another thread has entered or closed meanwhile.
            .compare_exchange(
                word.0,
                word.with_state(State::Busy).0,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .map_err(|now| Word(now).refusal(generation, mask))?;
        Ok(Entered {
            slot,
            word,
            id: ObjectId {
                kind: self.kind,
                index,
                generation: word.generation(),
            },
        })
    }

    /// Uses the shared part of an object, under its lock; a call may be inside the object meanwhile.
    pub(crate) fn with_shared<R>(
        &self,
        id: ObjectId,
        use_it: impl FnOnce(&mut S) -> R,
    ) -> Result<R, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let mut shared = slot.shared();
        // The generation changes only after the shared part was taken out under this lock.
        let word = Word(slot.word.load(Ordering::Acquire));
        match shared.as_mut() {
            Some(shared) if word.generation() == id.generation => Ok(use_it(shared)),
            _ => Err(HandleError::Stale),
        }
    }

    /// Takes an object out and ends it with `end`. Until `end` returns nobody else gets the slot.
    ///
    /// Works for a poisoned object too. An object that another thread is in a call with stays.
    pub(crate) fn close<R>(
        &self,
        id: ObjectId,
        end: impl FnOnce(T, S) -> R,
    ) -> Result<R, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let word = Word(slot.word.load(Ordering::Relaxed));
        let closable = matches!(word.state(), State::Idle | State::Poisoned);
        if word.generation() != id.generation || !closable {
            return Err(word.refusal(id.generation, u32::MAX));
        }
        let busy = word.with_state(State::Busy).0;
        slot.word
            .compare_exchange(word.0, busy, Ordering::SeqCst, Ordering::Relaxed)
            .map_err(|now| Word(now).refusal(id.generation, u32::MAX))?;
        // From here on the slot is this thread's, and it is given back even if `end` panics.
        let vacated = Vacating {
            table: self,
            slot,
            index: id.index,
            word,
        };
        // SAFETY: the word says busy, and this thread made it say so: nobody else uses the object.
        let object = unsafe { (*slot.object.get()).take() };
        let shared = slot.shared().take();
        let (Some(object), Some(shared)) = (object, shared) else {
            return Err(HandleError::Stale);
        };
        let result = end(object, shared);
        drop(vacated);
        Ok(result)
    }

    /// Waits until the call that is inside object `id` at this moment, if there is one, has left it.
    ///
    /// Calls are short and wait for nothing themselves; a call that enters later is not waited for.
    pub(crate) fn wait_for_call_inside(&self, id: ObjectId) {
        let Some(slot) = self.slots.get(id.index) else {
            return;
        };
        // SeqCst: see `Regions`.
        let seen = slot.word.load(Ordering::SeqCst);
        if Word(seen).generation() != id.generation || Word(seen).state() != State::Busy {
            return;
        }
        let mut looks = 0u32;
        while slot.word.load(Ordering::Acquire) == seen {
            looks = looks.saturating_add(1);
            if looks < 100 {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// One slot. Aligned so that two communicators of two threads do not share a cache line (or the
/// pair of lines that some processors fetch together).
#[repr(align(128))]
struct Slot<T, S> {
    word: AtomicU64,
    object: UnsafeCell<Option<T>>,
    shared: Mutex<Option<S>>,
}

// SAFETY: `object` is touched only by the thread that turned the word to `Busy` (or that took the
// free slot), so it moves between threads but is never shared: `T: Send` is enough. The shared part
// is behind a mutex.
unsafe impl<T: Send, S: Send> Sync for Slot<T, S> {}

impl<T, S> Slot<T, S> {
    fn shared(&self) -> std::sync::MutexGuard<'_, Option<S>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, S> Default for Slot<T, S> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::new(0, 0, State::Free).0),
            object: UnsafeCell::new(None),
            shared: Mutex::new(None),
        }
    }
}

/// An object that this thread is in a call with.
pub(crate) struct Entered<'a, T, S> {
    slot: &'a Slot<T, S>,
    /// The word as it was before entering.
    word: Word,
    id: ObjectId,
}

impl<T, S> Entered<'_, T, S> {
    /// The object, and the proof that this thread is in a call with it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, Inside<'_>) {
        let inside = Inside {
            id: self.id,
            call: PhantomData,
        };
        // SAFETY: the object was put there before the word became idle, and this guard is the only
        // one for as long as the word says busy; `&mut self` makes this the only reference.
        let object = unsafe { &mut *self.slot.object.get() };
        match object {
            Some(object) => (object, inside),
            // `insert` fills the object before it lets anybody in, and only `close` empties it,
            // which no guard outlives.
            None => unreachable!("an entered slot has an object"),
        }
    }
}

impl<T, S> Deref for Entered<'_, T, S> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `parts`; a shared reference from `&self`.
        match unsafe { &*self.slot.object.get() } {
            Some(object) => object,
            None => unreachable!("an entered slot has an object"),
        }
    }
}

impl<T, S> DerefMut for Entered<'_, T, S> {
    fn deref_mut(&mut self) -> &mut T {
        self.parts().0
    }
}

impl<T, S> Drop for Entered<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        // A panic may have left the object half-changed.
        let state = if thread::panicking() {
            State::Poisoned
        } else {
            State::Idle
        };
        self.slot
            .word
            .store(self.word.after_a_call(state).0, Ordering::Release);
    }
}

/// The proof, for its lifetime, that a call is inside the communicator `id`.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'a> {
    id: ObjectId,
    call: PhantomData<&'a ()>,
}

impl Inside<'_> {
    pub(super) fn id(self) -> ObjectId {
        self.id
    }
}

/// Frees a slot for the next generation, whatever happens.
struct Vacating<'a, T: Send, S: Send> {
    table: &'a Table<T, S>,
    slot: &'a Slot<T, S>,
    index: u32,
    word: Word,
}

impl<T: Send, S: Send> Drop for Vacating<'_, T, S> {
    fn drop(&mut self) {
        let next = Word::new(self.word.generation().wrapping_add(1), 0, State::Free);
        self.slot.word.store(next.0, Ordering::Release);
        self.table.slots.give_back(self.index);
    }
}

/// `generation (32 bits) | calls that have left (30) | state (2)`.
#[derive(Clone, Copy)]
struct Word(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free = 0,
    Idle = 1,
    Busy = 2,
    Poisoned = 3,
}

impl Word {
    const CALL_BITS: u32 = 30;
    const CALL_MASK: u64 = (1 << Self::CALL_BITS) - 1;

    const fn new(generation: u32, calls: u64, state: State) -> Self {
        Self((generation as u64) << 32 | (calls & Self::CALL_MASK) << 2 | state as u64)
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Free,
            1 => State::Idle,
            2 => State::Busy,
            _ => State::Poisoned,
        }
    }

    const fn with_state(self, state: State) -> Self {
        Self(self.0 & !3 | state as u64)
    }

    /// The word after one more call, so that a waiter sees that the call it saw is over.
    const fn after_a_call(self, state: State) -> Self {
        Self::new(self.generation(), (self.0 >> 2) + 1, state)
    }

    /// Why a slot with this word does not let in somebody who asks for `generation`.
    #[cold]
    fn refusal(self, generation: u32, mask: u32) -> HandleError {
        if self.generation() & mask != generation {
            return HandleError::Stale;
        }
        match self.state() {
            State::Free => HandleError::Stale,
            State::Poisoned => HandleError::Poisoned,
            // Idle: it was busy at the first look and is not any more.
            State::Busy | State::Idle => HandleError::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn table() -> Table<Vec<u32>, u32> {
        Table::new(Kind::Sender, 1000)
    }

    #[test]
    fn an_object_is_found_until_it_is_closed() {
        let table = table();
        let id = table.insert(vec![1], 2).unwrap();
        table.enter(id).unwrap().push(3);
        assert_eq!(*table.enter(id).unwrap(), [1, 3]);
        assert_eq!(table.with_shared(id, |shared| *shared), Ok(2));
        assert_eq!(table.len(), 1);
        assert_eq!(
            table.close(id, |object, shared| (object, shared)),
            Ok((vec![1, 3], 2))
        );
        assert_eq!(table.len(), 0);

        assert_eq!(table.enter(id).err(), Some(HandleError::Stale));
        assert_eq!(table.with_shared(id, |_| ()), Err(HandleError::Stale));
        assert_eq!(table.close(id, |_, _| ()), Err(HandleError::Stale));
    }

    #[test]
    fn the_next_object_in_a_slot_is_not_the_one_before() {
        let table = table();
        let first = table.insert(vec![1], 0).unwrap();
        table.close(first, |_, _| ()).unwrap();
        let second = table.insert(vec![2], 0).unwrap();
        assert_eq!(second.index, first.index, "the slot is used again");
        assert_eq!(table.enter(first).err(), Some(HandleError::Stale));
        assert_eq!(*table.enter(second).unwrap(), [2]);

        let request = RequestToken::new(Kind::SendRequest, first, 9);
        assert_eq!(table.enter_for(request).err(), Some(HandleError::Stale));
        let request = RequestToken::new(Kind::SendRequest, second, 9);
        assert_eq!(table.enter_for(request).unwrap().parts().1.id(), second);
    }

    #[test]
    fn an_index_that_was_never_used_is_foreign() {
        let table = table();
        table.insert(vec![], 0).unwrap();
        let never = ObjectId {
            kind: Kind::Sender,
            index: 100_000,
            generation: 0,
        };
        assert_eq!(table.enter(never).err(), Some(HandleError::Foreign));
        let unused = ObjectId {
            kind: Kind::Sender,
            index: 5,
            generation: 0,
        };
        assert_eq!(table.enter(unused).err(), Some(HandleError::Stale));
    }

    #[test]
    fn a_second_call_is_refused_and_the_shared_part_is_not() {
        let table = table();
        let id = table.insert(vec![], 7).unwrap();
        let inside = table.enter(id).unwrap();
        assert_eq!(table.enter(id).err(), Some(HandleError::Busy));
        assert_eq!(table.close(id, |_, _| ()), Err(HandleError::Busy));
        assert_eq!(table.with_shared(id, |shared| *shared), Ok(7));
        drop(inside);
        assert!(table.enter(id).is_ok());
    }

    #[test]
    fn a_panic_leaves_an_object_that_can_only_be_closed() {
        let table = table();
        let id = table.insert(vec![1], 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _inside = table.enter(id).unwrap();
            panic!("in a call (this panic is part of the test)");
        }));
        assert!(panicked.is_err());
        assert_eq!(table.enter(id).err(), Some(HandleError::Poisoned));
        assert_eq!(table.close(id, |object, _| object), Ok(vec![1]));

        let id = table.insert(vec![2], 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = table.close(id, |_, _| panic!("while closing (part of the test)"));
        }));
        assert!(panicked.is_err());
        assert_eq!(table.len(), 0, "the slot is free again");
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Table::<(), ()>::new(Kind::Listener, 2);
        table.insert((), ()).unwrap();
        let second = table.insert((), ()).unwrap();
        assert_eq!(table.insert((), ()), Err(HandleError::Full(Kind::Listener)));
        table.close(second, |(), ()| ()).unwrap();
        assert!(table.insert((), ()).is_ok());
    }

    /// Many threads enter, close and add; a counter that is not atomic would lose updates if two
    /// threads were ever inside the same object.
    #[test]
    fn threads_exclude_each_other() {
        struct Counter(u64);
        let table = Table::<Counter, ()>::new(Kind::Receiver, 64);
        let entered = AtomicUsize::new(0);
        let refused = AtomicUsize::new(0);
        let id = table.insert(Counter(0), ()).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        match table.enter(id) {
                            Ok(mut counter) => {
                                let seen = counter.0;
                                if round % 64 == 0 {
                                    thread::yield_now();
                                }
                                counter.0 = seen + 1;
                                entered.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert_eq!(error, HandleError::Busy);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            // Meanwhile others come and go in the neighbouring slots.
            scope.spawn(|| {
                for round in 0..5_000 {
                    let other = table.insert(Counter(round), ()).unwrap();
                    assert_eq!(table.enter(other).unwrap().0, round);
                    table
                        .close(other, |counter, ()| assert_eq!(counter.0, round))
                        .unwrap();
                    assert_eq!(table.enter(other).err(), Some(HandleError::Stale));
                }
            });
        });
        let entered = entered.into_inner();
        assert_eq!(entered + refused.into_inner(), 80_000);
        assert_eq!(table.enter(id).unwrap().0, entered as u64);
    }
}
