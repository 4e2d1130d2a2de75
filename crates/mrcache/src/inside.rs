//! Whether this thread is inside one of the cache's locks.
//!
//! There it may allocate and free memory of the cache's own tables. An allocator that tells the cache
//! of each unmapping would then call it back and wait for itself.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false)
}

/// A lock's guard that also marks the thread.
pub(crate) struct Inside<G> {
    // Unlocked before the mark goes.
    guard: G,
    _mark: Mark,
}

struct Mark;

impl<G> Inside<G> {
    /// Marks, then locks.
    pub(crate) fn enter(lock: impl FnOnce() -> G) -> Self {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        let mark = Mark;
        Self {
            guard: lock(),
            _mark: mark,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

impl<G: Deref> Deref for Inside<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Inside<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}
