//! Memory that is no longer what it was when it was registered.

use crate::index::Selection;
use crate::registration::Registration;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;

/// What an invalidation has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidated {
    /// Live registrations that are no longer found. Those without leases are deregistered already,
    /// the others will be when their last lease ends.
    pub entries: usize,
    /// Of these, the ones with leases.
    pub leased: usize,
    /// Registrations in progress, which whoever has asked for them will get, but nobody else.
    pub in_flight: usize,
}

impl<R: Registration> Shared<R> {
    /// Makes everything selected unfindable.
    pub(crate) fn invalidate(&self, selection: Selection) -> Invalidated {
        let mut flights = self.flights();
        let mut pool = self.pool();
        let mut index = self.index();
        let doomed = flights.take(selection);
        for flight in &doomed {
            flight.doomed.store(true, Ordering::Relaxed);
        }
        let entries = index.take(selection);
        let mut idle = Vec::new();
        let mut leased = 0;
        for entry in &entries {
            entry.indexed.store(false, Ordering::Relaxed);
            leased += usize::from(entry.leases.load(Ordering::Acquire) > 0);
            if let Some(pool) = &mut pool {
                idle.extend(pool.remove(entry));
            }
        }
        drop((index, pool, flights));
        self.counters.invalidations.add(entries.len() as u64);
        // `entries`, `idle` and `doomed` are dropped here, outside the locks: what has no lease is
        // deregistered.
        Invalidated {
            entries: entries.len(),
            leased,
            in_flight: doomed.len(),
        }
    }
}
