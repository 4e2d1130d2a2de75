//! [`Entry`]: a live registration, as the tables and the leases share it.

use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::memory::Key;
use crate::pages::PageRange;

/// A live registration.
///
/// Everything that changes is read and written under the cache's lock; it is atomic only because the
/// entry is shared. References are given up under the lock, too, so that there is one left when the
/// entry ends.
pub(crate) struct Entry<R> {
    pub(crate) registration: R,
    pub(crate) key: Key,
    pub(crate) pages: PageRange,
    leases: AtomicU32,
    /// Of these, leases on all of the pages.
    full_leases: AtomicU32,
    /// [`HIDDEN`], [`FOUND`], or its number in the idle pool, which is found as well.
    standing: AtomicU64,
}

/// Not in the index.
const HIDDEN: u64 = u64::MAX;
/// In the index and not idle.
const FOUND: u64 = 0;

impl<R> Entry<R> {
    /// An entry with so many leases.
    pub(crate) fn new(registration: R, key: Key, pages: PageRange, leases: u32, full: u32) -> Self {
        Self {
            registration,
            key,
            pages,
            leases: AtomicU32::new(leases),
            full_leases: AtomicU32::new(full),
            standing: AtomicU64::new(HIDDEN),
        }
    }

    /// One more lease.
    pub(crate) fn add_lease(&self, is_full: bool) {
        // A program with four thousand million leases on one registration has lost count of them.
        let Some(leases) = self.leases.load(Relaxed).checked_add(1) else {
            process::abort()
        };
        self.leases.store(leases, Relaxed);
        let full = self.full_leases.load(Relaxed) + u32::from(is_full);
        self.full_leases.store(full, Relaxed);
    }

    /// One lease less.
    pub(crate) fn remove_lease(&self, is_full: bool) {
        self.leases.store(self.leases.load(Relaxed) - 1, Relaxed);
        let full = self.full_leases.load(Relaxed) - u32::from(is_full);
        self.full_leases.store(full, Relaxed);
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.leases.load(Relaxed) > 0
    }

    pub(crate) fn is_fully_leased(&self) -> bool {
        self.full_leases.load(Relaxed) > 0
    }

    pub(crate) fn is_found(&self) -> bool {
        self.standing.load(Relaxed) != HIDDEN
    }

    /// Its number in the idle pool.
    pub(crate) fn idle(&self) -> Option<u64> {
        let number = self.standing.load(Relaxed);
        (number != HIDDEN && number != FOUND).then_some(number)
    }

    pub(crate) fn set_found(&self) {
        self.standing.store(FOUND, Relaxed);
    }

    pub(crate) fn set_hidden(&self) {
        self.standing.store(HIDDEN, Relaxed);
    }

    pub(crate) fn set_idle(&self, number: u64) {
        self.standing.store(number, Relaxed);
    }
}
