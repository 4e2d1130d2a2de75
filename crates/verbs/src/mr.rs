//! [`MemoryRegion`]: memory that the device may access.

use std::fmt;

use ibverbs_sys::ibv_mr;

use crate::access::Access;
use crate::error::Error;
use crate::object::Object;
use crate::operation::Operation;
use crate::pd::ProtectionDomain;

/// A registered range of memory (`struct ibv_mr`). Deregistered on drop.
///
/// Should deregistering fail, the device keeps its access. Dropping can only log that; a caller
/// that must know before it gives the memory back calls [`deregister`](Self::deregister).
pub struct MemoryRegion {
    object: Object<ibv_mr>,
    lkey: u32,
    rkey: u32,
    address: u64,
    length: usize,
    /// Dropped after the region is deregistered.
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Registers memory with the device: the first of the two unsafe gates of this crate
    /// (ibv_reg_mr(3)).
    ///
    /// Optional access flags ([`Access::OPTIONAL`]) are a wish. They are passed to
    /// `ibv_reg_mr_iova2`, which drops those that the kernel does not support; a library without
    /// that function gets none of them.
    ///
    /// # Errors
    ///
    /// Usually the limit of locked memory. A range that is empty, starts at null or exceeds the
    /// address space is refused without a call.
    ///
    /// # Safety
    ///
    /// The range stays mapped, to the same memory, until the region is dropped or deregistered.
    /// The device and (as `access` allows) peers read and write it meanwhile: no reference
    /// to the memory may be used in a way that such accesses contradict.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let context = self.context();
        let start = address as u64;
        let operation = Operation::Register {
            address: start,
            length,
            access,
        };
        let problem = match address.is_null() {
            true => Some("the address is null".to_owned()),
            false => range_problem(start, length),
        };
        if let Some(problem) = problem {
            return Err(Error::invalid(operation, context.device_name(), problem));
        }
        let functions = context.functions();
        let required = access.difference(Access::OPTIONAL).bits().cast_signed();
        let object = Object::create(context, || match functions.reg_mr_iova2 {
            // SAFETY: the domain is alive; about the memory see the caller.
            Some(reg_mr_iova2) if access.intersects(Access::OPTIONAL) => unsafe {
                reg_mr_iova2(self.as_raw(), address.cast(), length, start, access.bits())
            },
            // SAFETY: as above.
            _ => unsafe { (functions.reg_mr)(self.as_raw(), address.cast(), length, required) },
        });
        match object {
            Ok(object) => Ok(MemoryRegion::new(object, start, length, self)),
            Err(source) => Err(context.error(operation, source)),
        }
    }
}

impl MemoryRegion {
    pub(crate) fn new(
        object: Object<ibv_mr>,
        address: u64,
        length: usize,
        pd: &ProtectionDomain,
    ) -> Self {
        let raw = object.as_raw();
        // SAFETY: the region was just registered; the keys never change.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        Self {
            object,
            lkey,
            rkey,
            address,
            length,
            pd: pd.clone(),
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
        self.object.as_raw()
    }

    /// Deregisters the memory (ibv_dereg_mr(3)), and says if that failed. Dropping the region does
    /// the same, but only logs a failure.
    ///
    /// # Errors
    ///
    /// The region is leaked then: the device may still access the memory, so that it should not be
    /// given back.
    pub fn deregister(mut self) -> Result<(), Error> {
        self.object.destroy().map_err(|source| {
            let operation = Operation::Deregister {
                address: self.address,
                length: self.length,
            };
            self.pd.context().error(operation, source)
        })
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

/// What is wrong with a range that has no first or no last byte.
pub(crate) fn range_problem(start: u64, length: usize) -> Option<String> {
    if length == 0 {
        return Some("the length is 0".to_owned());
    }
    match start.checked_add(length as u64 - 1) {
        Some(_) => None,
        None => Some(format!(
            "{length} bytes from {start:#x} exceed the address space"
        )),
    }
}
