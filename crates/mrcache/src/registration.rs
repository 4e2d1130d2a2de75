//! [`Registration`]: what the caller puts in, and why a lease on it can be refused.

use std::fmt;

use thiserror::Error;

use crate::range::{AddressRange, InvalidRange};

/// A live registration of memory with a device.
///
/// It owns what it needs to be valid, above all its protection domain: then the domain cannot go
/// before it, whatever order programs drop things in.
pub trait Registration: Send + Sync {
    /// Why registering or deregistering failed. Threads that wait for a registration that fails get
    /// clones.
    type Error: Clone + fmt::Display + Send + Sync;

    /// Gives the registration back to the device. Called once, when no lease is left, from the
    /// thread that gave up the last one, evicted it or invalidated it. No lock of the cache is held.
    ///
    /// # Errors
    /// The device refuses. It may still have access to the memory, which should not be reused; the
    /// cache counts it, logs a warning and does not find the registration again.
    fn deregister(self) -> Result<(), Self::Error>;
}

/// Why a lease was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError<E> {
    /// The range itself is invalid.
    #[error(transparent)]
    Range(#[from] InvalidRange),
    /// Registering failed: in this call, or in another thread's for the same memory that this call
    /// has waited for. The next call tries again.
    #[error("{0}")]
    Register(E),
    /// The function that registers has asked for a lease on the same memory, which would have to
    /// wait for itself.
    #[error("{} bytes at {:#x} are being registered by this very thread", .0.length(), .0.start())]
    Reentrant(AddressRange),
}
