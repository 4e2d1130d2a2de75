//! [`Lease`]: a reference to a live registration.

use std::fmt;
use std::ops::Deref;

use crate::access::Access;
use crate::entry::{Entry, count_one_more};
use crate::pages::PageRange;
use crate::registration::Registration;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, into_inner};

/// One reference to a registration. Dereferences to it; clones count as references of their own.
/// When the last one is gone, the registration is given back, or kept as idle if the cache does that.
pub struct Lease<R: Registration> {
    entry: Arc<Entry<R>>,
    /// Whether it is counted among the entry's vouchers.
    vouches: bool,
}

impl<R: Registration> Lease<R> {
    /// A lease that the entry has counted already.
    #[inline]
    pub(crate) fn counted(entry: Arc<Entry<R>>, vouches: bool) -> Self {
        Self { entry, vouches }
    }

    /// The pages that the registration covers. They may be many more than were asked for.
    pub fn pages(&self) -> PageRange {
        self.entry.pages
    }

    /// What the registration allows: at least what was asked for.
    pub fn access(&self) -> Access {
        self.entry.key.access
    }

    /// Gives this reference back, as dropping it does.
    ///
    /// # Errors
    /// It was the last one, and deregistering failed. The registration is gone from the cache all the
    /// same. (What is kept as idle may fail later; then it is only reported.)
    pub fn release(self) -> Result<(), R::Error> {
        let entry = Arc::clone(&self.entry);
        drop(self);
        // If others give theirs back at this moment, whoever is really last deregisters.
        into_inner(entry).map_or(Ok(()), Entry::deregister)
    }

    /// Whether two leases refer to one registration.
    pub fn same_registration(one: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&one.entry, &other.entry)
    }
}

impl<R: Registration> Clone for Lease<R> {
    fn clone(&self) -> Self {
        // There is at least one already, so nobody acts on the number meanwhile.
        count_one_more(&self.entry.leases);
        if self.vouches {
            count_one_more(&self.entry.vouchers);
        }
        Self {
            entry: Arc::clone(&self.entry),
            vouches: self.vouches,
        }
    }
}

impl<R: Registration> Deref for Lease<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        self.entry.registration()
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
    #[inline]
    fn drop(&mut self) {
        let entry = &self.entry;
        if self.vouches && entry.vouchers.fetch_sub(1, Ordering::AcqRel) == 1 {
            entry.shared.unvouched(entry);
        }
        if entry.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            entry.shared.unleased(entry);
        }
    }
}
