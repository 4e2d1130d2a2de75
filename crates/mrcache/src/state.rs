//! [`State`]: the tables of a cache, all under its one lock.
//!
//! Nothing is registered, deregistered or reported here. Entries without leases that leave the tables
//! are handed to the caller, to be deregistered after unlocking.

use std::collections::BTreeMap;

use crate::entry::Entry;
use crate::index::{Index, Selection};
use crate::pages::InvalidRange;
use crate::pending::{Outcome, Pending};
use crate::registration::{LeaseError, Registration};
use crate::request::{Target, Wanted};
use crate::statistics::Statistics;
use crate::sync::Arc;

/// How many idle registrations are kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// Registrations. With 0 none is kept.
    pub entries: usize,
    /// Bytes of registered pages. A registration that alone exceeds them is not kept.
    pub bytes: usize,
}

/// What an invalidation has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidated {
    /// Live registrations that are no longer found. Those without leases are deregistered already,
    /// the others will be when their last lease ends.
    pub entries: usize,
    /// Of these, the ones with leases.
    pub leased: usize,
    /// Registrations in progress: the threads that have asked for them get them, and no others.
    pub in_flight: usize,
}

/// An entry with a lease for the caller, and whether that is on all of its pages.
pub(crate) type Leased<R> = (Arc<Entry<R>>, bool);

/// What a lease takes.
pub(crate) enum Step<R> {
    Done(Leased<R>),
    /// To register what is pending under this number.
    Register(u64, Target),
    /// To wait for what is pending under this number.
    Wait {
        number: u64,
        /// The lease will be on all of its pages.
        is_full: bool,
        /// It is exactly what this thread would register.
        is_same: bool,
    },
}

/// Entries without leases that are in no table any more. The references are the last ones.
pub(crate) type Ended<R> = Vec<Arc<Entry<R>>>;

pub(crate) struct State<R: Registration> {
    /// What can be found.
    index: Index<Arc<Entry<R>>>,
    /// What is being registered: a few at once.
    pending: Vec<Pending<R>>,
    /// What has no leases, in the order of last use.
    idle: BTreeMap<u64, Arc<Entry<R>>>,
    /// How much that may be; without limits, nothing is kept.
    limits: Option<IdleLimits>,
    /// What its address names is found only while there is a lease on all pages of the registration.
    pinned_by_lease: bool,
    /// Numbers given to what is pending or idle so far.
    numbers: u64,
    pub(crate) statistics: Statistics,
}

impl<R: Registration> State<R> {
    pub(crate) fn new(limits: Option<IdleLimits>, pinned_by_lease: bool) -> Self {
        Self {
            index: Index::new(),
            pending: Vec::new(),
            idle: BTreeMap::new(),
            limits,
            pinned_by_lease,
            numbers: 0,
            statistics: Statistics::default(),
        }
    }

    /// A lease on a live registration.
    pub(crate) fn hit(&mut self, wanted: &Wanted) -> Option<Leased<R>> {
        let entry = Arc::clone(self.index.covering(wanted)?);
        let is_full = wanted.pages.covers(&entry.pages);
        entry.add_lease(is_full);
        self.remove_idle(&entry);
        self.statistics.hits += 1;
        Some((entry, is_full))
    }

    /// A lease on a live registration, or what it takes to get one.
    pub(crate) fn lease(
        &mut self,
        wanted: &Wanted,
        target: &Result<Target, InvalidRange>,
    ) -> Result<Step<R>, LeaseError<R::Error>> {
        if let Some(leased) = self.hit(wanted) {
            return Ok(Step::Done(leased));
        }
        let target = (*target)?;
        let mut pending = self.pending.iter_mut();
        let Some(pending) = pending.find(|pending| pending.covers(wanted)) else {
            self.statistics.misses += 1;
            let number = self.next_number();
            let pending = Pending::new(number, wanted.key, target.pages());
            self.pending.push(pending);
            return Ok(Step::Register(number, target));
        };
        if pending.is_of_this_thread() {
            return Err(LeaseError::Reentrant {
                address: target.start(),
                length: target.length(),
            });
        }
        self.statistics.waits += 1;
        let is_full = wanted.pages.covers(&pending.pages);
        pending.add_waiter(is_full);
        Ok(Step::Wait {
            number: pending.number,
            is_full,
            is_same: pending.key == wanted.key && pending.pages == target.pages(),
        })
    }

    /// Ends a registration in progress. The entry has a lease on all of its pages for the caller, and
    /// a lease for each thread that waits.
    pub(crate) fn succeed(&mut self, number: u64, registration: R) -> Arc<Entry<R>> {
        let pending = self.pending.swap_remove(self.place_of(number));
        let entry = Arc::new(pending.entry(registration));
        if !pending.is_invalidated {
            entry.set_found();
            let (key, pages) = (&entry.key, entry.pages);
            self.index.insert(key, pages, Arc::clone(&entry));
        }
        self.statistics.registrations += 1;
        self.statistics.live += 1;
        self.statistics.live_bytes += entry.pages.length() as u64;
        self.tell(pending, Ok(Arc::clone(&entry)));
        entry
    }

    /// Ends a registration in progress that has failed, with an error, or has panicked, without.
    pub(crate) fn fail(&mut self, number: u64, error: Option<Arc<R::Error>>) {
        let pending = self.pending.swap_remove(self.place_of(number));
        self.statistics.failed_registrations += u64::from(error.is_some());
        self.tell(pending, Err(error));
    }

    /// Keeps the outcome for the threads that wait.
    fn tell(&mut self, mut pending: Pending<R>, outcome: Outcome<R>) {
        if pending.waiters > 0 {
            pending.outcome = Some(outcome);
            self.pending.push(pending);
        }
    }

    /// How the registration with that number has ended, for one thread that waits for it; none if it
    /// has not yet.
    pub(crate) fn outcome(&mut self, number: u64) -> Option<Outcome<R>> {
        let place = self.place_of(number);
        let pending = &mut self.pending[place];
        let outcome = pending.outcome.clone()?;
        pending.waiters -= 1;
        if pending.waiters == 0 {
            self.pending.swap_remove(place);
        }
        Some(outcome)
    }

    fn place_of(&self, number: u64) -> usize {
        let mut pending = self.pending.iter();
        let place = pending.position(|pending| pending.number == number);
        // It is in there until the registering thread has ended it and all waiting ones have its outcome.
        place.unwrap_or_else(|| unreachable!("the outcome of nothing pending"))
    }

    /// Gives a lease back.
    pub(crate) fn give_back(&mut self, (entry, is_full): Leased<R>) -> Ended<R> {
        entry.remove_lease(is_full);
        let mut ended = Vec::new();
        if entry.is_leased() {
            let must_be_full = self.pinned_by_lease && entry.key.space.is_named_by_address();
            if must_be_full && !entry.is_fully_leased() {
                self.hide(&entry);
            }
        } else if entry.is_found() && self.limits.is_some() {
            self.add_idle(entry);
            while self.exceeds_limits() {
                ended.extend(self.end_oldest());
                self.statistics.evictions += 1;
            }
        } else {
            ended.push(self.end(entry));
        }
        ended
    }

    /// Ends everything that is idle, and keeps nothing from now on if `closing`.
    pub(crate) fn flush(&mut self, closing: bool) -> Ended<R> {
        if closing {
            self.limits = None;
        }
        std::iter::from_fn(|| self.end_oldest()).collect()
    }

    /// Makes what is selected unfindable.
    pub(crate) fn invalidate(&mut self, selection: Selection) -> (Invalidated, Ended<R>) {
        let mut met = Invalidated::default();
        for pending in &mut self.pending {
            if !pending.is_invalidated
                && pending.outcome.is_none()
                && selection.meets(&pending.key, pending.pages)
            {
                pending.is_invalidated = true;
                met.in_flight += 1;
            }
        }
        let mut ended = Vec::new();
        for entry in self.index.take(selection) {
            self.remove_idle(&entry);
            entry.set_hidden();
            met.entries += 1;
            if entry.is_leased() {
                met.leased += 1;
            } else {
                ended.push(self.end(entry));
            }
        }
        self.statistics.invalidations += met.entries as u64;
        (met, ended)
    }

    /// Takes an entry without leases out of the tables.
    fn end(&mut self, entry: Arc<Entry<R>>) -> Arc<Entry<R>> {
        self.hide(&entry);
        self.statistics.live -= 1;
        self.statistics.live_bytes -= entry.pages.length() as u64;
        entry
    }

    fn hide(&mut self, entry: &Entry<R>) {
        if entry.is_found() {
            entry.set_hidden();
            self.index.remove(&entry.key, entry.pages);
        }
    }

    fn add_idle(&mut self, entry: Arc<Entry<R>>) {
        let number = self.next_number();
        entry.set_idle(number);
        self.statistics.idle += 1;
        self.statistics.idle_bytes += entry.pages.length() as u64;
        self.idle.insert(number, entry);
    }

    /// Does nothing if the entry is not idle.
    fn remove_idle(&mut self, entry: &Entry<R>) {
        if let Some(number) = entry.idle() {
            self.idle.remove(&number);
            entry.set_found();
            self.statistics.idle -= 1;
            self.statistics.idle_bytes -= entry.pages.length() as u64;
        }
    }

    /// Ends the idle entry that was used longest ago.
    fn end_oldest(&mut self) -> Option<Arc<Entry<R>>> {
        let entry = Arc::clone(self.idle.first_key_value()?.1);
        self.remove_idle(&entry);
        Some(self.end(entry))
    }

    fn exceeds_limits(&self) -> bool {
        let Statistics {
            idle, idle_bytes, ..
        } = self.statistics;
        self.limits
            .is_some_and(|limits| idle > limits.entries as u64 || idle_bytes > limits.bytes as u64)
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}
