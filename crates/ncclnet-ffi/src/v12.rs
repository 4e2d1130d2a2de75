//! API version 12, of NCCL 2.30: the newest, and the one that the older ones are variations of.

use std::ffi::{c_int, c_void};

use crate::abi::{
    CommConfig, DebugLogger, NcclResult, NetV12, ProfilerCallback, PropertiesV12, VirtualDeviceV12,
};
use crate::entry;
use crate::guard::{guard, required};
use crate::v11;

/// The table that NCCL finds by this name. NCCL uses it in place: it is never written.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: NetV12 = NetV12 {
    name: entry::NAME,
    init: Some(init),
    devices: Some(entry::devices),
    get_properties: Some(get_properties),
    listen: Some(v11::listen),
    connect: Some(v11::connect),
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
    make_vdevice: Some(make_vdevice),
    finalize: Some(v11::finalize),
    // A hint that nothing here depends on: without it NCCL saves the call.
    set_net_attr: None,
};

unsafe extern "C" fn init(
    context: *mut *mut c_void,
    communicator: u64,
    config: *mut CommConfig,
    logger: Option<DebugLogger>,
    _profiler: Option<ProfilerCallback>,
) -> NcclResult {
    // SAFETY: the contract of `init`.
    unsafe { v11::init_version(12, context, communicator, config, logger) }
}

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV12) -> NcclResult {
    let convert = |device: &crate::plugin::device::Properties| PropertiesV12 {
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
        virtual_device: VirtualDeviceV12 {
            count: 1,
            devices: device.members(),
        },
        max_p2p_bytes: device.max_p2p_bytes,
        max_collective_bytes: device.max_collective_bytes,
        max_multi_request_size: device.max_multi_request_size,
        rail_id: device.rail_id,
        plane_id: device.plane_id,
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { entry::get_properties(index, out, convert) }
}

unsafe extern "C" fn make_vdevice(
    index: *mut c_int,
    properties: *mut VirtualDeviceV12,
) -> NcclResult {
    guard("makeVDevice", || {
        let properties = required(properties, "props")?;
        // SAFETY: not null, and the caller's to read.
        let VirtualDeviceV12 { count, devices } = unsafe { properties.read() };
        // SAFETY: the contract of `makeVDevice`.
        unsafe { entry::make_vdevice(index, count, &devices) }
    })
}
