//! API version 11, of NCCL 2.28 and 2.29: the first with a context per communicator.

use std::ffi::c_int;

use super::v9;
use crate::abi::{NcclResult, NetV11, PropertiesV11, VirtualDeviceV9};
use crate::entry::{self, connect, data, device, flush, init, memory};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: NetV11 = NetV11 {
    name: entry::NAME,
    init: Some(init::init_v11::<11>),
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
    irecv_consumed: None,
    make_vdevice: Some(v9::make_vdevice),
    finalize: Some(init::finalize),
    set_net_attr: None,
};

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV11) -> NcclResult {
    let convert = |device: &Properties| {
        let (count, devices) = device.members_for_c()?;
        Ok(PropertiesV11 {
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
            virtual_device: VirtualDeviceV9 { count, devices },
            max_p2p_bytes: device.max_p2p_bytes,
            max_collective_bytes: device.max_collective_bytes,
            max_multi_request_size: device.max_multi_request_size,
        })
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, convert) }
}
