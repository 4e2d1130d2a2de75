//! A table of objects that one call at a time may use.
//!
//! Each slot has a word, the generation of its object and its state, and an owner: the mark of the
//! thread that used the object last ([`super::mark`]). Entering checks the word, that the owner is
//! this thread, and writes its mark: a handful of plain loads and a store. It never waits. Another
//! thread first takes the object over, which costs a system call. NCCL promises to use a
//! communicator's data path from one thread at a time; should it not, the second thread gets
//! [`HandleError::Busy`] instead of a data race.
//!
//! Beside the object a slot has a *shared part* behind a lock, for what other threads may do while
//! the data path is busy: registering memory. The data path never touches that lock.

mod entered;
mod slot;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};

use super::error::HandleError;
use super::mark::{Mark, NOBODY, Pause, SEIZED, heavy_barrier, make_barriers_light};
use super::regions::Owner;
use super::slots::Slots;
use super::token::{Kind, ObjectId, RequestToken};
use entered::Entered;
pub(crate) use entered::Inside;
use slot::{Seized, Slot, State, Word};

/// Objects of one kind: `T` for one call at a time, `S` shared by all threads.
///
/// An empty one is all zeros, so that a static one takes no room in the library's file.
pub(crate) struct Table<T, S, const CHUNKS: usize> {
    slots: Slots<Slot<T, S>, CHUNKS>,
}

/// What can be in a table.
pub(crate) trait Object: Send {
    /// The kind of its handles.
    const KIND: Kind;
}

impl<T: Object, S: Send, const CHUNKS: usize> Table<T, S, CHUNKS> {
    /// An empty table for at most `CHUNKS` times [`CHUNK`](super::CHUNK) objects.
    pub(crate) const fn new() -> Self {
        Self {
            slots: Slots::new(),
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.taken()
    }

    /// Adds an object.
    pub(crate) fn insert(&self, object: T, shared: S) -> Result<ObjectId, HandleError> {
        make_barriers_light();
        let (index, slot) = self.slots.take().ok_or(HandleError::Full(T::KIND))?;
        let word = Word(slot.word.load(Ordering::Acquire));
        // SAFETY: the slot is free, so its word lets nobody in, and `take` gave it to this thread alone.
        unsafe { *slot.object.get() = Some(object) };
        *slot.shared() = Some(shared);
        let id = ObjectId {
            kind: T::KIND,
            index,
            generation: word.generation(),
        };
        slot.name.store(Owner::of(id).0, Ordering::Relaxed);
        let open = Word::new(word.generation(), State::Open);
        slot.word.store(open.0, Ordering::Release);
        Ok(id)
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
        if !word.lets_in(generation, mask) {
            return Err(word.refusal(generation, mask));
        }
        let owner = slot.owner();
        let mark = if owner.is_mine() && owner.enter(slot.address()) {
            // Whoever takes the object over says so before he looks at the mark, which is written.
            if slot.owner().is(owner) {
                owner
            } else {
                owner.leave();
                slot.take_over(generation, mask)?
            }
        } else {
            slot.take_over(generation, mask)?
        };
        Ok(Entered {
            slot,
            mark,
            not_send: PhantomData,
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
        if word.generation() != id.generation || word.state() == State::Free {
            return Err(HandleError::Stale);
        }
        let seized = slot.seize_soon()?;
        // As long as the slot is seized, this does not change.
        let word = Word(slot.word.load(Ordering::Acquire));
        if word.generation() != id.generation || word.state() == State::Free {
            return Err(HandleError::Stale);
        }
        // From here on the slot is this thread's, and it is given back even if `end` panics.
        let vacated = Vacating {
            table: self,
            seized: Some(seized),
            index: id.index,
            word,
        };
        // SAFETY: the slot is seized by this thread: nobody else uses the object.
        let object = unsafe { (*slot.object.get()).take() };
        let shared = slot.shared().take();
        let (Some(object), Some(shared)) = (object, shared) else {
            return Err(HandleError::Stale);
        };
        let result = end(object, shared);
        drop(vacated);
        Ok(result)
    }

    /// Whether this thread must not wait for a call inside object `id`, because it is in a call itself,
    /// from within which it asks: with this object, which it would never see the end of, or with
    /// another one, which somebody else may wait for the end of meanwhile.
    pub(crate) fn must_not_wait(&self, id: ObjectId) -> bool {
        self.slots.get(id.index).is_some_and(|slot| {
            let owner = slot.owner();
            if owner.is_mine() {
                owner.is_inside(slot.address())
            } else {
                Mark::mine().is_in_a_call()
            }
        })
    }

    /// Waits until the call that is inside object `id` at this moment, if there is one, has left it.
    /// See [`must_not_wait`](Self::must_not_wait).
    ///
    /// Calls are short and wait for nothing themselves; a call that enters later is not waited for.
    pub(crate) fn wait_for_call_inside(&self, id: ObjectId) {
        let Some(slot) = self.slots.get(id.index) else {
            return;
        };
        // After what the caller has marked, see `Regions`.
        fence(Ordering::SeqCst);
        let owner = slot.owner();
        // This thread itself is in no call. And whoever enters from here on passes a barrier, because
        // it takes the object over, and sees the mark.
        if owner.is_mine() || owner.is(&NOBODY) {
            return;
        }
        heavy_barrier();
        let mut pause = Pause::default();
        let owner = loop {
            let owner = slot.owner();
            if !owner.is(&SEIZED) {
                break owner;
            }
            // Whoever seized it leaves it soon, or closes the object.
            pause.once();
        };
        owner.wait_until_outside(slot.address());
    }
}

/// Frees a slot for the next generation, whatever happens.
struct Vacating<'a, T: Object, S: Send, const CHUNKS: usize> {
    table: &'a Table<T, S, CHUNKS>,
    seized: Option<Seized<'a, T, S>>,
    index: u32,
    word: Word,
}

impl<T: Object, S: Send, const CHUNKS: usize> Drop for Vacating<'_, T, S, CHUNKS> {
    fn drop(&mut self) {
        // Before anybody else gets the slot.
        if let Some(seized) = self.seized.take() {
            let next = Word::new(self.word.generation().wrapping_add(1), State::Free);
            seized.slot.word.store(next.0, Ordering::Release);
            seized.hand_to(&NOBODY);
        }
        self.table.slots.give_back(self.index);
    }
}
