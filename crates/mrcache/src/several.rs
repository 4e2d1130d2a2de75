//! [`MultiLease`]: the same memory with several devices.

use std::fmt;

use thiserror::Error;

use crate::cache::{Cache, LeaseError};
use crate::lease::Lease;
use crate::registration::Registration;
use crate::request::{Request, Target};

/// Leases on the same memory with several devices: all of them, or none. Gives back all of them,
/// whichever fail.
pub struct MultiLease<R: Registration>(Vec<Lease<R>>);

impl<R: Registration> Clone for MultiLease<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Registration> fmt::Debug for MultiLease<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLease").field(&self.0).finish()
    }
}

/// One device refused, and the others were undone.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("device {position}: {error}")]
#[non_exhaustive]
pub struct MultiLeaseError<E: fmt::Debug + fmt::Display> {
    /// Which of the devices it was, counted from 0.
    pub position: usize,
    /// What it said.
    pub error: LeaseError<E>,
    /// The first failure to deregister when what had been registered before it was undone.
    pub undo: Option<E>,
}

impl<R: Registration> MultiLease<R> {
    /// Takes a lease from each cache, in order. Several devices may share a cache, if their domains
    /// differ. `register` is told which of the devices it registers with.
    ///
    /// # Errors
    /// The first device that refuses. What was taken from those before is given back, last
    /// first.
    pub fn take<'a>(
        devices: impl IntoIterator<Item = (&'a Cache<R>, Request)>,
        mut register: impl FnMut(usize, &Target) -> Result<R, R::Error>,
    ) -> Result<Self, MultiLeaseError<R::Error>>
    where
        R: 'a,
        R::Error: fmt::Debug,
    {
        let devices = devices.into_iter();
        let mut leases = Vec::with_capacity(devices.size_hint().0);
        for (position, (cache, request)) in devices.enumerate() {
            match cache.lease(&request, |target| register(position, target)) {
                Ok(lease) => leases.push(lease),
                Err(error) => {
                    leases.reverse();
                    return Err(MultiLeaseError {
                        position,
                        error,
                        undo: Self(leases).release().err(),
                    });
                }
            }
        }
        Ok(Self(leases))
    }

    /// The leases, in the order of the devices.
    pub fn leases(&self) -> &[Lease<R>] {
        &self.0
    }

    /// Gives all of them back.
    ///
    /// # Errors
    /// The first that fails to deregister. The others are given back all the same.
    pub fn release(self) -> Result<(), R::Error> {
        let mut first = Ok(());
        for lease in self.0 {
            // Evaluated whatever has failed before.
            let result = lease.release();
            first = first.and(result);
        }
        first
    }
}
