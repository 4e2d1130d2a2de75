//! [`Entry`]: a registration, from when a thread begins to make it until it is given back.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::key::Key;
use crate::range::AddressRange;
use crate::registration::Registration;

/// A registration that is being made, or is live, or could not be made.
///
/// Each lease is one reference to it, each table that it is in another. References to what is live are
/// made and given up under the cache's lock, so that their count tells if there are leases. What
/// changes is read and written under the lock, too; it is atomic only because the entry is shared.
pub(crate) struct Entry<R: Registration> {
    pub(crate) key: Key,
    /// Whole pages, unless the DMA-BUF ends before.
    pub(crate) range: AddressRange,
    /// Not set while it is being made.
    pub(crate) outcome: OnceLock<Outcome<R>>,
    /// Leases on the whole range.
    full_leases: AtomicU32,
    standing: AtomicU64,
}

/// The registration; or the registrar's error; or none if the registrar panicked.
pub(crate) type Outcome<R> = Result<R, Option<Box<<R as Registration>::Error>>>;

/// A lease's reference to an entry.
pub(crate) struct Leased<R: Registration> {
    pub(crate) entry: Arc<Entry<R>>,
    /// The lease is on the whole range.
    pub(crate) is_full: bool,
}

/// The standing of what may be found and is not idle; what is idle has its number in the pool.
pub(crate) const FOUND: u64 = 0;
/// The standing of what must not be found: its memory is gone, or may be.
pub(crate) const HIDDEN: u64 = u64::MAX;

impl<R: Registration> Entry<R> {
    /// One that is being made.
    pub(crate) fn new(key: Key, range: AddressRange) -> Self {
        Self {
            key,
            range,
            outcome: OnceLock::new(),
            full_leases: AtomicU32::new(0),
            standing: AtomicU64::new(FOUND),
        }
    }

    /// One more lease.
    pub(crate) fn lease(self: &Arc<Self>, is_full: bool) -> Leased<R> {
        let full_leases = self.full_leases.load(Relaxed) + u32::from(is_full);
        self.full_leases.store(full_leases, Relaxed);
        let entry = Arc::clone(self);
        Leased { entry, is_full }
    }

    /// Counts out a lease on the whole range, and says if there is another.
    pub(crate) fn remains_full(&self, was_full: bool) -> bool {
        let full_leases = self.full_leases.load(Relaxed) - u32::from(was_full);
        self.full_leases.store(full_leases, Relaxed);
        full_leases > 0
    }

    /// [`FOUND`], [`HIDDEN`] or the number in the idle pool.
    pub(crate) fn standing(&self) -> u64 {
        self.standing.load(Relaxed)
    }

    pub(crate) fn set_standing(&self, standing: u64) {
        self.standing.store(standing, Relaxed);
    }

    pub(crate) fn is_found(&self) -> bool {
        self.standing() != HIDDEN
    }
}
