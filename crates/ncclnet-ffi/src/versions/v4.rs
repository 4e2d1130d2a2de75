//! API version 4, of NCCL 2.8.3 to 2.11: no tags and no groups; `connect` and `accept` give a
//! communicator, and wait for it; handles have 64 bytes.

use std::ffi::{c_int, c_void};

use super::{v5, waiting};
use crate::abi::{NcclResult, NetV4, PropertiesV3};
use crate::entry::{self, connect, device, flush, init, memory};
use crate::plugin::device::Properties;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v4: NetV4 = NetV4 {
    name: entry::NAME,
    init: Some(init::init_v2::<4>),
    devices: Some(device::devices),
    get_properties: Some(get_properties),
    listen: Some(waiting::listen),
    connect: Some(waiting::connect),
    accept: Some(waiting::accept),
    reg_mr: Some(memory::reg_mr_v2),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(waiting::isend),
    irecv: Some(waiting::irecv),
    iflush: Some(iflush),
    test: Some(v5::test),
    close_send: Some(v5::close_send),
    close_recv: Some(v5::close_recv),
    close_listen: Some(connect::close_listen),
};

/// `getProperties` of API versions 3 and 4.
pub(super) unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV3) -> NcclResult {
    let convert = |device: &Properties| {
        Ok(PropertiesV3 {
            name: device.name.as_ptr(),
            pci_path: device.pci_path(),
            guid: device.guid,
            pointer_support: device.pointer_support_without_dmabuf(),
            speed: device.speed,
            port: device.port,
            max_comms: device.max_comms,
        })
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { device::get_properties(index, out, convert) }
}

unsafe extern "C" fn iflush(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let (mut data, mut size, mut region) = (data, size, region);
    // SAFETY: the contract of `iflush`: one buffer is a group of one, in variables of this function.
    unsafe { flush::iflush_v5(communicator, 1, &mut data, &mut size, &mut region, request) }
        .without_remote_error()
}
