//! API version 12, of NCCL 2.30: the newest, and the one that the older ones are variations of.

use std::ffi::c_int;

use crate::abi::{NcclResult, NetV12, PropertiesV12, VirtualDeviceV12};
use crate::entry::{self, connect, data, device, flush, init, memory};
use crate::guard::{guard, required};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name. NCCL uses it in place: it is never written.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: NetV12 = NetV12 {
    name: entry::NAME,
    init: Some(init::init_v11::<12>),
    devices: Some(device::devices),
    get_properties: Some(get_properties),
    listen: Some(connect::listen_v11),
    connect: Some(connect::connect_v11),
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
    // For networks that a GPU drives, like the one before.
    irecv_consumed: None,
    make_vdevice: Some(make_vdevice),
    finalize: Some(init::finalize),
    // A hint that nothing here depends on: without it NCCL saves the call.
    set_net_attr: None,
};

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV12) -> NcclResult {
    let convert = |device: &Properties| {
        let (count, devices) = device.members_for_c()?;
        Ok(PropertiesV12 {
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
            virtual_device: VirtualDeviceV12 { count, devices },
            max_p2p_bytes: device.max_p2p_bytes,
            max_collective_bytes: device.max_collective_bytes,
            max_multi_request_size: device.max_multi_request_size,
            rail_id: device.rail_id,
            plane_id: device.plane_id,
        })
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, convert) }
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
        unsafe { device::make_vdevice(index, count, &devices) }
    })
}
