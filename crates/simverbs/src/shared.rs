//! [`Shared`]: the state of a fabric behind its lock, and what needs no lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::State;
use crate::engine::timers::{Clock, Nanos};
use crate::slots::Slot;
use crate::sysfs::Sysfs;

/// A fabric, as its C objects and its Rust handles share it.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Told when something happened that a call may be waiting for: an acknowledgement of an event,
    /// the end of a copy.
    changed: Condvar,
    /// The clock of a free-running fabric.
    clock: Clock,
    /// When the next timer of a free-running fabric is due.
    attention: Arc<AtomicU64>,
    /// Whether a fault waits for polls.
    watches_polls: Arc<AtomicBool>,
    /// Device lists that were not freed.
    pub(crate) lists: AtomicUsize,
    pub(crate) sysfs: Option<Sysfs>,
    pub(crate) slot: Slot,
}

impl Shared {
    pub(crate) fn new(state: State, sysfs: Option<Sysfs>, slot: Slot) -> Self {
        Self {
            clock: state.clock,
            attention: state.attention(),
            watches_polls: state.faults.watches_polls(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            lists: AtomicUsize::new(0),
            sysfs,
            slot,
        }
    }

    /// A panic in one thread (of a test, say) does not keep the others from going on: no step of
    /// the engine leaves anything half-done that another could not stand.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does everything that can be done now, if the fabric is free-running.
    #[inline]
    pub(crate) fn run<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.is_stepped() {
            return state;
        }
        while let Some(job) = state.run() {
            drop(state);
            job.run();
            state = self.lock();
            state.finish_copy(&job);
            self.changed.notify_all();
        }
        state
    }

    /// The same, from without.
    pub(crate) fn progress(&self) {
        drop(self.run(self.lock()));
    }

    /// Gives up the lock until `is_over`.
    pub(crate) fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut is_over: impl FnMut(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !is_over(&state) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Wakes the threads that wait in [`wait_until`](Self::wait_until).
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Whether a poll has to look at more than whether there is anything to be polled.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        let next = self.attention.load(Ordering::Relaxed);
        let is_due = next != Nanos::MAX && self.clock.now() >= next;
        is_due || self.watches_polls.load(Ordering::Relaxed)
    }

    /// How long it is until something is to be done, if there is anything.
    pub(crate) fn until_attention(&self) -> Option<Duration> {
        match self.attention.load(Ordering::Relaxed) {
            Nanos::MAX => None,
            next => Some(Duration::from_nanos(next.saturating_sub(self.clock.now()))),
        }
    }

    #[inline]
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.clock, Clock::Virtual(_))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(ticker) = &state.ticker {
            ticker.unpark();
        }
    }
}
