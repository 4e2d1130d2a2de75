//! [`Shared`]: the tables of a cache, which its handles and its entries have in common.
//!
//! There are three locks, always taken in this order and never held while anything is registered,
//! deregistered or reported:
//!
//! 1. `flights`, the registrations in progress;
//! 2. `pool`, the idle registrations, if any are kept;
//! 3. `index`, the live registrations that can be found.
//!
//! A hit takes a share of the third, and nothing else. What becomes of a lease that is not a hit is
//! in [`miss`](crate::miss), what becomes of a registration without leases in
//! [`idle`](crate::idle), and invalidation in [`invalidate`](crate::invalidate).

use crate::access::Access;
use crate::entry::{Entry, count_one_more};
use crate::flight::Flight;
use crate::index::Index;
use crate::inside::Inside;
use crate::lease::Lease;
use crate::memory::{Key, Space};
use crate::pages::PageRange;
use crate::pool::{IdleLimits, Pool};
use crate::registration::{FailedDeregistration, Registration};
use crate::request::Wanted;
use crate::statistics::{Counters, Statistics};
use crate::sync::{Arc, Mutex, MutexGuard, ShardedLock, ShardedLockWriteGuard, lock, read, write};

/// Is told of each deregistration that failed.
pub(crate) type Report<E> = dyn Fn(&FailedDeregistration<'_, E>) + Send + Sync;

pub(crate) struct Shared<R: Registration> {
    flights: Mutex<Index<Arc<Flight<R>>>>,
    pool: Option<Mutex<Pool<R>>>,
    index: ShardedLock<Index<Arc<Entry<R>>>>,
    pub(crate) counters: Counters,
    pub(crate) page_size: usize,
    /// Whether what its address names is only found while somebody has a lease on all of it.
    pub(crate) vouched_only: bool,
    report: Box<Report<R::Error>>,
}

pub(crate) type FlightsGuard<'a, R> = Inside<MutexGuard<'a, Index<Arc<Flight<R>>>>>;
pub(crate) type PoolGuard<'a, R> = Inside<MutexGuard<'a, Pool<R>>>;
pub(crate) type IndexGuard<'a, R> = Inside<ShardedLockWriteGuard<'a, Index<Arc<Entry<R>>>>>;

impl<R: Registration> Shared<R> {
    pub(crate) fn new(
        page_size: usize,
        idle: Option<IdleLimits>,
        vouched_only: bool,
        report: Box<Report<R::Error>>,
    ) -> Self {
        Self {
            flights: Mutex::new(Index::new()),
            pool: idle.map(|limits| Mutex::new(Pool::new(limits))),
            index: ShardedLock::new(Index::new()),
            counters: Counters::default(),
            page_size,
            vouched_only,
            report,
        }
    }

    pub(crate) fn flights(&self) -> FlightsGuard<'_, R> {
        Inside::enter(|| lock(&self.flights))
    }

    pub(crate) fn pool(&self) -> Option<PoolGuard<'_, R>> {
        let pool = self.pool.as_ref()?;
        Some(Inside::enter(|| lock(pool)))
    }

    pub(crate) fn index(&self) -> IndexGuard<'_, R> {
        Inside::enter(|| write(&self.index))
    }

    /// A lease on a live registration that covers what is wanted.
    #[inline]
    pub(crate) fn hit(&self, wanted: &Wanted) -> Option<Lease<R>> {
        let index = read(&self.index);
        let entry = index.cover(&wanted.key, wanted.bytes)?;
        // Counted before the share is given back: nobody with the whole lock misses it.
        let before = count_one_more(&entry.leases);
        let vouches =
            self.must_be_vouched(&wanted.key) && wanted.pages.contains(&entry.pages.interval());
        if vouches {
            count_one_more(&entry.vouchers);
        }
        let entry = Arc::clone(entry);
        drop(index);
        self.counters.hit();
        if before == 0 {
            self.no_longer_idle(&entry);
        }
        Some(Lease::counted(entry, vouches))
    }

    /// Whether such a registration is only found while somebody answers for all of it. What an inode
    /// names does not change while it is registered; what an address names may.
    #[inline]
    pub(crate) fn must_be_vouched(&self, key: &Key) -> bool {
        self.vouched_only && !matches!(key.space, Space::DmaBuf { .. })
    }

    /// Deregisters outside the locks, and reports a failure.
    pub(crate) fn deregister(
        &self,
        registration: R,
        pages: PageRange,
        access: Access,
    ) -> Result<(), R::Error> {
        let result = registration.deregister();
        let bytes = pages.length() as u64;
        self.counters.live.subtract(1);
        self.counters.live_bytes.subtract(bytes);
        match &result {
            Ok(()) => self.counters.deregistrations.add(1),
            Err(error) => {
                self.counters.failed_deregistrations.add(1);
                self.counters.lost_bytes.add(bytes);
                (self.report)(&FailedDeregistration {
                    pages,
                    access,
                    error,
                });
            }
        }
        result
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.counters.read();
        if let Some(pool) = self.pool() {
            statistics.idle = pool.length() as u64;
            statistics.idle_bytes = pool.bytes() as u64;
        }
        statistics
    }

    /// Heap bytes that the tables and entries take, without what registrations refer to.
    pub(crate) fn overhead(&self) -> usize {
        // An entry has two counts in front of it.
        let entry = size_of::<Entry<R>>() + 2 * size_of::<usize>();
        let entries = usize::try_from(self.counters.read().live).unwrap_or(0);
        let pool = self.pool().map_or(0, |pool| pool.overhead());
        entries * entry + pool + read(&self.index).bytes()
    }
}
