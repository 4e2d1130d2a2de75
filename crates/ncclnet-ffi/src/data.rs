//! The data path: `isend`, `irecv`, `test`.
//!
//! No lock, no allocation, no log and no system call of our own on the way to success.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::Once;

use ibnet::MAX_GROUP;
use ibnet::raw::{RecvBuffer, RequestId};

use crate::abi::{MULTI_REQUEST, NcclResult, OPTIONAL_RECV_COMPLETION};
use crate::fault::Fault;
use crate::guard::{Out, Size, array, guard, required};
use crate::handles::{Handle, Kind, Request};
use crate::objects::{RECEIVERS, SENDERS, region_for};
use crate::profiler::{self, Parent};

/// Largest size of one buffer in bytes: `test` tells sizes as `int`.
const MAX_SIZE: usize = c_int::MAX as usize;

/// The tag of every message before API version 5.
const NO_TAG: c_int = 0;

/// `isend` of API versions 2 to 4.
pub(crate) unsafe extern "C" fn isend_v2(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `isend`.
    unsafe { isend_v5(communicator, data, size, NO_TAG, region, request) }
}

/// `isend` of API versions 5 to 9.
pub(crate) unsafe extern "C" fn isend_v5<S: Size>(
    communicator: *mut c_void,
    data: *mut c_void,
    size: S,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let parent = ptr::null_mut();
    // SAFETY: the contract of `isend`; a parent may be null.
    unsafe { isend_v10(communicator, data, size, tag, region, parent, request) }
}

/// `isend` of API versions 10 to 12. The memory stays valid and unchanged until `test` reports the request as
/// done, or the communicator is closed.
pub(crate) unsafe extern "C" fn isend_v10<S: Size>(
    communicator: *mut c_void,
    data: *mut c_void,
    size: S,
    tag: c_int,
    region: *mut c_void,
    parent: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("isend", || {
        let out = Out::handle(request, "request")?;
        let size = size.bytes()?;
        check_size(data, size)?;
        let handle = Handle::of(Kind::Sender, communicator)?;
        let parent = Parent::from_c(parent).map(Parent::to_number);
        // SAFETY: one call at a time uses a communicator's data path, none that is being closed, and no memory
        // that is being deregistered; of the memory as this function requires.
        let sent = unsafe {
            let region = region_for(size, region, communicator)?;
            let connection = SENDERS.get(handle)?.connection();
            connection.isend_observed(data.cast(), size, tag, region, parent)?
        };
        if let Some(id) = sent {
            out.set(Request::new(Kind::SendRequest, handle, id.into_raw()).to_pointer());
        }
        Ok(())
    })
}

/// `irecv` of API versions 2 to 4: one buffer.
pub(crate) unsafe extern "C" fn irecv_v2(
    communicator: *mut c_void,
    mut data: *mut c_void,
    mut size: c_int,
    mut region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let mut tag = NO_TAG;
    let (data, size, tag, region) = (&mut data, &mut size, &mut tag, &mut region);
    // SAFETY: the contract of `irecv`; a group of one in variables of this function.
    unsafe { irecv_v5(communicator, 1, data, size, tag, region, request) }
}

/// `irecv` of API versions 5 to 9.
pub(crate) unsafe extern "C" fn irecv_v5<S: Size>(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut S,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let parents = ptr::null_mut();
    // SAFETY: the contract of `irecv`, whose parents may be null.
    unsafe {
        irecv_v10(
            communicator,
            count,
            data,
            sizes,
            tags,
            regions,
            parents,
            request,
        )
    }
}

/// `irecv` of API versions 10 to 12: arrays of `count` elements, of which `parents` and each of its elements may be
/// null. The memory of every buffer stays valid and untouched until `test` reports the request as done, or the
/// communicator is closed.
pub(crate) unsafe extern "C" fn irecv_v10<S: Size>(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut S,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    parents: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("irecv", || {
        // SAFETY: not null, and the caller's to read.
        let flags = unsafe { required(request, "request")?.read() };
        let out = Out::handle(request, "request")?;
        let count = group_len(count)?;
        let is_awaited = !S::HAS_FLAGS || is_awaited(flags, count);
        // SAFETY: arrays of `count` elements, as this function requires.
        let (data, sizes) = unsafe { (array(data, count, "data")?, array(sizes, count, "sizes")?) };
        // SAFETY: as above.
        let (tags, regions) = unsafe {
            (
                array(tags, count, "tags")?,
                array(regions, count, "mhandles")?,
            )
        };
        let handle = Handle::of(Kind::Receiver, communicator)?;
        // SAFETY: as in `isend`.
        let connection = unsafe { RECEIVERS.get(handle)?.connection() };
        let received = if count == 1 && !profiler::is_installed() {
            // Nearly all are like this: no room for others is made.
            // SAFETY: as in `isend`.
            let only = unsafe { buffer(data[0], sizes[0], tags[0], regions[0], communicator) }?;
            // SAFETY: of the memory as this function requires.
            unsafe { connection.irecv_observed(slice::from_ref(&only), &[], is_awaited)? }
        } else {
            let mut buffers = [const {
                RecvBuffer {
                    data: ptr::null_mut(),
                    capacity: 0,
                    tag: 0,
                    region: None,
                }
            }; MAX_GROUP];
            for (index, place) in buffers[..count].iter_mut().enumerate() {
                let (data, size, tag) = (data[index], sizes[index], tags[index]);
                // SAFETY: as in `isend`.
                *place = unsafe { buffer(data, size, tag, regions[index], communicator) }?;
            }
            let mut observed = [None; MAX_GROUP];
            if !parents.is_null() {
                // SAFETY: not null, and an array as the others.
                let parents = unsafe { array(parents, count, "phandles") }?;
                for (place, parent) in observed.iter_mut().zip(parents) {
                    *place = Parent::from_c(*parent).map(Parent::to_number);
                }
            }
            let (buffers, observed) = (&buffers[..count], &observed[..count]);
            // SAFETY: of the memory as this function requires.
            unsafe { connection.irecv_observed(buffers, observed, is_awaited)? }
        };
        if let Some(id) = received {
            out.set(Request::new(Kind::ReceiveRequest, handle, id.into_raw()).to_pointer());
        }
        Ok(())
    })
}

/// A buffer of a receive, whose arguments are checked.
///
/// # Safety
/// Its memory is not deregistered for as long as the result lives.
#[inline(always)]
unsafe fn buffer<'a, S: Size>(
    data: *mut c_void,
    size: S,
    tag: c_int,
    region: *mut c_void,
    communicator: *mut c_void,
) -> Result<RecvBuffer<'a>, Fault> {
    let capacity = size.bytes()?;
    check_size(data, capacity)?;
    Ok(RecvBuffer {
        data: data.cast(),
        capacity,
        tag,
        // SAFETY: handed on to the caller.
        region: unsafe { region_for(capacity, region, communicator) }?,
    })
}

/// Whether the end of a receive of `count` buffers is waited for, by what NCCL left in `*request`: null, a
/// request of long ago, or flags.
///
/// It is not where the receiver looks at the data itself (NCCL's protocols LL and LL128), which only
/// receives of one buffer do. Several requests at once are not offered (`maxMultiRequestSize`). Flags that
/// are not known are ignored, and said once.
fn is_awaited(value: *mut c_void, count: usize) -> bool {
    /// Flags are small; requests have bits above (see `handles`), and no memory lies so low.
    const MAX_FLAGS: usize = 0xffff;
    static SAID: Once = Once::new();
    let flags = value.addr();
    if flags > MAX_FLAGS {
        return true;
    }
    if flags & !(OPTIONAL_RECV_COMPLETION | MULTI_REQUEST) != 0 {
        SAID.call_once(|| {
            tracing::debug!("irecv: flags {flags:#x} are not known and ignored; said once");
        });
    }
    flags & OPTIONAL_RECV_COMPLETION == 0 || count != 1
}

/// `test`. A request that is done does not exist any more.
pub(crate) unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    guard("test", || {
        let done = Out::new(done, "done", 0)?;
        let is_done = is_done(request, |position, size| {
            if !sizes.is_null() {
                // SAFETY: not null, so there is room for as many sizes as the request has buffers,
                // and there are no more positions than that.
                unsafe { sizes.add(position).write(size) };
            }
        })?;
        if is_done {
            done.set(1);
        }
        Ok(())
    })
}

/// Whether a request is done; if so `tell` has been called with the position and the bytes of each of its
/// buffers. A send has one.
#[inline]
pub(crate) fn is_done(
    request: *mut c_void,
    mut tell: impl FnMut(usize, c_int),
) -> Result<bool, Fault> {
    let request = Request::of(request)?;
    let id = RequestId::from_raw(request.id);
    if request.kind == Kind::SendRequest {
        // SAFETY: as in `isend`.
        let sent = unsafe { SENDERS.owner_of(request)?.connection() }.test(id)?;
        if let Some(bytes) = sent {
            tell(0, size_for_c(bytes));
        }
        return Ok(sent.is_some());
    }
    // SAFETY: as in `isend`.
    let connection = unsafe { RECEIVERS.owner_of(request)?.connection() };
    let is_done = connection.test_with(id, |position, bytes| {
        tell(position, size_for_c(bytes as usize));
    })?;
    Ok(is_done)
}

/// The number of buffers in a group, checked.
#[inline]
pub(crate) fn group_len(count: c_int) -> Result<usize, Fault> {
    usize::try_from(count)
        .ok()
        .filter(|count| (1..=MAX_GROUP).contains(count))
        .ok_or_else(|| {
            // As NCCL's own transport has it.
            Fault::internal(format!(
                "a group of {count} buffers; 1 to {MAX_GROUP} are possible"
            ))
        })
}

/// The bytes of a message for C, which are at most [`MAX_SIZE`]: the transport announces no larger
/// buffer, and sends no more than was announced.
#[inline]
fn size_for_c(bytes: usize) -> c_int {
    debug_assert!(bytes <= MAX_SIZE);
    bytes as c_int
}

#[inline(always)]
pub(crate) fn check_size(data: *mut c_void, size: usize) -> Result<(), Fault> {
    if size > MAX_SIZE {
        return Err(Fault::usage(format!(
            "{size} bytes in one buffer; at most {MAX_SIZE} are possible"
        )));
    }
    if data.is_null() && size > 0 {
        return Err(Fault::argument(format!(
            "the address of {size} bytes is null"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_buffer_may_go_without_being_awaited() {
        let awaited = |value, count| is_awaited(ptr::without_provenance_mut(value), count);
        assert!(awaited(0, 1));
        assert!(!awaited(OPTIONAL_RECV_COMPLETION, 1));
        assert!(awaited(OPTIONAL_RECV_COMPLETION, 2));
        assert!(awaited(MULTI_REQUEST, 1));
        assert!(!awaited(MULTI_REQUEST | OPTIONAL_RECV_COMPLETION, 1));
        assert!(awaited(0x44, 1), "not known");
        assert!(awaited(usize::MAX, 1), "no flags");
        assert!(awaited(7 << 60 | 1, 1), "a request of long ago");
    }

    #[test]
    fn groups_have_one_to_eight_buffers() {
        assert_eq!(group_len(1), Ok(1));
        assert_eq!(group_len(8), Ok(8));
        for count in [0, -1, 9, c_int::MAX, c_int::MIN] {
            let code = group_len(count).err().map(|fault| fault.code());
            assert_eq!(
                code,
                Some(NcclResult::INTERNAL_ERROR),
                "as NCCL's own transport"
            );
        }
    }

    #[test]
    fn sizes_are_checked_before_they_are_narrowed() {
        let somewhere = ptr::without_provenance_mut(0x1000);
        assert_eq!(check_size(somewhere, MAX_SIZE), Ok(()));
        assert!(check_size(somewhere, MAX_SIZE + 1).is_err());
        assert!(check_size(somewhere, 1 << 32).is_err());
        assert!(check_size(ptr::null_mut(), 1).is_err());
        assert_eq!(check_size(ptr::null_mut(), 0), Ok(()));
        assert_eq!(size_for_c(MAX_SIZE), c_int::MAX);
    }
}
