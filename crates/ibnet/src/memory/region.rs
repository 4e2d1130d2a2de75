//! Registered memory of the application.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ibnet_mrcache::{DmaBuf, Lease, LeaseError, Request, Target, lease_all, release_all};
use ibnet_verbs::{Access, LockedMemory, MemoryRegion};
use nix::errno::Errno;

use crate::device::Device;
use crate::device::nic::Nic;
use crate::device::registrations::{Registered, Registrations};
use crate::error::{Error, Failed};
use crate::memory::shortage::Shortage;
use crate::wire::message::MAX_DEVICES;

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
/// region: the caller that posts raw pointers keeps it alive until the request is done.
#[derive(Clone)]
pub struct Region(Arc<Registration>);

/// What clones of a region share. It stays where it is for as long as one of them lives.
pub(crate) struct Registration {
    // What each send and receive looks at lies together.
    start: usize,
    length: usize,
    access: Access,
    /// The processor can read it: it is no memory of another device.
    is_host: bool,
    nic: Arc<Nic>,
    keys: [Keys; MAX_DEVICES],
    /// Empty once they are given back.
    leases: Vec<Lease<Registered>>,
}

impl Registration {
    /// The local key on device `device` of the connection.
    #[inline]
    pub(crate) fn lkey(&self, device: usize) -> u32 {
        self.keys[device].lkey
    }

    /// Whether its bytes can travel in a work request, into which the processor copies them.
    #[inline]
    pub(crate) fn can_be_inline(&self) -> bool {
        self.is_host
    }
}

/// The keys of a registration with one device.
#[derive(Clone, Copy, Default)]
struct Keys {
    lkey: u32,
    rkey: u32,
}

/// The memory of a device that is given as a DMA-BUF.
#[derive(Clone, Copy, Debug)]
struct DeviceBuffer<'a> {
    descriptor: BorrowedFd<'a>,
    buffer: DmaBuf,
    offset: u64,
}

impl Registrar {
    pub(crate) fn new(nic: &Arc<Nic>, access: Access) -> Self {
        let relaxed = if nic.info().relaxed_ordering {
            // For data only, whose arrival a completion tells; what the protocol itself writes
            // must arrive in order.
            Access::RELAXED_ORDERING
        } else {
            Access::empty()
        };
        Self {
            nic: Arc::clone(nic),
            access: access | relaxed,
        }
    }

    /// Registers `length` bytes of host memory at `data`. Whole pages are registered, unless a
    /// region whose pages include them is alive and allows as much: then they share its
    /// registration.
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
        self.lease(data as usize, length, self.access, true, None)
    }

    /// As [`register`](Self::register), for memory of a device that the network devices reach
    /// through a peer-memory driver. What is received there can be flushed
    /// ([`iflush`](crate::raw::Connection::iflush)).
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
        self.lease(
            data as usize,
            length,
            self.access_for_device_memory(),
            false,
            None,
        )
    }

    /// Registers `length` bytes of a device's memory that begin at `offset` of the DMA-BUF
    /// `descriptor` and that requests will name by `data`. The descriptor may be closed afterwards.
    /// What is received there can be flushed.
    ///
    /// The addresses say which memory it is, as for [`register`](Self::register): a region of a
    /// DMA-BUF whose addresses include these is shared, also if that was exported with another
    /// descriptor.
    ///
    /// # Safety
    /// Until the last clone of the region is dropped the memory must stay, and its addresses from
    /// `data` on must name no other DMA-BUF.
    ///
    /// # Errors
    /// As for [`register`](Self::register) (`ibv_reg_dmabuf_mr`), or an offset and an address that
    /// differ within a page.
    pub unsafe fn register_dmabuf(
        &self,
        data: *mut u8,
        length: usize,
        offset: u64,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Region, Error> {
        let buffer = DmaBuf::of(descriptor)
            .map_err(|error| Error::system("looking at a DMA-BUF's descriptor", error))?;
        let buffer = DeviceBuffer {
            descriptor,
            buffer,
            offset,
        };
        self.lease(
            data as usize,
            length,
            self.access_for_device_memory(),
            false,
            Some(buffer),
        )
    }

    /// Flushing reads what was received; what is sent needs none.
    fn access_for_device_memory(&self) -> Access {
        if self.access.contains(Access::REMOTE_WRITE) {
            self.access | Access::REMOTE_READ
        } else {
            self.access
        }
    }

    /// Registers with every device. The memory must stay as the callers' callers promise.
    fn lease(
        &self,
        address: usize,
        length: usize,
        access: Access,
        is_host: bool,
        buffer: Option<DeviceBuffer<'_>>,
    ) -> Result<Region, Error> {
        if self.nic.is_inherited() {
            return Err(Error::Forked);
        }
        let devices = self.nic.members();
        let requests = devices.iter().map(|device| {
            let Registrations { cache, domain } = &device.registrations;
            let access = comparable(access);
            let request = match buffer {
                None => Request::host(*domain, access, address, length),
                Some(DeviceBuffer { buffer, offset, .. }) => {
                    // Callers vouch for their memory. A driver may give each export of it an inode
                    // of its own, as NVIDIA's does, so that by inode nothing would ever be found.
                    Request::dmabuf(*domain, access, buffer, offset, address, length)
                        .by_address()
                        .data_direct(device.data_direct)
                }
            };
            (cache, request)
        });
        let leases = lease_all(requests, |index, target| {
            let device = &devices[index];
            register(device, target, access, buffer)
                .map(Registered)
                .map_err(|error| explain(device, error, target.length()))
        })
        .map_err(|refused| match refused.error {
            LeaseError::Register(error) => error,
            invalid => Error::InvalidArgument(invalid.to_string()),
        })?;
        let mut keys = [Keys::default(); MAX_DEVICES];
        for (keys, lease) in keys.iter_mut().zip(&leases) {
            *keys = Keys {
                lkey: lease.0.lkey(),
                rkey: lease.0.rkey(),
            };
        }
        Ok(Region(Arc::new(Registration {
            // A registration that others share may be larger; what they have is not this one's.
            start: address,
            length,
            access,
            is_host,
            nic: Arc::clone(&self.nic),
            keys,
            leases,
        })))
    }
}

/// The call that registers with one device.
fn register(
    device: &Device,
    target: &Target,
    access: Access,
    buffer: Option<DeviceBuffer<'_>>,
) -> Result<MemoryRegion, ibnet_verbs::Error> {
    let (start, length) = (target.start(), target.length());
    let (Some(buffer), Some(offset)) = (buffer, target.offset()) else {
        // SAFETY: the caller of `Registrar::register` keeps the pages mapped; whole pages are
        // mapped if one byte is.
        return unsafe { device.pd.register(start as *mut u8, length, access) };
    };
    let (iova, fd) = (start as u64, buffer.descriptor);
    if device.data_direct {
        // SAFETY: the caller of `Registrar::register_dmabuf` keeps the memory.
        unsafe {
            device
                .pd
                .register_dmabuf_data_direct(offset, length, iova, fd, access)
        }
    } else {
        // SAFETY: as above.
        unsafe { device.pd.register_dmabuf(offset, length, iova, fd, access) }
    }
}

/// The access as the cache compares it: more rights are enough, other properties must be equal.
fn comparable(access: Access) -> ibnet_mrcache::Access {
    const RIGHTS: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::MW_BIND);
    ibnet_mrcache::Access::split(access.bits(), RIGHTS.bits())
}

/// Adds which limit it was if there is no memory left to register `length` bytes.
fn explain(device: &Device, error: ibnet_verbs::Error, length: usize) -> Error {
    if error.errno() != Some(Errno::ENOMEM as i32) {
        return error.into();
    }
    let cached = device.registrations.cache.statistics();
    let shortage = Shortage {
        wanted: length as u64,
        live: cached.live,
        live_bytes: cached.live_bytes,
        process: LockedMemory::of_this_process(),
        max_mr: device.attributes.max_mr.into(),
        max_mr_size: device.attributes.max_mr_size,
    };
    Error::NoMemory {
        source: Arc::new(error),
        limits: shortage.to_string(),
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar")
            .field("device", &self.nic.info().name)
            .field("access", &self.access)
            .finish()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("device", &self.0.nic.info().name)
            .field("start", &format_args!("{:#x}", self.0.start))
            .field("length", &self.0.length)
            .field("access", &self.0.access)
            .finish()
    }
}

impl Registration {
    fn give_back(&mut self) -> Result<(), Error> {
        let leases = std::mem::take(&mut self.leases);
        if self.nic.is_inherited() {
            // In a forked child they are the parent's, and the cache's locks may have been held.
            std::mem::forget(leases);
            return Ok(());
        }
        release_all(leases)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The cache logs what fails.
        let _ = self.give_back();
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
        match Arc::into_inner(self.0) {
            Some(mut inner) => inner.give_back(),
            None => Ok(()),
        }
    }

    /// What its clones share.
    #[inline]
    pub(crate) fn registration(&self) -> &Registration {
        &self.0
    }

    /// The remote key on device `device` of the connection.
    pub(crate) fn rkey(&self, device: usize) -> u32 {
        self.0.keys[device].rkey
    }

    /// Whether what is received here can be flushed, and should be.
    pub(crate) fn needs_flush(&self) -> bool {
        self.0.access.contains(Access::REMOTE_READ)
    }

    /// Checks that `length` bytes at `data` may be used through the devices of `nic` with `access`.
    #[inline]
    pub(crate) fn check(
        &self,
        nic: &Arc<Nic>,
        access: Access,
        data: *const u8,
        length: usize,
    ) -> Result<(), Failed> {
        let inner = &*self.0;
        let offset = (data as usize).wrapping_sub(inner.start);
        let fits = offset <= inner.length && length <= inner.length - offset;
        // One branch on the hot path; which of the three it was is found out afterwards.
        if fits && Arc::ptr_eq(&inner.nic, nic) && inner.access.contains(access) {
            return Ok(());
        }
        Err(self.misfit(nic, access, data, length).into())
    }

    #[cold]
    fn misfit(&self, nic: &Arc<Nic>, access: Access, data: *const u8, length: usize) -> Error {
        Error::InvalidArgument(if !Arc::ptr_eq(&self.0.nic, nic) {
            format!(
                "memory registered on {} used on {}",
                self.0.nic.info().name,
                nic.info().name
            )
        } else if !self.0.access.contains(access) {
            "memory registered for sending used for receiving".to_owned()
        } else {
            format!(
                "{length} bytes at {data:p} are not in the registered memory, {} bytes at {:#x}",
                self.0.length, self.0.start
            )
        })
    }
}
