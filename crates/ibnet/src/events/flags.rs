//! How the events thread gets the attention of whoever owns a connection, polling or waiting.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Bits that tell the owner of a connection to look at something off the hot path, and how to wake
/// it if it does not poll.
pub(crate) struct EventFlags {
    /// The bits, and below them the number of forks ([`ibnet_verbs::forks`]) of the process that made
    /// this: a forked child, for whom nothing is right, finds with the same look that it differs.
    word: AtomicU32,
    /// Of the one who waits; there is at most one, because waiting borrows the connection.
    waker: Mutex<Option<Waker>>,
}

/// Something happened on the control channel.
pub(crate) const CONTROL: u32 = 1 << 28;
/// The device or the queue pair is beyond repair.
pub(crate) const FATAL: u32 = 1 << 29;
/// Set by the owner itself: the connection is ending, keep looking.
pub(crate) const ENDING: u32 = 1 << 30;
/// A port of the connection has gained or lost its link, or its address.
pub(crate) const PORT: u32 = 1 << 31;

const NEWS: u32 = CONTROL | FATAL | ENDING | PORT;

impl Default for EventFlags {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(ibnet_verbs::forks() & !NEWS),
            waker: Mutex::default(),
        }
    }
}

impl EventFlags {
    /// Whether there is anything to look at: a bit, or that this is a forked child. The cheap check
    /// of the hot path.
    #[inline]
    pub(crate) fn is_needed(&self) -> bool {
        self.word.load(Ordering::Relaxed) != ibnet_verbs::forks()
    }

    /// Whether this process is a forked child of the one that made this.
    pub(crate) fn is_inherited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !NEWS != ibnet_verbs::forks()
    }

    /// The bits that are set.
    pub(crate) fn bits(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & NEWS
    }

    /// Sets `bits`, and wakes who waits. Not to be called with a lock held: see
    /// [`wake`](Self::wake).
    pub(crate) fn raise(&self, bits: u32) {
        self.word.fetch_or(bits, Ordering::Release);
        self.wake();
    }

    /// Clears `bits`, and sees everything that was done before they were raised.
    pub(crate) fn clear(&self, bits: u32) {
        self.word.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Wakes who waits, if anybody does. Not to be called with a lock held: what a waker does is
    /// the application's business, which may drop a connection there.
    pub(crate) fn wake(&self) {
        let waker = self.lock().take();
        // The thread that calls this serves everybody, so it outlives a waker that panics.
        let woken = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
        if woken.is_err() {
            tracing::error!("a waker has panicked");
        }
    }

    /// Has `waker` woken at the next news, once, in place of the one before. What came earlier does
    /// not count: look once more after this call.
    pub(crate) fn wake_later(&self, waker: &Waker) {
        let mut slot = self.lock();
        match &mut *slot {
            Some(old) => old.clone_from(waker),
            None => *slot = Some(waker.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        // The slot is replaced as a whole, so it is never half changed.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventFlags").field(&self.word).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_waker_is_woken_once() {
        let (first, last) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let flags = EventFlags::default();
        flags.wake_later(&Waker::from(Arc::clone(&first)));
        flags.wake_later(&Waker::from(Arc::clone(&last)));
        flags.raise(CONTROL);
        flags.raise(PORT);
        assert_eq!(flags.bits(), CONTROL | PORT);
        let count = |counter: &Counter| counter.0.load(Ordering::Relaxed);
        assert_eq!((count(&first), count(&last)), (0, 1));
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_is_nobody_elses_problem() {
        let flags = EventFlags::default();
        flags.wake_later(&Waker::from(Arc::new(Panics)));
        flags.wake();
        let after = Arc::new(Counter::default());
        flags.wake_later(&Waker::from(Arc::clone(&after)));
        flags.wake();
        assert_eq!(after.0.load(Ordering::Relaxed), 1);
    }
}
