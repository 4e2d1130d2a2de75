//! API version 8, of NCCL 2.20 to 2.23: sizes are `int`; no virtual devices.

use std::ffi::c_int;

use crate::abi::{NcclResult, NetV8, PropertiesV8};
use crate::entry::{self, connect, data, device, flush, init, memory};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: NetV8 = NetV8 {
    name: entry::NAME,
    init: Some(init::init_v2::<8>),
    devices: Some(device::devices),
    get_properties: Some(get_properties),
    listen: Some(connect::listen_v5),
    connect: Some(connect::connect_v7),
    accept: Some(connect::accept_v7),
    reg_mr: Some(memory::reg_mr_v8),
    reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(data::isend_v5),
    irecv: Some(data::irecv_v5),
    iflush: Some(flush::iflush_v5),
    test: Some(data::test),
    close_send: Some(connect::close_send),
    close_recv: Some(connect::close_recv),
    close_listen: Some(connect::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
};

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV8) -> NcclResult {
    let convert = |device: &Properties| {
        Ok(PropertiesV8 {
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
        })
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, convert) }
}
