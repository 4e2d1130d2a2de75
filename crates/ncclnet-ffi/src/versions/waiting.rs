//! What API versions 2 to 4 have in common: `connect` and `accept` wait until they have a communicator,
//! handles have 64 bytes, and a message has neither a tag nor company.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{HANDLE_MAX_SIZE_V2, NcclResult};
use crate::entry::connect::{self, Until};
use crate::entry::data::{Flags, Group};
use crate::entry::{self, bytes};
use crate::plugin::objects::Listening;

/// The tag of every message.
const TAG: c_int = 0;

/// `listen`.
pub(super) unsafe extern "C" fn listen(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let context = ptr::null_mut();
    let begin = Listening::by_itself;
    // SAFETY: the contract of `listen`.
    unsafe { connect::listen::<HANDLE_MAX_SIZE_V2>(context, device, handle, communicator, begin) }
}

/// `connect`.
pub(super) unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let (context, config) = (ptr::null_mut(), ptr::null());
    let (device_handle, until) = (ptr::null_mut(), Until::Connected);
    // SAFETY: the contract of `connect`.
    unsafe {
        connect::connect(
            context,
            device,
            config,
            handle,
            communicator,
            device_handle,
            until,
        )
    }
    .without_remote_error()
}

/// `accept`: waits, because of how such a listener accepts.
pub(super) unsafe extern "C" fn accept(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `accept`.
    unsafe { connect::accept_v7(listener, communicator, ptr::null_mut()) }.without_remote_error()
}

/// `isend`.
pub(super) unsafe extern "C" fn isend(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `isend`.
    unsafe { entry::data::isend_v5(communicator, data, size, TAG, region, request) }
        .without_remote_error()
}

/// `irecv`: a group of one.
pub(super) unsafe extern "C" fn irecv(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let group = Group {
        count: 1,
        data: &data,
        sizes: &size,
        tags: &TAG,
        regions: &region,
        parents: ptr::null(),
    };
    // SAFETY: the contract of `irecv`; the arrays of one are variables of this function.
    unsafe { entry::data::irecv(communicator, group, bytes, Flags::None, request) }
        .without_remote_error()
}
