//! What a cache has done and holds.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// What a cache holds now and has done so far. Numbers that belong together may be a moment apart
/// while other threads use the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Registrations that are live now: leased, idle, or invalidated and still leased.
    pub live: u64,
    /// Their bytes, whole pages. Those of overlapping registrations count for each.
    pub live_bytes: u64,
    /// Of these, registrations that nobody has a lease on.
    pub idle: u64,
    /// Their bytes.
    pub idle_bytes: u64,
    /// Leases that were given on a live registration.
    pub hits: u64,
    /// Leases for which a registration was started.
    pub misses: u64,
    /// Leases that waited for a registration that another thread had started.
    pub waits: u64,
    /// Registrations that succeeded.
    pub registrations: u64,
    /// Registrations that failed.
    pub failed_registrations: u64,
    /// Deregistrations that succeeded.
    pub deregistrations: u64,
    /// Deregistrations that failed.
    pub failed_deregistrations: u64,
    /// Bytes of these: memory that the device may still have access to.
    pub lost_bytes: u64,
    /// Idle registrations that had to make room.
    pub evictions: u64,
    /// Registrations that an invalidation has made unfindable.
    pub invalidations: u64,
}

/// Where the cache counts.
#[derive(Default)]
pub(crate) struct Counters {
    /// Hits are counted per thread, so that threads do not fight for one word.
    hits: [CachePadded<AtomicU64>; SHARDS],
    pub(crate) live: Counter,
    pub(crate) live_bytes: Counter,
    pub(crate) misses: Counter,
    pub(crate) waits: Counter,
    pub(crate) registrations: Counter,
    pub(crate) failed_registrations: Counter,
    pub(crate) deregistrations: Counter,
    pub(crate) failed_deregistrations: Counter,
    pub(crate) lost_bytes: Counter,
    pub(crate) evictions: Counter,
    pub(crate) invalidations: Counter,
}

const SHARDS: usize = 8;

/// A number that decides nothing, so that it needs no order.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    #[inline]
    pub(crate) fn hit(&self) {
        self.hits[shard()].fetch_add(1, Ordering::Relaxed);
    }

    /// All but the idle ones.
    pub(crate) fn read(&self) -> Statistics {
        Statistics {
            live: self.live.read(),
            live_bytes: self.live_bytes.read(),
            idle: 0,
            idle_bytes: 0,
            hits: self
                .hits
                .iter()
                .map(|hits| hits.load(Ordering::Relaxed))
                .sum(),
            misses: self.misses.read(),
            waits: self.waits.read(),
            registrations: self.registrations.read(),
            failed_registrations: self.failed_registrations.read(),
            deregistrations: self.deregistrations.read(),
            failed_deregistrations: self.failed_deregistrations.read(),
            lost_bytes: self.lost_bytes.read(),
            evictions: self.evictions.read(),
            invalidations: self.invalidations.read(),
        }
    }
}

/// The place where this thread counts.
fn shard() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
    }
    // A lease may be used while its thread is taken down.
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}
