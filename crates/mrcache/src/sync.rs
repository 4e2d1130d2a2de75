//! [`Lock`], with the primitives of the standard library, or loom's when it explores their orders.

use std::cell::Cell;
use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::thread;

#[cfg(not(loom))]
thread_local! {
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
loom::thread_local! {
    static HAS_LOCK: Cell<bool> = Cell::new(false);
}

/// Whether this thread has the lock of a cache. What it frees then is memory of the cache's tables, and
/// an allocator that tells the cache of it would wait for itself.
pub(crate) fn has_lock() -> bool {
    HAS_LOCK.try_with(Cell::get).unwrap_or(false)
}

/// A lock that can be waited with. No thread has two at once, and nothing panics or calls out under
/// it.
pub(crate) struct Lock<T> {
    mutex: Mutex<T>,
    changed: Condvar,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            changed: Condvar::new(),
        }
    }

    /// Does something under the lock.
    pub(crate) fn with<U>(&self, action: impl FnOnce(&mut T) -> U) -> U {
        self.guarded(|mut guard| action(&mut guard))
    }

    /// Waits for an `outcome`. If it is not there yet, it is looked at again under the lock, and after
    /// each notification.
    pub(crate) fn wait<U>(&self, outcome: impl Fn() -> Option<U>) -> U {
        if let Some(outcome) = outcome() {
            return outcome;
        }
        self.guarded(|mut guard| {
            loop {
                if let Some(outcome) = outcome() {
                    return outcome;
                }
                let woken = self.changed.wait(guard);
                guard = woken.unwrap_or_else(PoisonError::into_inner);
            }
        })
    }

    pub(crate) fn notify_all(&self) {
        self.changed.notify_all();
    }

    fn guarded<U>(&self, action: impl FnOnce(MutexGuard<'_, T>) -> U) -> U {
        // Threads free memory also while they are taken down.
        let mark = |has_lock| HAS_LOCK.try_with(|own| own.set(has_lock));
        let _ = mark(true);
        let result = action(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = mark(false);
        result
    }
}
