//! `isend`, `irecv`, `iflush`, `test`.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Once;

use ibnet::MAX_GROUP;

use super::{Out, array, bytes};
use crate::abi::{MULTI_REQUEST, NcclResult, OPTIONAL_RECV_COMPLETION};
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::plugin::data::{self, Buffer, group_len};
use crate::plugin::flush;
use crate::profiler::Parent;

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

/// # Safety
/// The contract of `isend`.
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
        // SAFETY: NCCL keeps the memory until the request is done or the communicator closed.
        let sent = unsafe { data::isend(communicator, data, size?, tag, region, parent) }?;
        out.set_request(sent);
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
/// and written.
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
        let parents = if group.parents.is_null() {
            &[]
        } else {
            // SAFETY: as above.
            unsafe { array(group.parents, count, "phandles")? }
        };
        let buffer = |index: usize| {
            Ok(Buffer {
                data: data[index],
                size: bytes(sizes[index])?,
                tag: tags[index],
                region: regions[index],
                parent: parents
                    .get(index)
                    .and_then(|parent| Parent::from_c(*parent)),
            })
        };
        // SAFETY: NCCL keeps the memory until the request is done or the communicator closed.
        let received = unsafe { data::irecv(communicator, count, buffer, is_awaited) }?;
        out.set_request(received);
        Ok(())
    })
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

/// `iflush` of API version 5 and later.
pub(crate) unsafe extern "C" fn iflush_v5(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("iflush", || {
        let out = Out::new(request, "request")?;
        let count = group_len(count)?;
        // SAFETY: arrays of `count` elements: the contract of `iflush`.
        let (data, sizes) = unsafe { (array(data, count, "data")?, array(sizes, count, "sizes")?) };
        // SAFETY: as above.
        let regions = unsafe { array(regions, count, "mhandles")? };
        let mut buffers = [Buffer::NOTHING; MAX_GROUP];
        for (index, buffer) in buffers[..count].iter_mut().enumerate() {
            *buffer = Buffer {
                data: data[index],
                size: bytes(sizes[index])?,
                region: regions[index],
                ..Buffer::NOTHING
            };
        }
        // SAFETY: NCCL keeps memory registered until its flush is done or the communicator closed.
        out.set_request(unsafe { flush::iflush(communicator, &buffers[..count]) }?);
        Ok(())
    })
}

/// `test`.
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
        let is_done = data::test(request, |position, size| {
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
}
