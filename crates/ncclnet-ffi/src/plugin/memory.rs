//! Registering and deregistering memory. Runs beside the data path of the same communicator.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use ibnet::{Error, Region, Registrar};

use super::objects::{Memory, RECEIVERS, REGIONS, SENDERS};
use crate::abi::{PTR_CUDA, PTR_HOST};
use crate::fault::Fault;
use crate::handles::{HandleError, Kind, ObjectId};

/// `regMr`: the memory handle for `size` bytes at `data`.
///
/// # Safety
/// The memory must stay mapped until the handle is deregistered or its communicator is closed.
pub(crate) unsafe fn register(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
) -> Result<ObjectId, Fault> {
    check_kind(kind)?;
    check_range(data, size)?;
    let data = data.cast();
    // SAFETY: handed on to the caller; null and empty ranges were refused.
    add(communicator, |registrar| unsafe {
        if kind == PTR_CUDA {
            // Tried whatever the device says of itself: a module may have been loaded since, and some
            // GPUs have memory that is the host's, too.
            registrar.register_device_memory(data, size)
        } else {
            registrar.register(data, size)
        }
    })
}

/// `regMrDmaBuf`: the memory handle for `size` bytes, at `offset` in the DMA-BUF `fd`, which whoever
/// owns it sees at `data`.
///
/// # Safety
/// The memory must stay what it is until the handle is deregistered or its communicator is closed. (The
/// descriptor need not stay open.)
pub(crate) unsafe fn register_dmabuf(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    offset: u64,
    fd: c_int,
) -> Result<ObjectId, Fault> {
    check_kind(kind)?;
    check_range(data, size)?;
    if fd < 0 {
        return Err(Fault::argument(format!("there is no descriptor {fd}")));
    }
    // SAFETY: not -1, and the caller's for as long as this call. A number that is no descriptor is an
    // error of the system call that it gets to.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: handed on to the caller.
    add(communicator, |registrar| unsafe {
        registrar.register_dmabuf(data.cast(), size, offset, descriptor)
    })
}

/// Adds the registration that `register` makes to a communicator.
fn add(
    communicator: *mut c_void,
    register: impl FnOnce(&Registrar) -> Result<Region, Error>,
) -> Result<ObjectId, Fault> {
    let owner = ObjectId::communicator(communicator)?;
    // Not under the lock: registering may take long.
    let registrar = with_memory(owner, |memory| memory.registrar.clone())?;
    let region = register(&registrar)?;
    let id = REGIONS.insert(region, owner)?;
    if with_memory(owner, |memory| memory.regions.insert(id)).is_err() {
        // Closed meanwhile, so nobody else knows of the registration.
        drop(REGIONS.retire(id, owner, || ()));
        return Err(HandleError::Stale.into());
    }
    Ok(id)
}

/// `deregMr`. A null handle is nothing to do.
pub(crate) fn deregister(communicator: *mut c_void, handle: *mut c_void) -> Result<(), Fault> {
    if handle.is_null() {
        return Ok(());
    }
    let owner = ObjectId::communicator(communicator)?;
    let id = ObjectId::from_pointer(handle, Kind::Region)?;
    let must_not_wait = match owner.kind {
        Kind::Sender => SENDERS.must_not_wait(owner),
        _ => RECEIVERS.must_not_wait(owner),
    };
    if must_not_wait {
        return Err(HandleError::Busy.into());
    }
    // Whoever takes it off the communicator's list is the one who ends it: of two threads that
    // deregister the same handle, or one that does and one that closes, only one goes on.
    if !with_memory(owner, |memory| memory.regions.remove(&id))? {
        return Err(Fault::internal(
            "the memory handle is out of date or was registered with another communicator",
        ));
    }
    let region = REGIONS.retire(id, owner, || match owner.kind {
        Kind::Sender => SENDERS.wait_for_call_inside(owner),
        _ => RECEIVERS.wait_for_call_inside(owner),
    })?;
    region.deregister()?;
    Ok(())
}

fn with_memory<R>(
    owner: ObjectId,
    use_it: impl FnOnce(&mut Memory) -> R,
) -> Result<R, HandleError> {
    match owner.kind {
        Kind::Sender => SENDERS.with_shared(owner, use_it),
        _ => RECEIVERS.with_shared(owner, use_it),
    }
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
    use crate::abi::NcclResult;

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
