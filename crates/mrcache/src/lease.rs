//! [`Lease`]: a reference to a live registration.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::entry::{Entry, Leased};
use crate::key::Access;
use crate::range::AddressRange;
use crate::registration::Registration;
use crate::sync::Lock;
use crate::tables::{Ended, Tables};

/// What a cache and its leases have in common.
pub(crate) struct Shared<R: Registration> {
    /// Not locked while anything is registered, deregistered or reported.
    pub(crate) tables: Lock<Tables<R>>,
    /// Bytes of a page, a power of two.
    pub(crate) page_size: usize,
}

impl<R: Registration> Shared<R> {
    /// Deregisters what has ended, and reports a failure.
    fn deregister(&self, ended: Arc<Entry<R>>) -> Result<(), R::Error> {
        let range = ended.range;
        // All other references have been given up, under the lock.
        let entry = Arc::into_inner(ended);
        let Some(Ok(registration)) = entry.and_then(|entry| entry.outcome.into_inner()) else {
            unreachable!("a reference to what has ended")
        };
        let result = registration.deregister();
        let bytes = range.length() as u64;
        self.tables.with(|tables| match &result {
            Ok(()) => tables.statistics.deregistrations += 1,
            Err(_) => {
                tables.statistics.failed_deregistrations += 1;
                tables.statistics.lost_bytes += bytes;
            }
        });
        if let Err(error) = &result {
            tracing::warn!(
                "deregistering {bytes} bytes at {:#x} failed, the device may still access them: \
                 {error}",
                range.start()
            );
        }
        result
    }

    /// Deregisters all, and returns the first failure.
    pub(crate) fn deregister_all(&self, ended: Ended<R>) -> Result<(), R::Error> {
        let results = ended.into_iter().map(|entry| self.deregister(entry));
        results.fold(Ok(()), Result::and)
    }
}

/// One reference to a registration. Dereferences to it; clones count as references of their own.
/// When the last one is gone, the registration is given back, or kept as idle if the cache does that.
pub struct Lease<R: Registration> {
    shared: Arc<Shared<R>>,
    /// None once it is given back.
    leased: Option<Leased<R>>,
}

impl<R: Registration> Lease<R> {
    pub(crate) fn new(shared: &Arc<Shared<R>>, leased: Leased<R>) -> Self {
        Self {
            shared: Arc::clone(shared),
            leased: Some(leased),
        }
    }

    fn leased(&self) -> &Leased<R> {
        match &self.leased {
            Some(leased) => leased,
            // Only `give_back` takes it, at the end.
            None => unreachable!("a lease that is given back"),
        }
    }

    /// The pages that the registration covers, but for what lies beyond the end of a DMA-BUF. They may
    /// be many more than were asked for.
    pub fn pages(&self) -> AddressRange {
        self.leased().entry.range
    }

    /// What the registration allows: at least what was asked for.
    pub fn access(&self) -> Access {
        self.leased().entry.key.access
    }

    /// Whether two leases refer to one registration.
    pub fn same_registration(one: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&one.leased().entry, &other.leased().entry)
    }

    /// Gives this reference back, as dropping it does.
    ///
    /// # Errors
    /// It was the last one, and deregistering failed. The registration is gone from the cache all the
    /// same. (What is kept as idle may fail later; then it is only logged.)
    pub fn release(mut self) -> Result<(), R::Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), R::Error> {
        let Some(leased) = self.leased.take() else {
            return Ok(());
        };
        let own = Arc::as_ptr(&leased.entry);
        let ended = self.shared.tables.with(|tables| tables.give_back(leased));
        let mut result = Ok(());
        for entry in ended {
            let is_own = Arc::as_ptr(&entry) == own;
            let deregistered = self.shared.deregister(entry);
            if is_own {
                result = deregistered;
            }
        }
        result
    }
}

impl<R: Registration> Clone for Lease<R> {
    fn clone(&self) -> Self {
        let Leased { entry, is_full } = self.leased();
        let leased = self.shared.tables.with(|_| entry.lease(*is_full));
        Self::new(&self.shared, leased)
    }
}

impl<R: Registration> Deref for Lease<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        match self.leased().entry.outcome.get() {
            Some(Ok(registration)) => registration,
            // Leases are given on live registrations alone.
            _ => unreachable!("a lease on what was not registered"),
        }
    }
}

impl<R: Registration> fmt::Debug for Lease<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("pages", &self.pages())
            .field("access", &self.access())
            .finish_non_exhaustive()
    }
}

impl<R: Registration> Drop for Lease<R> {
    fn drop(&mut self) {
        // A failure is counted and logged.
        let _ = self.give_back();
    }
}
