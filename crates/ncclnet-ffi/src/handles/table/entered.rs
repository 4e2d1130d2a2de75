//! Being in a call with an object.

use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::thread;

use super::super::mark::Mark;
use super::super::regions::Owner;
use super::slot::{Slot, State, Word};

/// An object that this thread is in a call with.
pub(crate) struct Entered<'a, T, S> {
    pub(super) slot: &'a Slot<T, S>,
    pub(super) mark: &'static Mark,
    /// The mark is this thread's.
    pub(super) not_send: PhantomData<*const ()>,
}

impl<T, S> Entered<'_, T, S> {
    /// Does `work` with the object, as the whole of the call; cheaper than letting the guard go.
    #[inline]
    pub(crate) fn run<R>(mut self, work: impl FnOnce(&mut T, Inside<'_>) -> R) -> R {
        let (object, inside) = self.parts();
        // Should it panic, the guard goes and finds that out.
        let result = work(object, inside);
        self.mark.leave();
        mem::forget(self);
        result
    }

    /// The object, and the proof that this thread is in a call with it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, Inside<'_>) {
        let inside = Inside {
            owner: Owner(self.slot.name.load(Ordering::Relaxed)),
            call: PhantomData,
        };
        // SAFETY: the object was put there before the word let anybody in, and this guard is the
        // only one for as long as the mark says so; `&mut self` makes this the only reference.
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
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.parts().0
    }
}

impl<T, S> Drop for Entered<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        // A panic may have left the object half-changed.
        if thread::panicking() {
            let word = Word(self.slot.word.load(Ordering::Relaxed));
            let poisoned = Word::new(word.generation(), State::Poisoned);
            self.slot.word.store(poisoned.0, Ordering::Release);
        }
        self.mark.leave();
    }
}

/// The proof, for its lifetime, that a call is inside the communicator `id`.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'a> {
    owner: Owner,
    call: PhantomData<&'a ()>,
}

impl Inside<'_> {
    #[inline]
    pub(in super::super) fn owner(self) -> Owner {
        self.owner
    }
}
