//! API version 9, of NCCL 2.24 and 2.25: no configuration, no profiler; virtual devices are new.

use std::ffi::c_int;

use crate::abi::{DebugLogger, NcclResult, NetV9, PropertiesV9, VirtualDeviceV9};
use crate::entry;
use crate::guard::{guard, required};
use crate::plugin::device::Properties;
use crate::v8;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: NetV9 = NetV9 {
    name: entry::NAME,
    init: Some(init),
    devices: Some(entry::devices),
    get_properties: Some(get_properties),
    listen: Some(v8::listen),
    connect: Some(v8::connect),
    accept: Some(entry::accept),
    reg_mr: Some(entry::reg_mr),
    reg_mr_dmabuf: Some(entry::reg_mr_dmabuf),
    dereg_mr: Some(entry::dereg_mr),
    isend: Some(entry::isend_v9),
    irecv: Some(entry::irecv_v9),
    iflush: Some(entry::iflush),
    test: Some(entry::test),
    close_send: Some(entry::close_send),
    close_recv: Some(entry::close_recv),
    close_listen: Some(entry::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
    make_vdevice: Some(make_vdevice),
};

unsafe extern "C" fn init(logger: Option<DebugLogger>) -> NcclResult {
    v8::init_version(9, logger)
}

/// `getProperties` of API versions 9 and 10.
pub(crate) unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV9) -> NcclResult {
    let convert = |device: &Properties| PropertiesV9 {
        name: device.name.as_ptr(),
        pci_path: device.pci_path(),
        guid: device.guid,
        pointer_support: device.pointer_support,
        registration_is_global: device.registration_is_global.into(),
        force_flush: device.force_flush.into(),
        speed: device.speed,
        port: device.port,
        latency: device.latency,
        max_comms: device.max_comms,
        max_receives: device.max_receives,
        device_type: device.device_type,
        device_version: device.device_version,
        virtual_device: VirtualDeviceV9 {
            count: 1,
            devices: device.members(),
        },
        max_p2p_bytes: device.max_p2p_bytes,
        max_collective_bytes: device.max_collective_bytes,
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { entry::get_properties(index, out, convert) }
}

/// `makeVDevice` of API versions 9 to 11.
pub(crate) unsafe extern "C" fn make_vdevice(
    index: *mut c_int,
    properties: *mut VirtualDeviceV9,
) -> NcclResult {
    guard("makeVDevice", || {
        let properties = required(properties, "props")?;
        // SAFETY: not null, and the caller's to read.
        let VirtualDeviceV9 { count, devices } = unsafe { properties.read() };
        // SAFETY: the contract of `makeVDevice`.
        unsafe { entry::make_vdevice(index, count, &devices) }
    })
}
