//! [`ProtectionDomain`]: what keeps memory and queue pairs of one user together.

use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys::ibv_pd;

use crate::access::Access;
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::mr::MemoryRegion;
use crate::qp::QueuePair;
use crate::qp_attr::QueuePairOptions;

/// A protection domain (`struct ibv_pd`): queue pairs can reach only memory of their own domain.
///
/// Clones are cheap and mean the same domain.
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_pd>,
    /// Dropped after the domain is deallocated.
    context: Context,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the domain is deallocated once, by whichever thread drops it last.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl ProtectionDomain {
    pub(crate) fn allocate(context: Context) -> Result<Self, Error> {
        // SAFETY: the context is open.
        let raw = conv::pointer(|| unsafe { (context.functions().alloc_pd)(context.as_raw()) })
            .map_err(|source| Error::AllocatePd {
                device: context.name(),
                source,
            })?;
        Ok(Self(Arc::new(Inner { raw, context })))
    }

    /// The open device that the domain is of.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Registers memory with the device: the first of the two unsafe gates of this crate.
    ///
    /// Optional access flags ([`Access::OPTIONAL`]) are a wish. They are passed to
    /// `ibv_reg_mr_iova2`, which drops those that the kernel does not support; a library without
    /// that function gets none of them.
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; usually the limit of locked memory. [`Error::InvalidArgument`] if
    /// the range is empty, starts at null or exceeds the address space.
    ///
    /// # Safety
    ///
    /// The range stays mapped, to the same memory, until the region is dropped or deregistered.
    /// The device and (as `access` allows) peers read and write it meanwhile: no reference
    /// to the memory may be used in a way that such accesses contradict.
    ///
    /// See also: ibv_reg_mr(3).
    pub unsafe fn register(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: passed on to the caller.
        unsafe { MemoryRegion::register(self.clone(), address, length, access) }
    }

    /// Registers part of a DMA-BUF, for example memory of a GPU, with the device.
    ///
    /// `offset` is where the part starts in the DMA-BUF and `iova` the address that the device
    /// and peers use for its first byte. Both must have the same offset within a page.
    ///
    /// # Errors
    ///
    /// [`Error::RegisterDmabuf`]; [`Error::Unsupported`] if the library has no such function
    /// (before IBVERBS_1.12). [`Error::InvalidArgument`] if the range is empty or too large, or
    /// offset and address do not agree within a page.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register), for the memory behind the DMA-BUF. The descriptor
    /// itself may be closed afterwards.
    ///
    /// See also: ibv_reg_dmabuf_mr(3).
    pub unsafe fn register_dmabuf(
        &self,
        offset: u64,
        length: usize,
        iova: u64,
        fd: impl AsRawFd,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let fd = fd.as_raw_fd();
        // SAFETY: passed on to the caller.
        unsafe { MemoryRegion::register_dmabuf(self.clone(), offset, length, iova, fd, access) }
    }

    /// The same by mlx5's Data Direct function, by which the adapter reaches memory of a GPU
    /// without passing through the CPU. For devices that have one: see
    /// [`Context::data_direct_path`].
    ///
    /// # Errors
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf); [`Error::Unsupported`] if the device is
    /// none of mlx5's or its library is too old (before MLX5_1.25).
    ///
    /// # Safety
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf).
    ///
    /// See also: mlx5dv_reg_dmabuf_mr(3).
    pub unsafe fn register_dmabuf_data_direct(
        &self,
        offset: u64,
        length: usize,
        iova: u64,
        fd: impl AsRawFd,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (pd, fd) = (self.clone(), fd.as_raw_fd());
        // SAFETY: passed on to the caller.
        unsafe { MemoryRegion::register_data_direct(pd, offset, length, iova, fd, access) }
    }

    /// Asks whether DMA-BUFs can be registered at all: by registering none, and looking at how that
    /// is refused.
    ///
    /// # Errors
    ///
    /// They cannot: [`Error::Unsupported`] if the library has no such function, and else
    /// [`Error::RegisterDmabuf`] with what the system answered.
    pub fn probe_dmabuf(&self) -> Result<(), Error> {
        MemoryRegion::probe_dmabuf(self)
    }

    /// The same for mlx5's Data Direct function.
    ///
    /// # Errors
    ///
    /// As for [`probe_dmabuf`](Self::probe_dmabuf).
    pub fn probe_dmabuf_data_direct(&self) -> Result<(), Error> {
        MemoryRegion::probe_data_direct(self)
    }

    /// Makes a reliable-connection queue pair, in the state RESET.
    ///
    /// # Errors
    ///
    /// [`Error::CreateQp`]; usually more was asked for than the device allows, see
    /// [`QueuePairOptions::clamp_to`]. [`Error::InvalidArgument`] if a completion queue is of
    /// another context.
    ///
    /// See also: ibv_create_qp(3).
    pub fn create_qp(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, Error> {
        QueuePair::create(self.clone(), options)
    }

    /// Whether both mean the same domain.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The C object. It is valid for as long as this domain, a clone of it, or anything made from
    /// it.
    pub fn as_raw(&self) -> *mut ibv_pd {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("device", &self.context().device_name())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        let dealloc_pd = self.context.functions().dealloc_pd;
        // SAFETY: everything made from the domain holds it, so this is its last use.
        if let Err(error) = conv::returned(|| unsafe { dealloc_pd(self.raw.as_ptr()) }) {
            let device = self.context.device_name();
            tracing::warn!(device, %error, "ibv_dealloc_pd failed; leaked");
        }
    }
}
