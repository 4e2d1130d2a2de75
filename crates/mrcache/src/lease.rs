//! A reference to a live registration.

use std::ops::Deref;
use std::sync::Arc;

use crate::cache::Shared;
use crate::pages::PageRange;

/// One reference to a registration. Dereferences to it; clones count as references of their own;
/// when the last is dropped, the registration is.
pub struct Lease<K: Ord, R>(pub(crate) Arc<Entry<K, R>>);

/// The order of the fields is the order of drop: out of the map first, then, without the map's
/// lock, the registration itself.
pub(crate) struct Entry<K: Ord, R> {
    pub(crate) place: Place<K, R>,
    pub(crate) registration: R,
}

/// An entry's place in the map, which it leaves when this is dropped.
pub(crate) struct Place<K: Ord, R> {
    pub(crate) shared: Arc<Shared<K, R>>,
    pub(crate) key: (PageRange, K),
}

impl<K: Ord, R> Lease<K, R> {
    /// The pages that the registration covers.
    pub fn pages(&self) -> PageRange {
        self.0.place.key.0
    }

    /// Gives this reference back. If it was the last one, the registration leaves the cache and is
    /// handed out, so that the caller can deregister it and see whether that works.
    pub fn release(self) -> Option<R> {
        let Entry {
            place,
            registration,
        } = Arc::into_inner(self.0)?;
        drop(place);
        Some(registration)
    }

    /// Whether two leases refer to one registration.
    pub fn same_registration(one: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&one.0, &other.0)
    }
}

impl<K: Ord, R> Clone for Lease<K, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord, R> Deref for Lease<K, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0.registration
    }
}

impl<K: Ord, R> Drop for Place<K, R> {
    fn drop(&mut self) {
        self.shared.forget(&self.key);
    }
}
