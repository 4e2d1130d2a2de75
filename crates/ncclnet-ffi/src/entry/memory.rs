//! `regMr`, `regMrDmaBuf`, `deregMr`.

use std::ffi::{c_int, c_void};

use super::{Out, bytes};
use crate::abi::NcclResult;
use crate::fault::Fault;
use crate::guard::guard;
use crate::plugin::memory;

/// `regMr` of API versions 2 to 7.
pub(crate) unsafe extern "C" fn reg_mr_v2(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `regMr`.
    unsafe { reg_mr(communicator, data, bytes(size), kind, handle) }
}

/// `regMr` of API version 8 and later.
pub(crate) unsafe extern "C" fn reg_mr_v8(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `regMr`.
    unsafe { reg_mr(communicator, data, Ok(size), kind, handle) }
}

/// # Safety
/// The contract of `regMr`.
unsafe fn reg_mr(
    communicator: *mut c_void,
    data: *mut c_void,
    size: Result<usize, Fault>,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMr", || {
        let out = Out::new(handle, "mhandle")?;
        // SAFETY: NCCL keeps the memory until it deregisters it or closes the communicator.
        let region = unsafe { memory::register(communicator, data, size?, kind) }?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// `regMrDmaBuf`.
pub(crate) unsafe extern "C" fn reg_mr_dmabuf(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    offset: u64,
    fd: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMrDmaBuf", || {
        let out = Out::new(handle, "mhandle")?;
        // SAFETY: NCCL keeps the memory until it deregisters it or closes the communicator.
        let region =
            unsafe { memory::register_dmabuf(communicator, data, size, kind, offset, fd) }?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// `deregMr`.
pub(crate) unsafe extern "C" fn dereg_mr(
    communicator: *mut c_void,
    handle: *mut c_void,
) -> NcclResult {
    guard("deregMr", || memory::deregister(communicator, handle))
}
