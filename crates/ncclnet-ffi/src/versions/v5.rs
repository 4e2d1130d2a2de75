//! API version 5, of NCCL 2.12: no DMA-BUF, and no `ncclRemoteError`.

use std::ffi::{c_int, c_void};

use super::v6;
use crate::abi::{NcclResult, NetV5, PropertiesV5};
use crate::entry::{self, connect, data, device, flush, init, memory};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v5: NetV5 = NetV5 {
    name: entry::NAME,
    init: Some(init::init_v2::<5>),
    devices: Some(device::devices),
    get_properties: Some(get_properties),
    listen: Some(connect::listen_v5),
    connect: Some(connect),
    accept: Some(accept),
    reg_mr: Some(memory::reg_mr_v2),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(isend),
    irecv: Some(irecv),
    iflush: Some(iflush),
    test: Some(test),
    close_send: Some(close_send),
    close_recv: Some(close_recv),
    close_listen: Some(connect::close_listen),
};

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV5) -> NcclResult {
    let convert = |device: &Properties| {
        Ok(PropertiesV5 {
            pointer_support: device.pointer_support_without_dmabuf(),
            ..v6::properties(device)
        })
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, convert) }
}

unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe { v6::connect(device, handle, communicator) }.without_remote_error()
}

unsafe extern "C" fn accept(listener: *mut c_void, communicator: *mut *mut c_void) -> NcclResult {
    // SAFETY: the contract of `accept`.
    unsafe { v6::accept(listener, communicator) }.without_remote_error()
}

unsafe extern "C" fn isend(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `isend`.
    unsafe { data::isend_v5(communicator, data, size, tag, region, request) }.without_remote_error()
}

unsafe extern "C" fn irecv(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `irecv`.
    unsafe { data::irecv_v5(communicator, count, data, sizes, tags, regions, request) }
        .without_remote_error()
}

unsafe extern "C" fn iflush(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `iflush`.
    unsafe { flush::iflush_v5(communicator, count, data, sizes, regions, request) }
        .without_remote_error()
}

/// `test` of API versions 2 to 5.
pub(super) unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    // SAFETY: the contract of `test`.
    unsafe { data::test(request, done, sizes) }.without_remote_error()
}

/// `closeSend` of API versions 2 to 5.
pub(super) unsafe extern "C" fn close_send(communicator: *mut c_void) -> NcclResult {
    // SAFETY: the contract of `closeSend`.
    unsafe { connect::close_send(communicator) }.without_remote_error()
}

/// `closeRecv` of API versions 2 to 5.
pub(super) unsafe extern "C" fn close_recv(communicator: *mut c_void) -> NcclResult {
    // SAFETY: the contract of `closeRecv`.
    unsafe { connect::close_recv(communicator) }.without_remote_error()
}
