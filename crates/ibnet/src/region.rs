//! Registered memory of the application.

use std::sync::Arc;

use mrcache::{Lease, LeaseError};
use verbs::{Access, MemoryRegion};

use crate::device::Device;
use crate::error::Error;
use crate::nic::Nic;

/// Registers memory for one connection. Cheap to clone, and usable from any thread while another
/// one sends or receives.
#[derive(Clone)]
pub struct Registrar {
    nic: Arc<Nic>,
    access: Access,
}

/// A registration of memory with every device of a connection.
///
/// Clones share it; when the last is gone the memory is deregistered. Requests do not hold their
/// region: whoever posts raw pointers keeps it alive until the request is done.
#[derive(Clone)]
pub struct Region {
    /// One for each device.
    leases: Box<[Lease<u32, MemoryRegion>]>,
    nic: Arc<Nic>,
    access: Access,
}

impl Registrar {
    pub(crate) fn new(nic: &Arc<Nic>, access: Access) -> Self {
        Self {
            nic: Arc::clone(nic),
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
    /// A null address, a length of zero, or what the device said (`ibv_reg_mr`). What was
    /// registered with other devices is undone.
    pub unsafe fn register(&self, data: *mut u8, length: usize) -> Result<Region, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.register_with(data, length, self.access) }
    }

    /// As [`register`](Self::register), for memory of a device that the network devices reach
    /// through a peer-memory driver. What is received there can be flushed
    /// ([`iflush`](crate::RecvConnection::iflush)).
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    ///
    /// # Errors
    /// As for [`register`](Self::register).
    pub unsafe fn register_device_memory(
        &self,
        data: *mut u8,
        length: usize,
    ) -> Result<Region, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.register_with(data, length, self.access_for_device_memory()) }
    }

    /// Flushing reads what was received; what is sent needs none.
    fn access_for_device_memory(&self) -> Access {
        if self.access.contains(Access::REMOTE_WRITE) {
            self.access | Access::REMOTE_READ
        } else {
            self.access
        }
    }

    unsafe fn register_with(
        &self,
        data: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Region, Error> {
        let lease_on = |device: &Arc<Device>| {
            let lease = device
                .registrations
                .lease(data as usize, length, access.bits(), |pages| {
                    // SAFETY: the caller keeps the pages mapped; whole pages are mapped if one
                    // byte is.
                    unsafe {
                        device
                            .pd
                            .register(pages.start() as *mut u8, pages.length(), access)
                    }
                });
            lease.map_err(|error| match error {
                LeaseError::Range(range) => Error::InvalidArgument(range.to_string()),
                LeaseError::Register(error) => error.into(),
            })
        };
        Ok(Region {
            // After a failure the leases so far are dropped.
            leases: self
                .nic
                .members()
                .iter()
                .map(lease_on)
                .collect::<Result<_, _>>()?,
            nic: Arc::clone(&self.nic),
            access,
        })
    }
}

impl Region {
    /// Gives this reference back and, if it was the last one, deregisters the memory on every
    /// device, also after one has failed.
    ///
    /// # Errors
    /// The first thing that a device said (`ibv_dereg_mr`). The registrations are gone from the
    /// cache all the same, so that they are not found again.
    pub fn deregister(self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for lease in self.leases {
            if let Some(registration) = lease.release()
                && let Err(error) = registration.deregister()
                && outcome.is_ok()
            {
                outcome = Err(error.into());
            }
        }
        outcome
    }

    /// The local key on device `device` of the connection.
    pub(crate) fn lkey(&self, device: usize) -> u32 {
        self.leases[device].lkey()
    }

    /// The remote key on device `device` of the connection.
    pub(crate) fn rkey(&self, device: usize) -> u32 {
        self.leases[device].rkey()
    }

    /// Whether what is received here can be flushed, and should be.
    pub(crate) fn needs_flush(&self) -> bool {
        self.access.contains(Access::REMOTE_READ)
    }

    /// Checks that `length` bytes at `data` may be used through the devices of `nic` with `access`.
    pub(crate) fn check(
        &self,
        nic: &Arc<Nic>,
        access: Access,
        data: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        // One branch on the hot path; which of the three it was is found out afterwards.
        let fits = self.leases[0].pages().contains(data as usize, length);
        if fits && Arc::ptr_eq(&self.nic, nic) && self.access.contains(access) {
            return Ok(());
        }
        Err(self.misfit(nic, access, data, length))
    }

    #[cold]
    fn misfit(&self, nic: &Arc<Nic>, access: Access, data: *const u8, length: usize) -> Error {
        let pages = self.leases[0].pages();
        Error::InvalidArgument(if !Arc::ptr_eq(&self.nic, nic) {
            // Pitfall 65.
            format!(
                "memory registered on {} used on {}",
                self.nic.info().name,
                nic.info().name
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
