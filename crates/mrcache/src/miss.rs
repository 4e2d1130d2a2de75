//! A lease that is no hit: it waits for a registration in progress, or makes one.

use crate::cache::LeaseError;
use crate::entry::Entry;
use crate::flight::{Flight, Outcome};
use crate::lease::Lease;
use crate::registration::Registration;
use crate::request::{Target, Wanted};
use crate::shared::Shared;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// A lease on `wanted`, by whatever way there is.
///
/// One who waits for a registration that fails gets its error if it is the one that it would
/// have made itshared. Another, larger one may have failed for its size: then it tries itshared.
pub(crate) fn lease<R: Registration>(
    shared: &Arc<Shared<R>>,
    wanted: &Wanted,
    target: &Target,
    register: impl FnOnce(&Target) -> Result<R, R::Error>,
) -> Result<Lease<R>, LeaseError<R::Error>> {
    loop {
        let mut flights = shared.flights();
        // A registration moves from the flights to the index under their lock: it is in one.
        if let Some(lease) = shared.hit(wanted) {
            return Ok(lease);
        }
        let Some(flight) = flights.cover(&wanted.key, wanted.bytes) else {
            let flight = Arc::new(Flight::new(wanted.key, target.pages()));
            flights.insert(&wanted.key, target.pages().interval(), Arc::clone(&flight));
            drop(flights);
            shared.counters.misses.add(1);
            let takeoff = Takeoff {
                shared,
                flight,
                landed: false,
            };
            let result = register(target);
            return takeoff.land(result);
        };
        if flight.is_of_this_thread() {
            return Err(LeaseError::Reentrant {
                address: target.start(),
                length: target.length(),
            });
        }
        flight.waiters.fetch_add(1, Ordering::Relaxed);
        let range = flight.pages.interval();
        let vouches = shared.must_be_vouched(&wanted.key) && wanted.pages.contains(&range);
        if vouches {
            flight.vouchers.fetch_add(1, Ordering::Relaxed);
        }
        let flight = Arc::clone(flight);
        drop(flights);
        shared.counters.waits.add(1);
        let is_same = flight.pages == target.pages() && flight.key == wanted.key;
        match flight.wait() {
            Outcome::Landed(entry) => {
                drop(flight);
                return Ok(Lease::counted(entry, vouches));
            }
            Outcome::Failed(error) if is_same => return Err(LeaseError::Register(error)),
            Outcome::Failed(_) | Outcome::Abandoned => {}
        }
    }
}

/// A registration that this thread makes. If it panics, those who wait are woken all the same.
struct Takeoff<'a, R: Registration> {
    shared: &'a Arc<Shared<R>>,
    flight: Arc<Flight<R>>,
    landed: bool,
}

impl<R: Registration> Takeoff<'_, R> {
    fn land(mut self, result: Result<R, R::Error>) -> Result<Lease<R>, LeaseError<R::Error>> {
        self.landed = true;
        let (shared, flight) = (self.shared, &self.flight);
        let registration = match result {
            Ok(registration) => registration,
            Err(error) => {
                shared.counters.failed_registrations.add(1);
                self.end(Outcome::Failed(error.clone()));
                return Err(LeaseError::Register(error));
            }
        };
        shared.counters.registrations.add(1);
        shared.counters.live.add(1);
        shared.counters.live_bytes.add(flight.pages.length() as u64);
        let entry = Arc::new(Entry::new(
            registration,
            flight.key,
            flight.pages,
            Arc::clone(shared),
        ));

        let mut flights = shared.flights();
        let is_doomed = flight.doomed.load(Ordering::Relaxed);
        let waiters = flight.waiters.load(Ordering::Relaxed);
        entry.leases.store(1 + waiters, Ordering::Relaxed);
        let vouches = shared.must_be_vouched(&flight.key);
        if vouches {
            let vouchers = flight.vouchers.load(Ordering::Relaxed);
            entry.vouchers.store(1 + vouchers, Ordering::Relaxed);
        }
        let mut ended = None;
        if !is_doomed {
            let range = flight.pages.interval();
            ended = flights.remove(&flight.key, range);
            entry.indexed.store(true, Ordering::Relaxed);
            shared
                .index()
                .insert(&flight.key, range, Arc::clone(&entry));
        }
        drop(flights);
        drop(ended);
        // None can have come meanwhile: the flight is in no table any more.
        if waiters > 0 {
            flight.land(Outcome::Landed(Arc::clone(&entry)));
        }
        Ok(Lease::counted(entry, vouches))
    }

    /// Ends the flight without a registration.
    fn end(&self, outcome: Outcome<R>) {
        let flight = &self.flight;
        let mut flights = self.shared.flights();
        let mut ended = None;
        if !flight.doomed.load(Ordering::Relaxed) {
            ended = flights.remove(&flight.key, flight.pages.interval());
        }
        drop(flights);
        drop(ended);
        flight.land(outcome);
    }
}

impl<R: Registration> Drop for Takeoff<'_, R> {
    fn drop(&mut self) {
        if !self.landed {
            self.end(Outcome::Abandoned);
        }
    }
}
