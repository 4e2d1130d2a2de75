//! Leases on the same memory with several devices.

use std::fmt;

use thiserror::Error;

use crate::cache::Cache;
use crate::lease::Lease;
use crate::registration::{LeaseError, Registration};
use crate::request::{Request, Target};

/// One device refused, and the others were undone.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("device {position}: {error}")]
#[non_exhaustive]
pub struct LeaseAllError<E: fmt::Debug + fmt::Display> {
    /// Which of the devices it was, counted from 0.
    pub position: usize,
    /// What it said.
    pub error: LeaseError<E>,
    /// The first failure to deregister when what had been registered before it was undone.
    pub undo: Option<E>,
}

/// Takes a lease from each cache, in order: all of them, or none. Several devices may share a cache, if
/// their domains differ. `register` is told the position of the device that it registers with.
///
/// # Errors
/// The first device that refuses. What was taken from those before is given back, last first.
pub fn lease_all<'a, R: Registration + 'a>(
    devices: impl IntoIterator<Item = (&'a Cache<R>, Request)>,
    mut register: impl FnMut(usize, &Target) -> Result<R, R::Error>,
) -> Result<Vec<Lease<R>>, LeaseAllError<R::Error>>
where
    R::Error: fmt::Debug,
{
    let mut leases = Vec::new();
    for (position, (cache, request)) in devices.into_iter().enumerate() {
        match cache.lease(&request, |target| register(position, target)) {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                leases.reverse();
                return Err(LeaseAllError {
                    position,
                    error,
                    undo: release_all(leases).err(),
                });
            }
        }
    }
    Ok(leases)
}

/// Gives all leases back, in order.
///
/// # Errors
/// The first that fails to deregister. The others are given back all the same.
pub fn release_all<R: Registration>(
    leases: impl IntoIterator<Item = Lease<R>>,
) -> Result<(), R::Error> {
    let released = leases.into_iter().map(Lease::release);
    released.fold(Ok(()), Result::and)
}
