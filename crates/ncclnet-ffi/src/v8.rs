//! API version 8, of NCCL 2.20 to 2.23: sizes are `int`; no virtual devices.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{DebugLogger, DeviceHandle, NcclResult, NetV8, PropertiesV8};
use crate::entry::{self, Out};
use crate::fault::Fault;
use crate::guard::guard;
use crate::plugin::device::Properties;
use crate::plugin::lifecycle;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: NetV8 = NetV8 {
    name: entry::NAME,
    init: Some(init),
    devices: Some(entry::devices),
    get_properties: Some(get_properties),
    listen: Some(listen),
    connect: Some(connect),
    accept: Some(entry::accept),
    reg_mr: Some(entry::reg_mr),
    reg_mr_dmabuf: Some(entry::reg_mr_dmabuf),
    dereg_mr: Some(entry::dereg_mr),
    isend: Some(isend),
    irecv: Some(irecv),
    iflush: Some(entry::iflush),
    test: Some(entry::test),
    close_send: Some(entry::close_send),
    close_recv: Some(entry::close_recv),
    close_listen: Some(entry::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
};

unsafe extern "C" fn init(logger: Option<DebugLogger>) -> NcclResult {
    init_version(8, logger)
}

/// `init` of API versions 8 to 10.
pub(crate) fn init_version(version: u32, logger: Option<DebugLogger>) -> NcclResult {
    guard("init", || {
        // Before anything can fail: the reason is to be read somewhere.
        lifecycle::use_logger(logger);
        lifecycle::init_process(version)
    })
}

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV8) -> NcclResult {
    let convert = |device: &Properties| PropertiesV8 {
        name: device.name.as_ptr(),
        pci_path: device.pci_path(),
        guid: device.guid,
        pointer_support: device.pointer_support,
        registration_is_global: device.registration_is_global.into(),
        speed: device.speed,
        port: device.port,
        latency: device.latency,
        max_comms: device.max_comms,
        max_receives: device.max_receives,
        device_type: device.device_type,
        device_version: device.device_version,
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { entry::get_properties(index, out, convert) }
}

/// `listen` of API versions 8 to 10.
pub(crate) unsafe extern "C" fn listen(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `listen`.
    unsafe { entry::listen(ptr::null_mut(), device, handle, communicator) }
}

/// `connect` of API versions 8 and 9.
pub(crate) unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe {
        entry::connect(
            ptr::null_mut(),
            device,
            ptr::null(),
            handle,
            communicator,
            device_handle,
        )
    }
}

unsafe extern "C" fn isend(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    match bytes(size) {
        // SAFETY: the contract of `isend`.
        Ok(size) => unsafe { entry::isend_v9(communicator, data, size, tag, region, request) },
        Err(fault) => guard("isend", || {
            let _null = Out::new(request, "request")?;
            Err(fault)
        }),
    }
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
    unsafe {
        entry::irecv(
            communicator,
            count,
            data,
            sizes,
            bytes,
            tags,
            regions,
            request,
        )
    }
}

/// A size of this version as bytes.
fn bytes(size: c_int) -> Result<usize, Fault> {
    usize::try_from(size).map_err(|_| Fault::argument(format!("{size} bytes is no size")))
}
