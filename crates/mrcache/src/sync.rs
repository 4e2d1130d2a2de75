//! The locks and atomics of this crate: the real ones, or loom's when it explores their orders.
//!
//! Counters that are only read for statistics are not here: no decision depends on them.

#[cfg(not(loom))]
pub(crate) use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, RwLock as ShardedLock,
        RwLockReadGuard as ShardedLockReadGuard, RwLockWriteGuard as ShardedLockWriteGuard, atomic,
    },
    thread,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under a lock of this crate calls out or panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A share of the lock. With [`ShardedLock`], threads that only read write no common memory.
#[inline]
pub(crate) fn read<T>(lock: &ShardedLock<T>) -> ShardedLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &ShardedLock<T>) -> ShardedLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The value, if this was the last reference to it. Of several threads that give up the last
/// references at once, exactly one gets it.
pub(crate) fn into_inner<T>(last: Arc<T>) -> Option<T> {
    #[cfg(not(loom))]
    return Arc::into_inner(last);
    // Loom has no such function. Whoever is the last drops the value instead, which must do, too.
    #[cfg(loom)]
    return Arc::try_unwrap(last).ok();
}
