//! API version 3, of NCCL 2.6.4 and 2.7: `flush` waits.

use std::ffi::{c_int, c_void};

use super::{v4, v5, waiting};
use crate::abi::{NcclResult, NetV3};
use crate::entry::{self, connect, device, init, memory};

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v3: NetV3 = NetV3 {
    name: entry::NAME,
    init: Some(init::init_v2::<3>),
    devices: Some(device::devices),
    get_properties: Some(v4::get_properties),
    listen: Some(waiting::listen),
    connect: Some(waiting::connect),
    accept: Some(waiting::accept),
    reg_mr: Some(memory::reg_mr_v2),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(waiting::isend),
    irecv: Some(waiting::irecv),
    flush: Some(flush),
    test: Some(v5::test),
    close_send: Some(v5::close_send),
    close_recv: Some(v5::close_recv),
    close_listen: Some(connect::close_listen),
};

/// `flush` of API versions 2 and 3.
pub(super) unsafe extern "C" fn flush(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `flush`.
    unsafe { entry::flush::flush_v2(communicator, data, size, region) }.without_remote_error()
}
