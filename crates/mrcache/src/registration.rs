//! [`Registration`]: what the caller puts in, and what is known when giving one back has failed.

use std::fmt;

use crate::access::Access;
use crate::pages::PageRange;

/// A live registration of memory with a device.
///
/// It owns what it needs to be valid, above all its protection domain: then the domain cannot go
/// before it, whatever order programs drop things in.
pub trait Registration: Send + Sync {
    /// Why registering or deregistering failed. Everybody who waits for a registration that fails
    /// gets a clone.
    type Error: Clone + fmt::Display + Send + Sync;

    /// Gives the registration back to the device. Called once, when no lease is left, from the
    /// thread that gave up the last one, evicted it or invalidated it. No lock of the cache is held.
    ///
    /// # Errors
    /// The device refuses. It may still have access to the memory, which should not be reused;
    /// the cache reports this and does not find the registration again.
    fn deregister(self) -> Result<(), Self::Error>;
}

/// A deregistration that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedDeregistration<'a, E> {
    /// The memory that the device may still have access to. Addresses of a DMA-BUF are those given
    /// as `iova`.
    pub pages: PageRange,
    /// The access that it was registered with.
    pub access: Access,
    /// What the registrar said.
    pub error: &'a E,
}

impl<E: fmt::Display> fmt::Display for FailedDeregistration<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "deregistering {} bytes at {:#x} failed, the device may still access them: {}",
            self.pages.length(),
            self.pages.start(),
            self.error
        )
    }
}
