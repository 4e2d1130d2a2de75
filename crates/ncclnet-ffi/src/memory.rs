//! `regMr`, `regMrDmaBuf`, `deregMr`. They run beside the data path of the same communicator.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use ibnet::{Error, Region, Registrar};

use crate::abi::{NcclResult, PTR_CUDA, PTR_HOST};
use crate::fault::Fault;
use crate::guard::{Out, Size, guard};
use crate::handles::{Handle, Kind};
use crate::objects::{Memory, RECEIVERS, REGIONS, Registered, SENDERS};

/// `regMr`. The memory stays mapped until the handle is deregistered or its communicator is closed.
pub(crate) unsafe extern "C" fn reg_mr<S: Size>(
    communicator: *mut c_void,
    data: *mut c_void,
    size: S,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMr", || {
        let out = Out::handle(handle, "mhandle")?;
        let size = size.bytes()?;
        check(kind, data, size)?;
        // SAFETY: the contract of `regMr`; null and empty ranges were refused.
        let region = add(communicator, |registrar| unsafe {
            if kind == PTR_CUDA {
                // Tried whatever the device says of itself: a module may have been loaded since, and some
                // GPUs have memory that is the host's, too.
                registrar.register_device_memory(data.cast(), size)
            } else {
                registrar.register(data.cast(), size)
            }
        })?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// `regMrDmaBuf`: `size` bytes at `offset` in the DMA-BUF `fd`, which its owner sees at `data`. The descriptor
/// need not stay open.
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
        let out = Out::handle(handle, "mhandle")?;
        check(kind, data, size)?;
        if fd < 0 {
            return Err(Fault::argument(format!("there is no descriptor {fd}")));
        }
        // SAFETY: not -1, and the caller's for as long as this call. A number that is no descriptor is an
        // error of the system call that it gets to.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: NCCL keeps the memory until it deregisters it or closes the communicator.
        let region = add(communicator, |registrar| unsafe {
            registrar.register_dmabuf(data.cast(), size, offset, descriptor)
        })?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// Adds the registration that `register` makes to a communicator.
fn add(
    communicator: *mut c_void,
    register: impl FnOnce(&Registrar) -> Result<Region, Error>,
) -> Result<Handle, Fault> {
    let memory = memory_of(communicator)?;
    let handle = REGIONS.insert(Registered {
        region: register(&memory.registrar)?,
        communicator: communicator.addr(),
    })?;
    memory.live().insert(handle);
    Ok(handle)
}

/// `deregMr`. A null handle is nothing to do.
pub(crate) unsafe extern "C" fn dereg_mr(
    communicator: *mut c_void,
    handle: *mut c_void,
) -> NcclResult {
    guard("deregMr", || {
        if handle.is_null() {
            return Ok(());
        }
        let memory = memory_of(communicator)?;
        let handle = Handle::of(Kind::Region, handle)?;
        if !memory.live().remove(&handle) {
            return Err(Fault::internal(
                "the memory handle is out of date or was registered with another communicator",
            ));
        }
        REGIONS.take(handle)?.region.deregister()?;
        Ok(())
    })
}

/// The memory of a communicator of either direction.
fn memory_of(communicator: *mut c_void) -> Result<&'static Memory, Fault> {
    let handle = Handle::of_communicator(communicator)?;
    Ok(match handle.kind {
        // SAFETY: NCCL closes a communicator when no call uses it.
        Kind::Sender => unsafe { &SENDERS.get(handle)?.memory },
        // SAFETY: as above.
        _ => unsafe { &RECEIVERS.get(handle)?.memory },
    })
}

/// Memory of this kind at this place can be registered, as far as the arguments tell.
fn check(kind: c_int, data: *mut c_void, size: usize) -> Result<(), Fault> {
    if !matches!(kind, PTR_HOST | PTR_CUDA) {
        return Err(Fault::argument(format!("there is no memory type {kind}")));
    }
    if data.is_null() || size == 0 || data.addr().checked_add(size).is_none() {
        return Err(Fault::argument(format!(
            "{size} bytes at {data:p} cannot be registered"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn there_are_two_kinds_of_memory() {
        let somewhere = ptr::without_provenance_mut(0x1000);
        assert_eq!(check(PTR_HOST, somewhere, 1), Ok(()));
        assert_eq!(check(PTR_CUDA, somewhere, 1), Ok(()));
        for kind in [-1, 0, 3, 4] {
            let fault = check(kind, somewhere, 1).err();
            let code = fault.map(|fault| fault.code());
            assert_eq!(code, Some(NcclResult::INVALID_ARGUMENT), "{kind}");
        }
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        let somewhere = ptr::without_provenance_mut(0x1000);
        assert!(check(PTR_HOST, ptr::null_mut(), 1).is_err());
        assert!(check(PTR_HOST, somewhere, 0).is_err());
        assert!(check(PTR_HOST, somewhere, usize::MAX).is_err());
    }
}
