//! [`Entry`]: a live registration, as the index, the idle pool and the leases share it.

use crate::memory::Key;
use crate::pages::PageRange;
use crate::registration::Registration;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A live registration. It is deregistered when the last reference to the entry is gone, which
/// happens outside all locks: whoever takes an entry out of a table drops it after unlocking.
///
/// In this order, so that the number of leases is in the same cache line as the number of references,
/// which are in front: a hit changes both, and with many entries each line is a wait for memory.
#[repr(C)]
pub(crate) struct Entry<R: Registration> {
    /// How many leases there are. It rises from 0 only under a share of the index's lock, and only
    /// if the entry is in the index. So under the whole lock a 0 stays.
    pub(crate) leases: AtomicU32,
    /// Of these, leases whose users answer for all of the pages. Counted only if it matters, and
    /// rises from 0 as `leases` does.
    pub(crate) vouchers: AtomicU32,
    /// Whether the index has it. Written under the index's whole lock.
    pub(crate) indexed: AtomicBool,
    /// Its place in the idle pool. Belongs to the pool, under the pool's lock.
    pub(crate) idle_place: AtomicU32,
    pub(crate) shared: Arc<Shared<R>>,
    /// None once it is deregistered.
    registration: Option<R>,
    pub(crate) pages: PageRange,
    pub(crate) key: Key,
}

/// No place in the idle pool.
pub(crate) const NOT_IDLE: u32 = u32::MAX;

/// Raises a number of leases by one, and gives what it was. A program that has two thousand million
/// leases on one registration has lost count of them, and is ended before the cache does, too.
#[inline]
pub(crate) fn count_one_more(number: &AtomicU32) -> u32 {
    let before = number.fetch_add(1, Ordering::Relaxed);
    if before > u32::MAX / 2 {
        std::process::abort();
    }
    before
}

impl<R: Registration> Entry<R> {
    /// Without leases, and not yet in the index.
    pub(crate) fn new(registration: R, key: Key, pages: PageRange, shared: Arc<Shared<R>>) -> Self {
        Self {
            registration: Some(registration),
            key,
            pages,
            leases: AtomicU32::new(0),
            vouchers: AtomicU32::new(0),
            indexed: AtomicBool::new(false),
            idle_place: AtomicU32::new(NOT_IDLE),
            shared,
        }
    }

    /// The registration. There is one as long as anybody can ask.
    #[inline]
    pub(crate) fn registration(&self) -> &R {
        match &self.registration {
            Some(registration) => registration,
            // It is only taken from an entry that nobody else refers to.
            None => unreachable!("a lease on what is deregistered"),
        }
    }

    /// Deregisters, and says if that failed.
    pub(crate) fn deregister(mut self) -> Result<(), R::Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), R::Error> {
        match self.registration.take() {
            Some(registration) => self
                .shared
                .deregister(registration, self.pages, self.key.access),
            None => Ok(()),
        }
    }
}

impl<R: Registration> Drop for Entry<R> {
    fn drop(&mut self) {
        // Failures are counted and reported where they happen.
        let _ = self.give_back();
    }
}
