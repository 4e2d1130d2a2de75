//! API version 10, of NCCL 2.26 and 2.27: no context; the configuration comes with `connect`.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::v9;
use crate::abi::{CommConfig, DeviceHandle, NcclResult, NetV10};
use crate::entry::{self, connect, data, device, flush, init, memory};

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: NetV10 = NetV10 {
    name: entry::NAME,
    init: Some(init::init_v10),
    devices: Some(device::devices),
    get_properties: Some(v9::get_properties),
    listen: Some(connect::listen_v5),
    connect: Some(connect),
    accept: Some(connect::accept_v7),
    reg_mr: Some(memory::reg_mr_v8),
    reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(data::isend_v10),
    irecv: Some(data::irecv_v10),
    iflush: Some(flush::iflush_v5),
    test: Some(data::test),
    close_send: Some(connect::close_send),
    close_recv: Some(connect::close_recv),
    close_listen: Some(connect::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
    make_vdevice: Some(v9::make_vdevice),
};

unsafe extern "C" fn connect(
    device: c_int,
    config: *mut CommConfig,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe {
        connect::connect(
            ptr::null_mut(),
            device,
            config,
            handle,
            communicator,
            device_handle,
            connect::Until::NotYet,
        )
    }
}
