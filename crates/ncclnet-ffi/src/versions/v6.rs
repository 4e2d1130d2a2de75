//! API version 6, of NCCL 2.13.4 to 2.18: no device handles.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{NcclResult, NetV6, PropertiesV5};
use crate::entry::{self, connect, data, device, flush, init, memory};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v6: NetV6 = NetV6 {
    name: entry::NAME,
    init: Some(init::init_v2::<6>),
    devices: Some(device::devices),
    get_properties: Some(get_properties),
    listen: Some(connect::listen_v5),
    connect: Some(connect),
    accept: Some(accept),
    reg_mr: Some(memory::reg_mr_v2),
    reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(data::isend_v5),
    irecv: Some(data::irecv_v5),
    iflush: Some(flush::iflush_v5),
    test: Some(data::test),
    close_send: Some(connect::close_send),
    close_recv: Some(connect::close_recv),
    close_listen: Some(connect::close_listen),
};

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV5) -> NcclResult {
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, |device| Ok(properties(device))) }
}

/// The properties of API versions 5 and 6.
pub(super) fn properties(device: &Properties) -> PropertiesV5 {
    PropertiesV5 {
        name: device.name.as_ptr(),
        pci_path: device.pci_path(),
        guid: device.guid,
        pointer_support: device.pointer_support,
        speed: device.speed,
        port: device.port,
        latency: device.latency,
        max_comms: device.max_comms,
        max_receives: device.max_receives,
    }
}

/// `connect` of API versions 5 and 6.
pub(super) unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe { connect::connect_v7(device, handle, communicator, ptr::null_mut()) }
}

/// `accept` of API versions 5 and 6.
pub(super) unsafe extern "C" fn accept(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `accept`.
    unsafe { connect::accept_v7(listener, communicator, ptr::null_mut()) }
}
