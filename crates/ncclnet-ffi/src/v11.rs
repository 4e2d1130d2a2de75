//! API version 11, of NCCL 2.28 and 2.29: the first with a context per communicator.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{
    CommConfig, DebugLogger, DeviceHandle, NcclResult, NetV11, ProfilerCallback, PropertiesV11,
    VirtualDeviceV9,
};
use crate::entry::{self, Out};
use crate::guard::guard;
use crate::handles::{Kind, ObjectId};
use crate::plugin::device::Properties;
use crate::plugin::lifecycle;
use crate::v9;

/// The table that NCCL finds by this name.
#[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: NetV11 = NetV11 {
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
    isend: Some(entry::isend_v10),
    irecv: Some(entry::irecv_v10),
    iflush: Some(entry::iflush),
    test: Some(entry::test),
    close_send: Some(entry::close_send),
    close_recv: Some(entry::close_recv),
    close_listen: Some(entry::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
    make_vdevice: Some(v9::make_vdevice),
    finalize: Some(finalize),
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
    unsafe { init_version(11, context, communicator, config, logger) }
}

/// `init` of API versions 11 and 12.
///
/// # Safety
/// `context` is null or can be written; `config` is null or can be read; `logger` stays valid until
/// the last `finalize`.
pub(crate) unsafe fn init_version(
    version: u32,
    context: *mut *mut c_void,
    communicator: u64,
    config: *mut CommConfig,
    logger: Option<DebugLogger>,
) -> NcclResult {
    guard("init", || {
        // Before anything can fail: the reason is to be read somewhere.
        lifecycle::use_logger(logger);
        let out = Out::new(context, "ctx")?;
        // SAFETY: as this function requires. NCCL's configuration is a local variable of its own: it
        // is read here and not kept.
        let traffic_class = unsafe { entry::traffic_class(config) }?;
        out.set(lifecycle::init_communicator(version, communicator, traffic_class)?.to_pointer());
        Ok(())
    })
}

unsafe extern "C" fn get_properties(index: c_int, out: *mut PropertiesV11) -> NcclResult {
    let convert = |device: &Properties| PropertiesV11 {
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
        max_multi_request_size: device.max_multi_request_size,
    };
    // SAFETY: the contract of `getProperties`.
    unsafe { entry::get_properties(index, out, convert) }
}

/// `listen` of API versions 11 and 12.
pub(crate) unsafe extern "C" fn listen(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `listen`.
    unsafe { entry::listen(context, device, handle, communicator) }
}

/// `connect` of API versions 11 and 12: the traffic class is the context's.
pub(crate) unsafe extern "C" fn connect(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: the contract of `connect`.
    unsafe {
        entry::connect(
            context,
            device,
            ptr::null(),
            handle,
            communicator,
            device_handle,
        )
    }
}

/// `finalize`. Null, which `init` never gives, is nothing to do.
pub(crate) unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    guard("finalize", || {
        if context.is_null() {
            return Ok(());
        }
        lifecycle::finalize(ObjectId::from_pointer(context, Kind::Context)?)
    })
}
