//! The data path: send, grouped receive, test.
//!
//! No lock, no allocation, no log, no system call of our own on the way to success, but for the first
//! call of a thread on a communicator that another one used before.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use ibnet::{MAX_GROUP, RecvBuffer, RecvConnection, Region, RequestId};

use super::objects::{RECEIVERS, REGIONS, SENDERS};
use crate::fault::Fault;
use crate::handles::{Inside, Kind, ObjectId, RequestToken};
use crate::profiler::{self, Parent};

/// Largest size of one buffer in bytes: `test` tells sizes as `int`.
const MAX_SIZE: usize = c_int::MAX as usize;

/// One buffer of a grouped receive, as it comes from C.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) data: *mut c_void,
    /// Bytes; a capacity, the message may be smaller.
    pub(crate) size: usize,
    pub(crate) tag: c_int,
    pub(crate) region: *mut c_void,
    /// What the profiler's events belong to.
    pub(crate) parent: Option<Parent>,
}

impl Buffer {
    /// What lies behind the group in an array.
    pub(crate) const NOTHING: Self = Self {
        data: ptr::null_mut(),
        size: 0,
        tag: 0,
        region: ptr::null_mut(),
        parent: None,
    };
}

/// `isend`. None: try again later.
///
/// A message of no bytes needs no memory handle, and one that comes with it is not looked at: NCCL
/// passes whichever it has.
///
/// # Safety
/// The `size` bytes at `data` must stay valid and unchanged until `test` reports the request as done,
/// or the communicator is closed.
#[inline]
pub(crate) unsafe fn isend(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    region: *mut c_void,
    parent: Option<Parent>,
) -> Result<Option<RequestToken>, Fault> {
    let id = ObjectId::from_pointer(communicator, Kind::Sender)?;
    check_size(data, size)?;
    let request = SENDERS.enter(id)?.run(|connection, inside| {
        let region = region_for(size, region, inside)?;
        // SAFETY: handed on to the caller.
        let request = unsafe {
            connection.isend_observed(
                data.cast_const().cast(),
                size,
                tag,
                region,
                parent.map(Parent::to_number),
            )
        };
        request.map_err(Fault::from)
    })?;
    Ok(request.map(|request| RequestToken::new(Kind::SendRequest, id, request.into_raw())))
}

/// `irecv` of `count` buffers, 1 to [`MAX_GROUP`], which `buffer` tells one by one. None: try again
/// later. Unless it `is_awaited`, which only a receive of one buffer need not be, the request is done at
/// once, and the data comes when it comes.
///
/// # Safety
/// The memory of every buffer must stay valid and untouched until `test` reports the request as done,
/// or the communicator is closed.
#[inline]
pub(crate) unsafe fn irecv(
    communicator: *mut c_void,
    count: usize,
    buffer: impl Fn(usize) -> Result<Buffer, Fault>,
    is_awaited: bool,
) -> Result<Option<RequestToken>, Fault> {
    let id = ObjectId::from_pointer(communicator, Kind::Receiver)?;
    let request = RECEIVERS.enter(id)?.run(|connection, inside| {
        // SAFETY: handed on to the caller.
        unsafe { announce(connection, inside, count, buffer, is_awaited) }
    })?;
    Ok(request.map(|request| RequestToken::new(Kind::ReceiveRequest, id, request.into_raw())))
}

/// `irecv`, in a call with the communicator.
///
/// # Safety
/// As for [`irecv`].
#[inline]
unsafe fn announce(
    connection: &mut RecvConnection,
    inside: Inside<'_>,
    count: usize,
    buffer: impl Fn(usize) -> Result<Buffer, Fault>,
    is_awaited: bool,
) -> Result<Option<RequestId>, Fault> {
    let place = |index| {
        let Buffer {
            data,
            size,
            tag,
            region,
            ..
        } = buffer(index)?;
        check_size(data, size)?;
        Ok::<_, Fault>(RecvBuffer {
            data: data.cast(),
            capacity: size,
            tag,
            region: region_for(size, region, inside)?,
        })
    };
    let request = if profiler::is_installed() {
        let mut parents = [None; MAX_GROUP];
        for (index, parent) in parents[..count].iter_mut().enumerate() {
            *parent = buffer(index)?.parent.map(Parent::to_number);
        }
        let buffers = group(count, place)?;
        // SAFETY: handed on to the caller.
        unsafe { connection.irecv_observed(&buffers[..count], &parents[..count], is_awaited) }?
    } else if count == 1 {
        // Nearly all are like this: no room for others is made.
        let only = place(0)?;
        // SAFETY: handed on to the caller.
        unsafe { connection.irecv_observed(slice::from_ref(&only), &[], is_awaited) }?
    } else {
        let buffers = group(count, place)?;
        // SAFETY: handed on to the caller.
        unsafe { connection.irecv_observed(&buffers[..count], &[], is_awaited) }?
    };
    Ok(request)
}

/// The `count` buffers of a group, at the beginning of an array.
fn group<'a>(
    count: usize,
    place: impl Fn(usize) -> Result<RecvBuffer<'a>, Fault>,
) -> Result<[RecvBuffer<'a>; MAX_GROUP], Fault> {
    let mut buffers = [const {
        RecvBuffer {
            data: ptr::null_mut(),
            capacity: 0,
            tag: 0,
            region: None,
        }
    }; MAX_GROUP];
    for (index, buffer) in buffers[..count].iter_mut().enumerate() {
        *buffer = place(index)?;
    }
    Ok(buffers)
}

/// `test`: whether a request is done, and if so `tell` has been called with the position and the bytes
/// of each of its buffers; a send has one. A request that is done does not exist any more.
#[inline]
pub(crate) fn test(
    request: *mut c_void,
    mut tell: impl FnMut(usize, c_int),
) -> Result<bool, Fault> {
    let token = RequestToken::from_pointer(request)?;
    let request = RequestId::from_raw(token.request);
    if token.kind == Kind::SendRequest {
        let sender = SENDERS.enter_for(token)?;
        let sent = sender.run(|connection, _| connection.test(request))?;
        if let Some(bytes) = sent {
            tell(0, size_for_c(bytes));
        }
        return Ok(sent.is_some());
    }
    let receiver = RECEIVERS.enter_for(token)?;
    let is_done = receiver.run(|connection, _| {
        connection.test_with(request, |position, bytes| {
            tell(position, size_for_c(bytes as usize));
        })
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
            Fault::argument(format!(
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
    inside: Inside<'a>,
) -> Result<Option<&'a Region>, Fault> {
    if size == 0 {
        Ok(None)
    } else {
        Ok(Some(REGIONS.get(region, inside)?))
    }
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
    fn groups_have_one_to_eight_buffers() {
        assert_eq!(group_len(1), Ok(1));
        assert_eq!(group_len(8), Ok(8));
        for count in [0, -1, 9, c_int::MAX, c_int::MIN] {
            assert!(group_len(count).is_err());
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
