//! The data path: `isend`, `irecv`, `test`.
//!
//! No lock, no allocation, no log and no system call of our own on the way to success.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Once;

use ibnet::raw::{RecvBuffer, RecvConnection, RequestId};
use ibnet::{MAX_GROUP, Region};

use super::{Out, array, bytes};
use crate::abi::{MULTI_REQUEST, NcclResult, OPTIONAL_RECV_COMPLETION};
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::handles::{HandleError, Kind, ObjectId, RequestToken};
use crate::plugin::objects::{RECEIVERS, REGIONS, SENDERS};
use crate::profiler::{self, Parent};

/// Largest size of one buffer in bytes: `test` tells sizes as `int`.
const MAX_SIZE: usize = c_int::MAX as usize;

/// `isend` of API versions 5 to 8.
pub(crate) unsafe extern "C" fn isend_v5(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let size = bytes(size);
    // SAFETY: the contract of `isend`.
    unsafe { isend(communicator, data, size, tag, region, None, request) }
}

/// `isend` of API version 9.
pub(crate) unsafe extern "C" fn isend_v9(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `isend`.
    unsafe { isend(communicator, data, Ok(size), tag, region, None, request) }
}

/// `isend` of API versions 10 to 12.
pub(crate) unsafe extern "C" fn isend_v10(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    region: *mut c_void,
    parent: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let parent = Parent::from_c(parent);
    // SAFETY: the contract of `isend`.
    unsafe { isend(communicator, data, Ok(size), tag, region, parent, request) }
}

/// A message of no bytes needs no memory handle, and one that comes with it is not looked at: NCCL passes
/// whichever it has.
///
/// # Safety
/// The contract of `isend`: the memory stays valid and unchanged until `test` reports the request as done, or
/// the communicator is closed.
pub(crate) unsafe fn isend(
    communicator: *mut c_void,
    data: *mut c_void,
    size: Result<usize, Fault>,
    tag: c_int,
    region: *mut c_void,
    parent: Option<Parent>,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("isend", || {
        let out = Out::new(request, "request")?;
        let size = size?;
        check_size(data, size)?;
        let id = ObjectId::from_pointer(communicator, Kind::Sender)?;
        // SAFETY: one call at a time uses a communicator's data path, none that is being closed, and no memory
        // that is being deregistered; of the memory as this function requires.
        let sent = unsafe {
            SENDERS.with(id, |sender| {
                let region = region_for(size, region, communicator)?;
                let parent = parent.map(Parent::to_number);
                let connection = sender.connection();
                let sent = connection.isend_observed(data.cast(), size, tag, region, parent);
                sent.map_err(Fault::from)
            })
        }??;
        out.set_request(Kind::SendRequest, id, sent);
        Ok(())
    })
}

/// `irecv` of API versions 5 to 8.
pub(crate) unsafe extern "C" fn irecv_v5(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let group = Group {
        count,
        data,
        sizes,
        tags,
        regions,
        parents: ptr::null(),
    };
    // SAFETY: the contract of `irecv`.
    unsafe { irecv(communicator, group, bytes, Flags::None, request) }
}

/// `irecv` of API version 9.
pub(crate) unsafe extern "C" fn irecv_v9(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
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

/// `irecv` of API versions 10 to 12.
pub(crate) unsafe extern "C" fn irecv_v10(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    parents: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let group = Group {
        count,
        data,
        sizes,
        tags,
        regions,
        parents,
    };
    // SAFETY: the contract of `irecv`; every `usize` is a size.
    unsafe { irecv(communicator, group, Ok, Flags::InRequest, request) }
}

/// The arrays of a grouped receive, as C gives them: each null or of `count` elements. The profiler's
/// parents are the only ones that may be null.
pub(crate) struct Group<S> {
    pub(crate) count: c_int,
    pub(crate) data: *const *mut c_void,
    pub(crate) sizes: *const S,
    pub(crate) tags: *const c_int,
    pub(crate) regions: *const *mut c_void,
    pub(crate) parents: *const *mut c_void,
}

/// Whether a version of the interface has flags for `irecv`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flags {
    /// Before API version 9: what is in `*request` has no meaning.
    None,
    /// In `*request`, before the request is written there.
    InRequest,
}

/// `irecv` with the sizes of a version, each turned into bytes by `bytes`.
///
/// # Safety
/// Each array of `group` is null or has as many elements as it says; `request` is null or can be read
/// and written. The memory of every buffer stays valid and untouched until `test` reports the request as done, or
/// the communicator is closed.
pub(crate) unsafe fn irecv<S: Copy>(
    communicator: *mut c_void,
    group: Group<S>,
    bytes: impl Fn(S) -> Result<usize, Fault>,
    flags: Flags,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("irecv", || {
        // SAFETY: not null, and the caller's to read.
        let value = unsafe { required(request, "request")?.read() };
        let out = Out::new(request, "request")?;
        let count = group_len(group.count)?;
        let is_awaited = flags == Flags::None || is_awaited(value, count);
        // SAFETY: arrays of `count` elements, as this function requires.
        let (data, sizes) = unsafe {
            (
                array(group.data, count, "data")?,
                array(group.sizes, count, "sizes")?,
            )
        };
        // SAFETY: as above.
        let (tags, regions) = unsafe {
            (
                array(group.tags, count, "tags")?,
                array(group.regions, count, "mhandles")?,
            )
        };
        let buffer = |index: usize| {
            let size = bytes(sizes[index])?;
            check_size(data[index], size)?;
            Ok::<_, Fault>(RecvBuffer {
                data: data[index].cast(),
                capacity: size,
                tag: tags[index],
                region: region_for(size, regions[index], communicator)?,
            })
        };
        let id = ObjectId::from_pointer(communicator, Kind::Receiver)?;
        // SAFETY: as in `isend`.
        let received = unsafe {
            RECEIVERS.with(id, |receiver| {
                let connection = receiver.connection();
                let parents = group.parents;
                announce(connection, count, buffer, parents, is_awaited)
            })
        }??;
        out.set_request(Kind::ReceiveRequest, id, received);
        Ok(())
    })
}

/// Posts the receive of `count` buffers, which `buffer` tells one by one.
///
/// # Safety
/// That of [`irecv`] for the buffers; `parents` is null or has `count` elements.
#[inline]
unsafe fn announce<'a>(
    connection: &mut RecvConnection,
    count: usize,
    buffer: impl Fn(usize) -> Result<RecvBuffer<'a>, Fault>,
    parents: *const *mut c_void,
    is_awaited: bool,
) -> Result<Option<RequestId>, Fault> {
    if count == 1 && !profiler::is_installed() {
        // Nearly all are like this: no room for others is made.
        let only = buffer(0)?;
        // SAFETY: handed on to the caller.
        let received =
            unsafe { connection.irecv_observed(slice::from_ref(&only), &[], is_awaited) };
        return Ok(received?);
    }
    let mut buffers = [const {
        RecvBuffer {
            data: ptr::null_mut(),
            capacity: 0,
            tag: 0,
            region: None,
        }
    }; MAX_GROUP];
    for (index, place) in buffers[..count].iter_mut().enumerate() {
        *place = buffer(index)?;
    }
    let mut observed = [None; MAX_GROUP];
    if !parents.is_null() {
        // SAFETY: not null, and handed on to the caller.
        let parents = unsafe { array(parents, count, "phandles") }?;
        for (place, parent) in observed.iter_mut().zip(parents) {
            *place = Parent::from_c(*parent).map(Parent::to_number);
        }
    }
    // SAFETY: handed on to the caller.
    let received =
        unsafe { connection.irecv_observed(&buffers[..count], &observed[..count], is_awaited) };
    Ok(received?)
}

/// Whether the end of a receive of `count` buffers is waited for, by what NCCL left in `*request`: null, a
/// request of long ago, or flags.
///
/// It is not where the receiver looks at the data itself (NCCL's protocols LL and LL128), which only
/// receives of one buffer do. Several requests at once are not offered (`maxMultiRequestSize`). Flags that
/// are not known are ignored, and said once.
fn is_awaited(value: *mut c_void, count: usize) -> bool {
    /// Flags are small; requests have bits above (see `handles::token`), and no memory lies so low.
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
        let done = required(done, "done")?;
        // SAFETY: not null, and the caller's to write: see the module.
        unsafe { done.write(0) };
        let sizes = NonNull::new(sizes);
        let is_done = is_done(request, |position, size| {
            if let Some(sizes) = sizes {
                // SAFETY: not null, so there is room for as many sizes as the request has buffers,
                // and there are no more positions than that.
                unsafe { sizes.add(position).write(size) };
            }
        })?;
        if is_done {
            // SAFETY: as above.
            unsafe { done.write(1) };
        }
        Ok(())
    })
}

/// Whether a request is done; if so `tell` has been called with the position and the bytes of each of its
/// buffers. A send has one.
#[inline]
pub(super) fn is_done(
    request: *mut c_void,
    mut tell: impl FnMut(usize, c_int),
) -> Result<bool, Fault> {
    let token = RequestToken::from_pointer(request)?;
    let request = RequestId::from_raw(token.request);
    if token.kind == Kind::SendRequest {
        // SAFETY: as in `isend`.
        let sent =
            unsafe { SENDERS.with_owner_of(token, |sender| sender.connection().test(request)) }??;
        if let Some(bytes) = sent {
            tell(0, size_for_c(bytes));
        }
        return Ok(sent.is_some());
    }
    // SAFETY: as in `isend`.
    let is_done = unsafe {
        RECEIVERS.with_owner_of(token, |receiver| {
            receiver.connection().test_with(request, |position, bytes| {
                tell(position, size_for_c(bytes as usize));
            })
        })
    }??;
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

/// The registration of a buffer of `size` bytes: none is needed for none.
#[inline]
pub(super) fn region_for<'a>(
    size: usize,
    region: *mut c_void,
    communicator: *mut c_void,
) -> Result<Option<&'a Region>, Fault> {
    if size == 0 {
        return Ok(None);
    }
    let id = ObjectId::from_pointer(region, Kind::Region)?;
    // SAFETY: NCCL deregisters no memory that a call uses.
    let registered = unsafe { REGIONS.get(id) }?;
    if registered.communicator != communicator.addr() {
        return Err(HandleError::OtherOwner.into());
    }
    Ok(Some(&registered.region))
}

#[inline]
pub(super) fn check_size(data: *mut c_void, size: usize) -> Result<(), Fault> {
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
