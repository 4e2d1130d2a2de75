//! One slot of a table: who may enter its object, and who has it to himself.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::error::HandleError;
use super::super::mark::{Mark, NOBODY, Pause, SEIZED, heavy_barrier};

/// So often is tried to seize what somebody else has seized: for milliseconds, while who seizes a slot
/// to enter it has it for microseconds.
const ATTEMPTS: u32 = 2000;

/// One slot. Aligned so that two communicators of two threads do not share a cache line (or the
/// pair of lines that some processors fetch together).
#[repr(align(128))]
pub(super) struct Slot<T, S> {
    pub(super) word: AtomicU64,
    /// The object as the owner of regions.
    pub(super) name: AtomicU64,
    /// Never null: the mark of the thread that used the object last, [`NOBODY`] or [`SEIZED`].
    owner: AtomicPtr<Mark>,
    pub(super) object: UnsafeCell<Option<T>>,
    shared: Mutex<Option<S>>,
}

// SAFETY: `object` is touched only by the thread that has written its mark as the owner's, or that
// has seized (or freshly taken) the slot, so it moves between threads but is never shared: `T: Send`
// is enough. The shared part is behind a mutex.
unsafe impl<T: Send, S: Send> Sync for Slot<T, S> {}

impl<T, S> Slot<T, S> {
    pub(super) fn shared(&self) -> MutexGuard<'_, Option<S>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn owner(&self) -> &'static Mark {
        // SAFETY: marks are never freed, and the pointer is that of one: see the field.
        unsafe { &*self.owner.load(Ordering::SeqCst) }
    }

    /// What a mark says of a call with this object.
    #[inline]
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Enters an object that another thread used last, or none.
    #[cold]
    pub(super) fn take_over(
        &self,
        generation: u32,
        mask: u32,
    ) -> Result<&'static Mark, HandleError> {
        let mine = Mark::mine();
        for _ in 0..ATTEMPTS {
            let seized = self.seize_soon()?;
            // As long as the slot is seized, this does not change.
            let word = Word(self.word.load(Ordering::Acquire));
            if !word.lets_in(generation, mask) {
                return Err(word.refusal(generation, mask));
            }
            seized.hand_to(mine);
            // A call from within another one of this thread.
            if !mine.enter(self.address()) {
                return Err(HandleError::Busy);
            }
            if self.owner().is(mine) {
                return Ok(mine);
            }
            // Somebody has seized it in between; who only wanted to is gone in a moment.
            mine.leave();
        }
        Err(HandleError::Busy)
    }

    /// As [`seize`](Self::seize), but tries again if somebody else has seized it: one who asks for the
    /// object that was here before finds that out soon, and is not to disturb who has a right to this
    /// one.
    pub(super) fn seize_soon(&self) -> Result<Seized<'_, T, S>, HandleError> {
        let mut pause = Pause::default();
        for _ in 0..ATTEMPTS {
            if let Some(seized) = self.seize()? {
                return Ok(seized);
            }
            pause.once();
        }
        Err(HandleError::Busy)
    }

    /// Keeps every thread out that is not inside; an error if one is. Never waits; `None` if somebody
    /// else has seized it or does so now.
    pub(super) fn seize(&self) -> Result<Option<Seized<'_, T, S>>, HandleError> {
        let before = self.owner();
        if before.is(&SEIZED) {
            return Ok(None);
        }
        let expected = ptr::from_ref(before).cast_mut();
        let seized = ptr::from_ref(&SEIZED).cast_mut();
        let exchanged =
            self.owner
                .compare_exchange(expected, seized, Ordering::SeqCst, Ordering::Relaxed);
        if exchanged.is_err() {
            return Ok(None);
        }
        let seized = Seized {
            slot: self,
            next: before,
        };
        if before.is_mine() || before.is(&NOBODY) {
            fence(Ordering::SeqCst);
        } else {
            heavy_barrier();
        }
        if before.is_inside(self.address()) {
            // It goes on as the owner.
            return Err(HandleError::Busy);
        }
        Ok(Some(seized))
    }
}

impl<T, S> Default for Slot<T, S> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::new(0, State::Free).0),
            name: AtomicU64::new(0),
            owner: AtomicPtr::new(ptr::from_ref(&NOBODY).cast_mut()),
            object: UnsafeCell::new(None),
            shared: Mutex::new(None),
        }
    }
}

/// A slot that nobody can enter. When it goes, `next` is the owner.
pub(super) struct Seized<'a, T, S> {
    pub(super) slot: &'a Slot<T, S>,
    next: &'static Mark,
}

impl<T, S> Seized<'_, T, S> {
    pub(super) fn hand_to(mut self, next: &'static Mark) {
        self.next = next;
    }
}

impl<T, S> Drop for Seized<'_, T, S> {
    fn drop(&mut self) {
        let next = ptr::from_ref(self.next).cast_mut();
        self.slot.owner.store(next, Ordering::SeqCst);
    }
}

/// `generation (32 bits) | state (32)`.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free = 0,
    Open = 1,
    Poisoned = 2,
}

impl Word {
    pub(super) const fn new(generation: u32, state: State) -> Self {
        Self((generation as u64) << 32 | state as u64)
    }

    #[inline]
    pub(super) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) const fn state(self) -> State {
        match self.0 as u32 {
            0 => State::Free,
            1 => State::Open,
            _ => State::Poisoned,
        }
    }

    /// Whether it lets in somebody who asks for the bits of `mask` of `generation`.
    #[inline]
    pub(super) const fn lets_in(self, generation: u32, mask: u32) -> bool {
        let asked = (mask as u64) << 32 | u32::MAX as u64;
        self.0 & asked == Self::new(generation, State::Open).0
    }

    /// Why it does not.
    #[cold]
    pub(super) fn refusal(self, generation: u32, mask: u32) -> HandleError {
        if self.generation() & mask != generation || self.state() == State::Free {
            HandleError::Stale
        } else {
            HandleError::Poisoned
        }
    }
}
