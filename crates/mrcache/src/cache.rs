//! The cache: a map from (pages, kind) to the live registration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use thiserror::Error;

use crate::lease::{Entry, Lease, Place};
use crate::pages::{InvalidRange, PageRange};

/// A cache of registrations `R`, told apart by their pages and by `K`. See the [crate](crate)
/// documentation. Clones share one cache.
pub struct Cache<K: Ord, R> {
    shared: Arc<Shared<K, R>>,
}

/// Why a lease was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LeaseError<E> {
    /// The range itself is invalid.
    #[error(transparent)]
    Range(#[from] InvalidRange),
    /// The registration failed.
    #[error("{0}")]
    Register(E),
}

/// What a cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Registrations that are live now.
    pub live: usize,
    /// Leases that shared a live registration.
    pub hits: u64,
    /// Leases that had to register.
    pub misses: u64,
}

type Entries<K, R> = BTreeMap<(PageRange, K), Weak<Entry<K, R>>>;

pub(crate) struct Shared<K: Ord, R> {
    page_size: usize,
    entries: Mutex<Entries<K, R>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl<K: Ord, R> Clone for Cache<K, R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Ord + Clone, R> Default for Cache<K, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone, R> Cache<K, R> {
    /// An empty cache for pages of 4 KiB, the smallest that Linux has on the machines that RDMA
    /// runs on. On a system with larger pages use [`with_page_size`](Self::with_page_size).
    pub fn new() -> Self {
        Self::with_page_size(4096)
    }

    /// An empty cache for pages of `page_size` bytes, a power of two (`sysconf(_SC_PAGESIZE)`).
    pub fn with_page_size(page_size: usize) -> Self {
        assert!(page_size.is_power_of_two(), "a page size is a power of two");
        Self {
            shared: Arc::new(Shared {
                page_size,
                entries: Mutex::new(BTreeMap::new()),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
            }),
        }
    }

    /// A lease on a registration of kind `kind` that covers `length` bytes at `address`. Calls
    /// `register` with the pages to register if no live lease covers the same ones.
    ///
    /// `register` runs without the cache's lock. If two threads register the same range at once,
    /// the later one's registration is dropped and both share the earlier.
    ///
    /// # Errors
    /// An invalid range, or what `register` returned.
    pub fn lease<E>(
        &self,
        address: usize,
        length: usize,
        kind: K,
        register: impl FnOnce(PageRange) -> Result<R, E>,
    ) -> Result<Lease<K, R>, LeaseError<E>> {
        let pages = PageRange::covering(address, length, self.shared.page_size)?;
        let key = (pages, kind);
        if let Some(entry) = self.shared.lock().get(&key).and_then(Weak::upgrade) {
            self.shared.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Lease(entry));
        }

        let registration = register(pages).map_err(LeaseError::Register)?;
        self.shared.misses.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            place: Place {
                shared: Arc::clone(&self.shared),
                key: key.clone(),
            },
            registration,
        });
        let mut entries = self.shared.lock();
        if let Some(earlier) = entries.get(&key).and_then(Weak::upgrade) {
            // Unlock first: dropping `entry` takes the lock.
            drop(entries);
            return Ok(Lease(earlier));
        }
        entries.insert(key, Arc::downgrade(&entry));
        Ok(Lease(entry))
    }

    /// What the cache holds and has done.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            live: self
                .shared
                .lock()
                .values()
                .filter(|entry| entry.strong_count() > 0)
                .count(),
            hits: self.shared.hits.load(Ordering::Relaxed),
            misses: self.shared.misses.load(Ordering::Relaxed),
        }
    }
}

impl<K: Ord, R> Shared<K, R> {
    fn lock(&self) -> MutexGuard<'_, Entries<K, R>> {
        // No code under this lock can panic half-way through a change of the map.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the entry for `key` out of the map, unless a newer registration is there already.
    pub(crate) fn forget(&self, key: &(PageRange, K)) {
        let mut entries = self.lock();
        if entries
            .get(key)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// Counts itself in while it lives.
    struct Counted<'a>(&'a AtomicUsize);

    impl<'a> Counted<'a> {
        fn new(live: &'a AtomicUsize) -> Self {
            live.fetch_add(1, Ordering::SeqCst);
            Counted(live)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn same_pages_share_and_the_last_lease_deregisters() {
        let live = AtomicUsize::new(0);
        let cache = Cache::new();
        let register = |_| Ok::<_, ()>(Counted::new(&live));
        let first = cache.lease(0x10000, 10, 0, register).unwrap();
        let second = cache.lease(0x10ff0, 16, 0, register).unwrap();
        assert!(Lease::same_registration(&first, &second));
        assert_eq!(live.load(Ordering::SeqCst), 1);
        drop(first);
        assert_eq!(live.load(Ordering::SeqCst), 1);
        drop(second);
        assert_eq!(live.load(Ordering::SeqCst), 0);
        assert_eq!(
            cache.statistics(),
            Statistics {
                live: 0,
                hits: 1,
                misses: 1
            }
        );
    }

    #[test]
    fn the_last_reference_hands_the_registration_out() {
        let live = AtomicUsize::new(0);
        let cache = Cache::new();
        let register = |_| Ok::<_, ()>(Counted::new(&live));
        let first = cache.lease(0x10000, 10, 0, register).unwrap();
        let second = first.clone();
        assert!(first.release().is_none());
        let registration = second.release().unwrap();
        assert_eq!(cache.statistics().live, 0);
        assert_eq!(live.load(Ordering::SeqCst), 1);
        drop(registration);
        assert_eq!(live.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn kinds_do_not_share() {
        // Pitfall 57: the address alone is not the key.
        let live = AtomicUsize::new(0);
        let cache = Cache::new();
        let register = |_| Ok::<_, ()>(Counted::new(&live));
        let read = cache.lease(0x10000, 10, "read", register).unwrap();
        let write = cache.lease(0x10000, 10, "write", register).unwrap();
        assert!(!Lease::same_registration(&read, &write));
        assert_eq!(live.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn removal_keeps_the_others_findable() {
        // Pitfall 56: deregistration of one entry must not hide another.
        let live = AtomicUsize::new(0);
        let cache = Cache::new();
        let register = |_| Ok::<_, ()>(Counted::new(&live));
        let mut leases: Vec<_> = (1..=64)
            .map(|page| cache.lease(page << 12, 1, 0, register).unwrap())
            .collect();
        while leases.len() > 1 {
            leases.remove(leases.len() / 2);
            for lease in &leases {
                let again = cache.lease(lease.pages().start(), 1, 0, register).unwrap();
                assert!(Lease::same_registration(lease, &again));
            }
            assert_eq!(live.load(Ordering::SeqCst), leases.len());
        }
    }

    #[test]
    fn a_failed_registration_leaves_nothing() {
        let cache: Cache<u8, ()> = Cache::new();
        let refused = cache.lease(0x1000, 1, 0, |_| Err("no memory"));
        assert_eq!(refused.err(), Some(LeaseError::Register("no memory")));
        assert_eq!(cache.statistics().live, 0);
        assert!(cache.lease(0x1000, 1, 0, |_| Ok::<_, ()>(())).is_ok());
    }

    #[test]
    fn registration_runs_without_the_lock() {
        // Pitfall 62: others must be able to use the cache while one registers.
        let cache: Cache<u8, u8> = Cache::new();
        let outer = cache.lease(0x1000, 1, 0, |_| {
            let inner = cache.lease(0x2000, 1, 0, |_| Ok::<_, ()>(2)).unwrap();
            assert_eq!(*inner, 2);
            Ok::<_, ()>(1)
        });
        assert_eq!(*outer.unwrap(), 1);
    }

    #[test]
    fn threads_on_the_same_ranges_end_with_nothing_live() {
        let live = AtomicUsize::new(0);
        let cache = Cache::new();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for seed in 0..4_usize {
                let (live, cache, start) = (&live, &cache, &start);
                scope.spawn(move || {
                    start.wait();
                    for step in 0..5_000_usize {
                        let page = 1 + (step * 7 + seed) % 5;
                        let lease = cache
                            .lease(page << 12, 1, 0, |_| Ok::<_, ()>(Counted::new(live)))
                            .unwrap();
                        assert_eq!(lease.pages().start(), page << 12);
                    }
                });
            }
        });
        assert_eq!(live.load(Ordering::SeqCst), 0);
        assert_eq!(cache.statistics().live, 0);
    }
}
