//! [`Tables`]: what is under the one lock of a cache.
//!
//! Nothing is registered, deregistered or reported here. Entries without leases that leave the tables
//! are handed to the caller, to be deregistered after unlocking.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::{Entry, FOUND, HIDDEN, Leased, Outcome};
use crate::key::Key;
use crate::policy::Policy;
use crate::range::AddressRange;
use crate::ranges::Ranges;
use crate::registration::{LeaseError, Registration};
use crate::request::{Target, Wanted};
use crate::statistics::{Invalidated, Statistics};
use crate::sync::thread;

/// A lease, and what its holder has to register to complete the entry, if it is the first.
pub(crate) type Begun<R> = (Leased<R>, Option<Target>);

/// Entries without leases that are in no table any more. The references are the last ones.
pub(crate) type Ended<R> = Vec<Arc<Entry<R>>>;

pub(crate) struct Tables<R: Registration> {
    pub(crate) policy: Policy,
    /// What can be found.
    index: BTreeMap<Key, Ranges<Arc<Entry<R>>>>,
    /// What is being registered, and by which threads: a few at once.
    pending: Vec<(thread::ThreadId, Arc<Entry<R>>)>,
    /// What has no leases, in the order of last use. It is in the index, too.
    idle: BTreeMap<u64, Arc<Entry<R>>>,
    /// Numbers given to what is idle so far.
    idle_numbers: u64,
    pub(crate) statistics: Statistics,
}

impl<R: Registration> Tables<R> {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            index: BTreeMap::new(),
            pending: Vec::new(),
            idle: BTreeMap::new(),
            idle_numbers: FOUND,
            statistics: Statistics::default(),
        }
    }

    /// A lease on a live registration.
    pub(crate) fn find(&mut self, wanted: &Wanted) -> Option<Leased<R>> {
        // Keys that differ in nothing but rights follow each other.
        let mut strongest = wanted.key;
        strongest.access.rights = u32::MAX;
        let entry = self
            .index
            .range(wanted.key..=strongest)
            .filter(|(key, _)| key.serves(&wanted.key))
            .find_map(|(_, ranges)| ranges.covering(wanted.bytes))?;
        let leased = entry.lease(wanted.pages.covers(entry.range));
        self.remove_idle(&leased.entry);
        self.statistics.hits += 1;
        Some(leased)
    }

    /// A lease on what is live, or is being registered by another thread, or is to be registered now.
    pub(crate) fn lease(&mut self, wanted: &Wanted) -> Result<Begun<R>, LeaseError<R::Error>> {
        if let Some(leased) = self.find(wanted) {
            return Ok((leased, None));
        }
        let target = wanted.target?;
        let own_thread = thread::current().id();
        for (thread, entry) in self.pending.iter().filter(|(_, entry)| entry.is_found()) {
            if entry.key.serves(&wanted.key) && entry.range.covers(wanted.bytes) {
                if *thread == own_thread {
                    return Err(LeaseError::Reentrant(target.range));
                }
                self.statistics.waits += 1;
                return Ok((entry.lease(wanted.pages.covers(entry.range)), None));
            }
        }
        self.statistics.misses += 1;
        let entry = Arc::new(Entry::new(wanted.key, target.range));
        let leased = entry.lease(true);
        self.pending.push((own_thread, entry));
        Ok((leased, Some(target)))
    }

    /// Ends a pending registration.
    pub(crate) fn complete(&mut self, entry: &Arc<Entry<R>>, outcome: Outcome<R>) {
        self.pending.retain(|(_, other)| !Arc::ptr_eq(other, entry));
        match &outcome {
            Ok(_) => {
                self.statistics.registrations += 1;
                self.statistics.live += 1;
                self.statistics.live_bytes += entry.range.length() as u64;
                if entry.is_found() {
                    let ranges = self.index.entry(entry.key).or_default();
                    ranges.insert(entry.range, Arc::clone(entry));
                }
            }
            Err(error) => self.statistics.failed_registrations += u64::from(error.is_some()),
        }
        // Set once: only the thread that registers completes an entry.
        let _ = entry.outcome.set(outcome);
    }

    /// Gives a lease back.
    pub(crate) fn give_back(&mut self, leased: Leased<R>) -> Ended<R> {
        let Leased { entry, is_full } = leased;
        let is_fully_leased = entry.remains_full(is_full);
        let mut ended = Vec::new();
        // This reference is the lease's that ends, and another the index's.
        if Arc::strong_count(&entry) > 1 + usize::from(entry.is_found()) {
            let must_be_full = self.policy == Policy::WhileFullyLeased;
            if must_be_full && !is_fully_leased && entry.key.space.is_named_by_address() {
                self.hide(&entry);
            }
        } else if let Policy::KeepIdle {
            registrations,
            bytes,
        } = self.policy
            && entry.is_found()
        {
            self.add_idle(entry);
            while self.statistics.idle > registrations as u64
                || self.statistics.idle_bytes > bytes as u64
            {
                ended.extend(self.end_oldest());
                self.statistics.evictions += 1;
            }
        } else {
            ended.push(self.end(entry));
        }
        ended
    }

    /// Ends everything that is idle.
    pub(crate) fn flush(&mut self) -> Ended<R> {
        std::iter::from_fn(|| self.end_oldest()).collect()
    }

    /// Makes unfindable what has a byte of `range` and a key that is `selected`.
    pub(crate) fn invalidate(
        &mut self,
        range: AddressRange,
        selected: impl Fn(&Key) -> bool,
    ) -> (Invalidated, Ended<R>) {
        let mut met = Invalidated::default();
        for (_, entry) in &self.pending {
            if entry.is_found() && selected(&entry.key) && entry.range.meets(range) {
                entry.set_standing(HIDDEN);
                met.pending += 1;
            }
        }
        let mut ended = Vec::new();
        let mut found = Vec::new();
        self.index.retain(|key, ranges| {
            if selected(key) {
                ranges.take(range, &mut found);
            }
            !ranges.is_empty()
        });
        for entry in found {
            self.remove_idle(&entry);
            entry.set_standing(HIDDEN);
            met.live += 1;
            // This reference was the index's.
            if Arc::strong_count(&entry) > 1 {
                met.leased += 1;
            } else {
                ended.push(self.end(entry));
            }
        }
        self.statistics.invalidations += met.live as u64;
        (met, ended)
    }

    /// Takes an entry without leases out of the tables.
    fn end(&mut self, entry: Arc<Entry<R>>) -> Arc<Entry<R>> {
        self.hide(&entry);
        self.statistics.live -= 1;
        self.statistics.live_bytes -= entry.range.length() as u64;
        entry
    }

    fn hide(&mut self, entry: &Entry<R>) {
        if entry.is_found()
            && let Some(ranges) = self.index.get_mut(&entry.key)
        {
            entry.set_standing(HIDDEN);
            ranges.remove(entry.range);
            if ranges.is_empty() {
                self.index.remove(&entry.key);
            }
        }
    }

    fn add_idle(&mut self, entry: Arc<Entry<R>>) {
        self.idle_numbers += 1;
        entry.set_standing(self.idle_numbers);
        self.statistics.idle += 1;
        self.statistics.idle_bytes += entry.range.length() as u64;
        self.idle.insert(self.idle_numbers, entry);
    }

    /// Does nothing if the entry is not idle.
    fn remove_idle(&mut self, entry: &Entry<R>) {
        if entry.standing() != FOUND {
            self.idle.remove(&entry.standing());
            entry.set_standing(FOUND);
            self.statistics.idle -= 1;
            self.statistics.idle_bytes -= entry.range.length() as u64;
        }
    }

    /// Ends the idle entry that was used longest ago.
    fn end_oldest(&mut self) -> Option<Arc<Entry<R>>> {
        let entry = Arc::clone(self.idle.first_key_value()?.1);
        self.remove_idle(&entry);
        Some(self.end(entry))
    }
}
