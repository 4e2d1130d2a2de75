//! [`Lease`]: a reference to a live registration.

use std::fmt;
use std::ops::Deref;

use crate::access::Access;
use crate::entry::Entry;
use crate::pages::PageRange;
use crate::registration::Registration;
use crate::shared::Shared;
use crate::state::Leased;
use crate::sync::Arc;

/// One reference to a registration. Dereferences to it; clones count as references of their own.
/// When the last one is gone, the registration is given back, or kept as idle if the cache does that.
pub struct Lease<R: Registration> {
    shared: Arc<Shared<R>>,
    /// None once it is given back.
    leased: Option<Leased<R>>,
}

impl<R: Registration> Lease<R> {
    /// A lease that the entry has counted already.
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

    fn entry(&self) -> &Entry<R> {
        &self.leased().0
    }

    /// The pages that the registration covers. They may be many more than were asked for.
    pub fn pages(&self) -> PageRange {
        self.entry().pages
    }

    /// What the registration allows: at least what was asked for.
    pub fn access(&self) -> Access {
        self.entry().key.access
    }

    /// Gives this reference back, as dropping it does.
    ///
    /// # Errors
    /// It was the last one, and deregistering failed. The registration is gone from the cache all the
    /// same. (What is kept as idle may fail later; then it is only reported.)
    pub fn release(mut self) -> Result<(), R::Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), R::Error> {
        let Some(leased) = self.leased.take() else {
            return Ok(());
        };
        let own = Arc::as_ptr(&leased.0);
        let ended = self.shared.state.with(|state| state.give_back(leased));
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

    /// Whether two leases refer to one registration.
    pub fn same_registration(one: &Self, other: &Self) -> bool {
        std::ptr::eq(one.entry(), other.entry())
    }
}

impl<R: Registration> Clone for Lease<R> {
    fn clone(&self) -> Self {
        let (entry, is_full) = self.leased();
        self.shared.state.with(|_| entry.add_lease(*is_full));
        Self::new(&self.shared, (Arc::clone(entry), *is_full))
    }
}

impl<R: Registration> Deref for Lease<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        &self.entry().registration
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
        // A failure is counted and reported.
        let _ = self.give_back();
    }
}
