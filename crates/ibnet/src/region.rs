//! Registered memory of the application.

use std::sync::Arc;

use mrcache::{Lease, LeaseError};
use verbs::{Access, MemoryRegion};

use crate::device::Device;
use crate::error::Error;

/// Registers memory for one connection. Cheap to clone, and usable from any thread while another
/// one sends or receives.
#[derive(Clone)]
pub struct Registrar {
    device: Arc<Device>,
    access: Access,
}

/// A registration of memory with the device of a connection.
///
/// Clones share it; when the last is gone the memory is deregistered. Requests do not hold their
/// region: whoever posts raw pointers keeps it alive until the request is done.
#[derive(Clone)]
pub struct Region {
    lease: Lease<u32, MemoryRegion>,
    device: Arc<Device>,
    access: Access,
}

impl Registrar {
    pub(crate) fn new(device: &Arc<Device>, access: Access) -> Self {
        Self {
            device: Arc::clone(device),
            access,
        }
    }

    /// Registers `length` bytes of host memory at `data`. Whole pages are registered; regions of
    /// the same pages share one registration.
    ///
    /// Memory registered for a sending connection may only be read by the device; for a receiving
    /// one it may be written by the peer.
    ///
    /// # Safety
    /// The pages must stay mapped until the last clone of the region is dropped.
    ///
    /// # Errors
    /// A null address, a length of zero, or what the device said (`ibv_reg_mr`).
    pub unsafe fn register(&self, data: *mut u8, length: usize) -> Result<Region, Error> {
        let lease =
            self.device
                .registrations
                .lease(data as usize, length, self.access.bits(), |pages| {
                    // SAFETY: the caller keeps the pages mapped; whole pages are mapped if one byte is.
                    unsafe {
                        self.device.pd.register(
                            pages.start() as *mut u8,
                            pages.length(),
                            self.access,
                        )
                    }
                });
        let lease = lease.map_err(|error| match error {
            LeaseError::Range(range) => Error::InvalidArgument(range.to_string()),
            LeaseError::Register(error) => error.into(),
        })?;
        Ok(Region {
            lease,
            device: Arc::clone(&self.device),
            access: self.access,
        })
    }
}

impl Region {
    /// Gives this reference back and, if it was the last one, deregisters the memory.
    ///
    /// # Errors
    /// What the device said (`ibv_dereg_mr`). The registration is gone from the cache all the
    /// same, so that it is not found again.
    pub fn deregister(self) -> Result<(), Error> {
        match self.lease.release() {
            Some(registration) => Ok(registration.deregister()?),
            None => Ok(()),
        }
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lease.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.lease.rkey()
    }

    /// Checks that `length` bytes at `data` may be used through `device` with `access`.
    pub(crate) fn check(
        &self,
        device: &Device,
        access: Access,
        data: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        // One branch on the hot path; which of the three it was is found out afterwards.
        let fits = self.lease.pages().contains(data as usize, length);
        if fits && self.device.shares_registrations_with(device) && self.access.contains(access) {
            return Ok(());
        }
        Err(self.misfit(device, access, data, length))
    }

    #[cold]
    fn misfit(&self, device: &Device, access: Access, data: *const u8, length: usize) -> Error {
        let pages = self.lease.pages();
        Error::InvalidArgument(if !self.device.shares_registrations_with(device) {
            // Pitfall 65.
            format!(
                "memory registered on {} used on {}",
                self.device.label(),
                device.label()
            )
        } else if !self.access.contains(access) {
            "memory registered for sending used for receiving".to_owned()
        } else {
            format!(
                "{length} bytes at {data:p} are not in the registered pages, {} bytes at {:#x}",
                pages.length(),
                pages.start()
            )
        })
    }
}
