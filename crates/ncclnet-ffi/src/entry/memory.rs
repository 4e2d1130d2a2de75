//! `regMr`, `regMrDmaBuf`, `deregMr`. They run beside the data path of the same communicator.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use ibnet::{Error, Region, Registrar};

use super::{Out, bytes};
use crate::abi::{NcclResult, PTR_CUDA, PTR_HOST};
use crate::fault::Fault;
use crate::guard::guard;
use crate::handles::{Kind, ObjectId};
use crate::plugin::objects::{Memory, RECEIVERS, REGIONS, Registered, SENDERS};

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
/// The contract of `regMr`: the memory stays mapped until the handle is deregistered or its communicator is
/// closed.
unsafe fn reg_mr(
    communicator: *mut c_void,
    data: *mut c_void,
    size: Result<usize, Fault>,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMr", || {
        let out = Out::new(handle, "mhandle")?;
        let size = size?;
        check_kind(kind)?;
        check_range(data, size)?;
        // SAFETY: as this function requires; null and empty ranges were refused.
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
        let out = Out::new(handle, "mhandle")?;
        check_kind(kind)?;
        check_range(data, size)?;
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
) -> Result<ObjectId, Fault> {
    let memory = memory_of(communicator)?;
    let id = REGIONS.insert(Registered {
        region: register(&memory.registrar)?,
        communicator: communicator.addr(),
    })?;
    memory.live().insert(id);
    Ok(id)
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
        let id = ObjectId::from_pointer(handle, Kind::Region)?;
        if !memory.live().remove(&id) {
            return Err(Fault::internal(
                "the memory handle is out of date or was registered with another communicator",
            ));
        }
        REGIONS.take(id)?.region.deregister()?;
        Ok(())
    })
}

/// The memory of a communicator of either direction.
fn memory_of(communicator: *mut c_void) -> Result<&'static Memory, Fault> {
    let id = ObjectId::communicator(communicator)?;
    Ok(match id.kind {
        // SAFETY: NCCL closes a communicator when no call uses it.
        Kind::Sender => unsafe { &SENDERS.get(id)?.memory },
        // SAFETY: as above.
        _ => unsafe { &RECEIVERS.get(id)?.memory },
    })
}

fn check_kind(kind: c_int) -> Result<(), Fault> {
    match kind {
        PTR_HOST | PTR_CUDA => Ok(()),
        _ => Err(Fault::argument(format!("there is no memory type {kind}"))),
    }
}

fn check_range(data: *mut c_void, size: usize) -> Result<(), Fault> {
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
        assert_eq!(check_kind(PTR_HOST), Ok(()));
        assert_eq!(check_kind(PTR_CUDA), Ok(()));
        for kind in [-1, 0, 3, 4] {
            let code = check_kind(kind).err().map(|fault| fault.code());
            assert_eq!(code, Some(NcclResult::INVALID_ARGUMENT), "{kind}");
        }
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        let somewhere = ptr::without_provenance_mut(0x1000);
        assert_eq!(check_range(somewhere, 1), Ok(()));
        assert!(check_range(ptr::null_mut(), 1).is_err());
        assert!(check_range(somewhere, 0).is_err());
        assert!(check_range(somewhere, usize::MAX).is_err());
    }
}
