//! API version 2, of NCCL 2.4.2 to 2.5: two functions instead of properties.

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{v3, v5, waiting};
use crate::abi::{NcclResult, NetV2};
use crate::entry::{self, connect, device, init, memory};
use crate::guard::{guard, required};
use crate::plugin;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v2: NetV2 = NetV2 {
    name: entry::NAME,
    init: Some(init::init_v2::<2>),
    devices: Some(device::devices),
    pci_path: Some(pci_path),
    ptr_support: Some(ptr_support),
    listen: Some(waiting::listen),
    connect: Some(waiting::connect),
    accept: Some(waiting::accept),
    reg_mr: Some(memory::reg_mr_v2),
    dereg_mr: Some(memory::dereg_mr),
    isend: Some(waiting::isend),
    irecv: Some(waiting::irecv),
    flush: Some(v3::flush),
    test: Some(v5::test),
    close_send: Some(v5::close_send),
    close_recv: Some(v5::close_recv),
    close_listen: Some(connect::close_listen),
};

unsafe extern "C" fn pci_path(index: c_int, path: *mut *mut c_char) -> NcclResult {
    guard("pciPath", || {
        let out = required(path, "path")?;
        // SAFETY: not null, and the caller's to write.
        unsafe { out.write(ptr::null_mut()) };
        let path = plugin::lifecycle::devices()?
            .get(index)?
            .pci_path_to_free()?;
        // SAFETY: as above.
        unsafe { out.write(path) };
        Ok(())
    })
}

unsafe extern "C" fn ptr_support(index: c_int, supported: *mut c_int) -> NcclResult {
    guard("ptrSupport", || {
        let out = required(supported, "supportedTypes")?;
        // SAFETY: not null, and the caller's to write.
        unsafe { out.write(0) };
        let supported = plugin::lifecycle::devices()?
            .get(index)?
            .pointer_support_without_dmabuf();
        // SAFETY: as above.
        unsafe { out.write(supported) };
        Ok(())
    })
}
