//! API version 10, of NCCL 2.26 and 2.27: no context; the configuration comes with `connect`.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{CommConfig, DebugLogger, DeviceHandle, NcclResult, NetV10, ProfilerCallback};
use crate::entry;
use crate::v8;
use crate::v9;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: NetV10 = NetV10 {
    name: entry::NAME,
    init: Some(init),
    devices: Some(entry::devices),
    get_properties: Some(v9::get_properties),
    listen: Some(v8::listen),
    connect: Some(connect),
    accept: Some(entry::accept),
    reg_mr: Some(entry::reg_mr),
    reg_mr_dmabuf: Some(entry::reg_mr_dmabuf),
    dereg_mr: Some(entry::dereg_mr),
    isend: Some(entry::isend_v10),
    irecv: Some(entry::irecv_v10),
    iflush: Some(entry::iflush),
    test: Some(entry::test),
    close_send: Some(entry::close_send),
    close_recv: Some(entry::close_recv),
    close_listen: Some(entry::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
    make_vdevice: Some(v9::make_vdevice),
};

unsafe extern "C" fn init(
    logger: Option<DebugLogger>,
    _profiler: Option<ProfilerCallback>,
) -> NcclResult {
    v8::init_version(10, logger)
}

unsafe extern "C" fn connect(
    device: c_int,
    config: *mut CommConfig,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe {
        entry::connect(
            ptr::null_mut(),
            device,
            config,
            handle,
            communicator,
            device_handle,
        )
    }
}
