//! [`MemoryRegion`]: memory that the device may access.

use std::fmt;
use std::io;
use std::ptr::NonNull;

use ibverbs_sys::ibv_mr;

use crate::access::Access;
use crate::conv;
use crate::error::Error;
use crate::mlx5;
use crate::pd::ProtectionDomain;

/// A registered range of memory (`struct ibv_mr`). Deregistered on drop.
///
/// Should deregistering fail, the device keeps its access. Dropping can only log that; whoever
/// must know before giving the memory back calls [`deregister`](Self::deregister).
pub struct MemoryRegion {
    /// None once it is deregistered.
    raw: Option<NonNull<ibv_mr>>,
    lkey: u32,
    rkey: u32,
    address: u64,
    length: usize,
    /// Dropped after the region is deregistered.
    pd: ProtectionDomain,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the region gives no access to its memory.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// # Safety
    ///
    /// As for [`ProtectionDomain::register`].
    pub(crate) unsafe fn register(
        pd: ProtectionDomain,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, Error> {
        check_range(&pd, "registering memory", address as u64, length)?;
        if address.is_null() {
            return Err(invalid(
                &pd,
                "registering memory",
                "the address is null".to_owned(),
            ));
        }
        let functions = pd.context().functions();
        let optional = access.intersects(Access::OPTIONAL);
        let required = access.difference(Access::OPTIONAL).bits();
        let start = address as u64;
        let raw = conv::pointer(|| match functions.reg_mr_iova2 {
            // SAFETY: the domain is alive; about the memory see the caller.
            Some(reg_mr_iova2) if optional => unsafe {
                reg_mr_iova2(pd.as_raw(), address.cast(), length, start, access.bits())
            },
            // SAFETY: as above.
            _ => unsafe {
                (functions.reg_mr)(pd.as_raw(), address.cast(), length, required.cast_signed())
            },
        })
        .map_err(|source| Error::Register {
            device: pd.context().name(),
            address: start,
            length,
            access,
            source,
        })?;
        Ok(Self::new(raw, start, length, pd))
    }

    /// # Safety
    ///
    /// As for [`ProtectionDomain::register_dmabuf`].
    pub(crate) unsafe fn register_dmabuf(
        pd: ProtectionDomain,
        offset: u64,
        length: usize,
        iova: u64,
        fd: i32,
        access: Access,
    ) -> Result<Self, Error> {
        check_dmabuf(&pd, offset, length, iova)?;
        // SAFETY: about the memory see the caller.
        let raw = unsafe { dmabuf_call(&pd, offset, length, iova, fd, access) }?;
        Ok(Self::new(raw, iova, length, pd))
    }

    /// # Safety
    ///
    /// As for [`ProtectionDomain::register_dmabuf`].
    pub(crate) unsafe fn register_data_direct(
        pd: ProtectionDomain,
        offset: u64,
        length: usize,
        iova: u64,
        fd: i32,
        access: Access,
    ) -> Result<Self, Error> {
        check_dmabuf(&pd, offset, length, iova)?;
        // SAFETY: about the memory see the caller.
        let raw = unsafe { data_direct_call(&pd, offset, length, iova, fd, access) }?;
        Ok(Self::new(raw, iova, length, pd))
    }

    pub(crate) fn probe_dmabuf(pd: &ProtectionDomain) -> Result<(), Error> {
        // SAFETY: there is no such descriptor, hence no memory.
        let answer = unsafe { dmabuf_call(pd, 0, 1, 0, NO_DMABUF, Access::empty()) };
        Self::judge_probe(pd, answer)
    }

    pub(crate) fn probe_data_direct(pd: &ProtectionDomain) -> Result<(), Error> {
        // SAFETY: there is no such descriptor, hence no memory.
        let answer = unsafe { data_direct_call(pd, 0, 1, 0, NO_DMABUF, Access::empty()) };
        Self::judge_probe(pd, answer)
    }

    /// Who can register DMA-BUFs looks at the descriptor and finds it bad (`EBADF`). Who cannot says
    /// so before that, by one errno or another.
    fn judge_probe(
        pd: &ProtectionDomain,
        answer: Result<NonNull<ibv_mr>, Error>,
    ) -> Result<(), Error> {
        match answer {
            Err(error) if error.errno() == Some(libc::EBADF) => Ok(()),
            Err(error) => Err(error),
            Ok(raw) => {
                // Against all expectation something was registered: give it back.
                drop(Self::new(raw, 0, 1, pd.clone()));
                Ok(())
            }
        }
    }

    fn new(raw: NonNull<ibv_mr>, address: u64, length: usize, pd: ProtectionDomain) -> Self {
        // SAFETY: the region was just registered; the keys never change.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        Self {
            raw: Some(raw),
            lkey,
            rkey,
            address,
            length,
            pd,
        }
    }

    /// The key by which this process's own work requests name the region.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which a peer's work requests name the region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The address of the first byte, as work requests give it. For a DMA-BUF it is the `iova`.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The protection domain that the region is in.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The C object. It is valid for as long as this region.
    pub fn as_raw(&self) -> *mut ibv_mr {
        self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Deregisters the memory, and says if that failed. Dropping the region does the same, but
    /// only logs a failure.
    ///
    /// # Errors
    ///
    /// [`Error::Deregister`]. The region is leaked: the device may still access the memory, so
    /// that it should not be given back.
    ///
    /// See also: ibv_dereg_mr(3).
    pub fn deregister(mut self) -> Result<(), Error> {
        self.destroy().map_err(|source| Error::Deregister {
            device: self.pd.context().name(),
            address: self.address,
            length: self.length,
            source,
        })
    }

    fn destroy(&mut self) -> io::Result<()> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        if self.pd.context().is_inherited() {
            return Ok(());
        }
        // SAFETY: the region is alive, and was taken out so that this happens once.
        conv::returned(|| unsafe { (self.pd.context().functions().dereg_mr)(raw.as_ptr()) })
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("device", &self.pd.context().device_name())
            .field("address", &format_args!("{:#x}", self.address))
            .field("length", &self.length)
            .field("lkey", &format_args!("{:#x}", self.lkey))
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .finish()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            let (device, address, length) =
                (self.pd.context().device_name(), self.address, self.length);
            tracing::warn!(device, address, length, %error, "ibv_dereg_mr failed; leaked");
        }
    }
}

/// A descriptor that is none.
const NO_DMABUF: i32 = -1;

/// Registers a DMA-BUF.
///
/// # Safety
///
/// As for [`ProtectionDomain::register_dmabuf`], unless `fd` is no descriptor.
unsafe fn dmabuf_call(
    pd: &ProtectionDomain,
    offset: u64,
    length: usize,
    iova: u64,
    fd: i32,
    access: Access,
) -> Result<NonNull<ibv_mr>, Error> {
    let Some(reg_dmabuf_mr) = pd.context().functions().reg_dmabuf_mr else {
        return Err(unsupported(pd, "ibv_reg_dmabuf_mr"));
    };
    // SAFETY: the domain is alive; about the memory see the caller.
    conv::pointer(|| unsafe {
        reg_dmabuf_mr(
            pd.as_raw(),
            offset,
            length,
            iova,
            fd,
            access.bits().cast_signed(),
        )
    })
    .map_err(|source| dmabuf_error(pd, offset, length, iova, fd, access, source))
}

/// The same by mlx5's Data Direct function.
///
/// # Safety
///
/// As for [`dmabuf_call`].
unsafe fn data_direct_call(
    pd: &ProtectionDomain,
    offset: u64,
    length: usize,
    iova: u64,
    fd: i32,
    access: Access,
) -> Result<NonNull<ibv_mr>, Error> {
    // SAFETY: about the memory see the caller.
    let answer = unsafe { mlx5::register_dmabuf(pd, offset, length, iova, fd, access) };
    answer
        .ok_or_else(|| unsupported(pd, "mlx5dv_reg_dmabuf_mr"))?
        .map_err(|source| dmabuf_error(pd, offset, length, iova, fd, access, source))
}

fn dmabuf_error(
    pd: &ProtectionDomain,
    offset: u64,
    length: usize,
    iova: u64,
    fd: i32,
    access: Access,
    source: io::Error,
) -> Error {
    Error::RegisterDmabuf {
        device: pd.context().name(),
        fd,
        offset,
        length,
        iova,
        access,
        source,
    }
}

fn unsupported(pd: &ProtectionDomain, missing: &'static str) -> Error {
    Error::Unsupported {
        device: pd.context().name(),
        operation: REGISTERING_DMABUF,
        missing,
    }
}

const REGISTERING_DMABUF: &str = "registering a DMA-BUF";

/// Checks a part of a DMA-BUF and the address that it is to have.
fn check_dmabuf(pd: &ProtectionDomain, offset: u64, length: usize, iova: u64) -> Result<(), Error> {
    check_range(pd, REGISTERING_DMABUF, iova, length)?;
    check_range(pd, REGISTERING_DMABUF, offset, length)?;
    let page = page_size();
    if offset % page == iova % page {
        return Ok(());
    }
    let problem =
        format!("offset {offset:#x} and address {iova:#x} differ within a page of {page} bytes");
    Err(invalid(pd, REGISTERING_DMABUF, problem))
}

/// Checks that a range has a first and a last byte.
fn check_range(
    pd: &ProtectionDomain,
    operation: &'static str,
    start: u64,
    length: usize,
) -> Result<(), Error> {
    if length == 0 {
        return Err(invalid(pd, operation, "the length is 0".to_owned()));
    }
    match start.checked_add(length as u64 - 1) {
        Some(_) => Ok(()),
        None => {
            let problem = format!("{length} bytes from {start:#x} exceed the address space");
            Err(invalid(pd, operation, problem))
        }
    }
}

fn invalid(pd: &ProtectionDomain, operation: &'static str, problem: String) -> Error {
    Error::InvalidArgument {
        device: pd.context().name(),
        operation,
        problem,
    }
}

/// The size of a page, in bytes.
fn page_size() -> u64 {
    // SAFETY: the call takes and gives plain numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX requires the value, so that the smallest page there is stands in only on paper.
    u64::try_from(size).unwrap_or(4096)
}
