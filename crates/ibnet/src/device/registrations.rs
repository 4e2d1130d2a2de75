//! What is registered with an opened device.

use ibnet_mrcache::{Cache, DomainId, Policy, Registration};
use ibnet_verbs::MemoryRegion;

use crate::error::Error;

/// The registrations of an opened device, shared by its ports.
#[derive(Clone)]
pub(crate) struct Registrations {
    pub(crate) cache: Cache<Registered>,
    /// The one protection domain of the device.
    pub(crate) domain: DomainId,
}

/// A memory region in the cache. It holds its protection domain, which so outlives it.
pub(crate) struct Registered(pub(crate) MemoryRegion);

impl Registration for Registered {
    type Error = Error;

    fn deregister(self) -> Result<(), Error> {
        Ok(self.0.deregister()?)
    }
}

impl Registrations {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            // Users promise that their own pages stay mapped, and tell nobody when others go.
            cache: Cache::new(Policy::WhileFullyLeased),
            domain: DomainId::allocate(),
        }
    }
}
