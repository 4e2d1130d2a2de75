//! What becomes of a registration when its last lease is gone, and when it gets one again.

use crate::entry::Entry;
use crate::registration::Registration;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, into_inner};

impl<R: Registration> Shared<R> {
    /// The number of leases of `entry` has just fallen to 0. It may have risen again since.
    ///
    /// Nothing is deregistered here unless others are evicted: the caller has a reference to the
    /// entry and drops it next.
    pub(crate) fn unleased(&self, entry: &Arc<Entry<R>>) {
        let Some(mut pool) = self.pool() else {
            drop(self.forget(entry));
            return;
        };
        if pool.is_closed {
            drop(pool);
            drop(self.forget(entry));
            return;
        }
        let is_idle =
            entry.leases.load(Ordering::Acquire) == 0 && entry.indexed.load(Ordering::Relaxed);
        if !is_idle {
            return;
        }
        pool.add(entry);
        // Dropped after unlocking.
        let mut evicted = Vec::new();
        while pool.exceeds_limits() {
            let Some(oldest) = pool.oldest() else { break };
            evicted.extend(pool.remove(&oldest));
            // One that has a lease again is in here only because its new user waits for the lock.
            if let Some(found) = self.forget(&oldest) {
                self.counters.evictions.add(1);
                evicted.push(found);
            }
            evicted.push(oldest);
        }
        drop(pool);
        drop(evicted);
    }

    /// The last lease on all of `entry` is gone: it is not found any more, unless there is one again.
    /// Those who have a lease on a part keep it.
    #[cold]
    pub(crate) fn unvouched(&self, entry: &Entry<R>) {
        let mut index = self.index();
        if entry.vouchers.load(Ordering::Acquire) > 0 || !entry.indexed.load(Ordering::Relaxed) {
            return;
        }
        entry.indexed.store(false, Ordering::Relaxed);
        let found = index.remove(&entry.key, entry.pages.interval());
        drop(index);
        drop(found);
    }

    /// `entry` had no lease and has got one.
    pub(crate) fn no_longer_idle(&self, entry: &Arc<Entry<R>>) {
        if let Some(mut pool) = self.pool() {
            let kept = pool.remove(entry);
            drop(pool);
            drop(kept);
        }
    }

    /// Takes `entry` out of the index, unless somebody has a lease on it or it is out already. Gives
    /// the index's reference, to be dropped outside all locks.
    fn forget(&self, entry: &Entry<R>) -> Option<Arc<Entry<R>>> {
        let mut index = self.index();
        if entry.leases.load(Ordering::Acquire) > 0 || !entry.indexed.load(Ordering::Relaxed) {
            return None;
        }
        entry.indexed.store(false, Ordering::Relaxed);
        index.remove(&entry.key, entry.pages.interval())
    }

    /// Deregisters all idle registrations, and keeps none any more if `closing`. Gives how many they
    /// were.
    ///
    /// # Errors
    /// The first failure to deregister one, after all were tried.
    pub(crate) fn flush(&self, closing: bool) -> Result<usize, R::Error> {
        let mut flushed = Vec::new();
        if let Some(mut pool) = self.pool() {
            pool.is_closed |= closing;
            while let Some(oldest) = pool.oldest() {
                drop(pool.remove(&oldest));
                // Only what nobody has a lease on again. The other reference keeps the entry alive
                // until the lock is given back.
                if let Some(found) = self.forget(&oldest) {
                    flushed.push((found, true));
                }
                flushed.push((oldest, false));
            }
        }
        let count = flushed.iter().filter(|(_, is_out)| *is_out).count();
        let mut result = Ok(count);
        for (entry, _) in flushed {
            if let Some(Err(error)) = into_inner(entry).map(Entry::deregister)
                && result.is_ok()
            {
                result = Err(error);
            }
        }
        result
    }
}
