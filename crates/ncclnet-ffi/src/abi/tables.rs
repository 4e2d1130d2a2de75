//! One table struct per API version: what the symbol `ncclNetPlugin_vN` is.
//!
//! Every function is an `Option`, so that a table of a foreign plugin may be read without a promise
//! about its null pointers. "May be absent" marks those that NCCL accepts as null.

use std::ffi::c_char;
use std::mem::offset_of;

use super::functions::*;
use super::properties::{PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12};
use super::structs::{VirtualDeviceV9, VirtualDeviceV12};

/// `ncclNet_v12_t`: NCCL 2.30 and later.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetV12 {
    /// The network's name, which `NCCL_NET` selects by.
    pub name: *const c_char,
    /// Prepares the plugin; once per communicator.
    pub init: Option<InitV11>,
    /// Number of devices.
    pub devices: Option<Devices>,
    /// What a device is.
    pub get_properties: Option<GetProperties<PropertiesV12>>,
    /// Starts listening; fills the handle that the peer connects with.
    pub listen: Option<ListenV11>,
    /// Connects; null until the connection stands.
    pub connect: Option<ConnectV11>,
    /// Accepts; null until a connection stands.
    pub accept: Option<Accept>,
    /// Registers memory.
    pub reg_mr: Option<RegMr>,
    /// Registers memory of a DMA-BUF. May be absent.
    pub reg_mr_dmabuf: Option<RegMrDmaBuf>,
    /// Deregisters memory.
    pub dereg_mr: Option<DeregMr>,
    /// Starts a send; a null request means: call again.
    pub isend: Option<IsendV10>,
    /// Starts a grouped receive; a null request means: call again.
    pub irecv: Option<IrecvV10>,
    /// Makes received GPU memory visible; a null request means: nothing to do.
    pub iflush: Option<Iflush>,
    /// Whether a request is done, and the sizes.
    pub test: Option<Test>,
    /// Closes a sending communicator.
    pub close_send: Option<Close>,
    /// Closes a receiving communicator.
    pub close_recv: Option<Close>,
    /// Stops listening.
    pub close_listen: Option<Close>,
    /// For networks that a GPU drives. May be absent.
    pub get_device_mr: Option<GetDeviceMr>,
    /// For networks that a GPU drives. May be absent.
    pub irecv_consumed: Option<IrecvConsumed>,
    /// Makes a virtual device. May be absent.
    pub make_vdevice: Option<MakeVDevice<VirtualDeviceV12>>,
    /// Ends what `init` began, once per communicator.
    pub finalize: Option<Close>,
    /// A hint on how the network is going to be used. May be absent.
    pub set_net_attr: Option<SetNetAttr>,
}

/// `ncclNet_v11_t`: NCCL 2.28 and 2.29. As version 12, with other properties.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetV11 {
    /// The network's name, which `NCCL_NET` selects by.
    pub name: *const c_char,
    /// Prepares the plugin; once per communicator.
    pub init: Option<InitV11>,
    /// Number of devices.
    pub devices: Option<Devices>,
    /// What a device is.
    pub get_properties: Option<GetProperties<PropertiesV11>>,
    /// Starts listening; fills the handle that the peer connects with.
    pub listen: Option<ListenV11>,
    /// Connects; null until the connection stands.
    pub connect: Option<ConnectV11>,
    /// Accepts; null until a connection stands.
    pub accept: Option<Accept>,
    /// Registers memory.
    pub reg_mr: Option<RegMr>,
    /// Registers memory of a DMA-BUF. May be absent.
    pub reg_mr_dmabuf: Option<RegMrDmaBuf>,
    /// Deregisters memory.
    pub dereg_mr: Option<DeregMr>,
    /// Starts a send; a null request means: call again.
    pub isend: Option<IsendV10>,
    /// Starts a grouped receive; a null request means: call again.
    pub irecv: Option<IrecvV10>,
    /// Makes received GPU memory visible; a null request means: nothing to do.
    pub iflush: Option<Iflush>,
    /// Whether a request is done, and the sizes.
    pub test: Option<Test>,
    /// Closes a sending communicator.
    pub close_send: Option<Close>,
    /// Closes a receiving communicator.
    pub close_recv: Option<Close>,
    /// Stops listening.
    pub close_listen: Option<Close>,
    /// For networks that a GPU drives. May be absent.
    pub get_device_mr: Option<GetDeviceMr>,
    /// For networks that a GPU drives. May be absent.
    pub irecv_consumed: Option<IrecvConsumed>,
    /// Makes a virtual device. May be absent.
    pub make_vdevice: Option<MakeVDevice<VirtualDeviceV9>>,
    /// Ends what `init` began, once per communicator.
    pub finalize: Option<Close>,
    /// A hint on how the network is going to be used. May be absent.
    pub set_net_attr: Option<SetNetAttr>,
}

/// `ncclNet_v10_t`: NCCL 2.26 and 2.27. No context, no `finalize`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetV10 {
    /// The network's name, which `NCCL_NET` selects by.
    pub name: *const c_char,
    /// Prepares the plugin; called again is the same as called once.
    pub init: Option<InitV10>,
    /// Number of devices.
    pub devices: Option<Devices>,
    /// What a device is.
    pub get_properties: Option<GetProperties<PropertiesV9>>,
    /// Starts listening; fills the handle that the peer connects with.
    pub listen: Option<ListenV8>,
    /// Connects; null until the connection stands.
    pub connect: Option<ConnectV10>,
    /// Accepts; null until a connection stands.
    pub accept: Option<Accept>,
    /// Registers memory.
    pub reg_mr: Option<RegMr>,
    /// Registers memory of a DMA-BUF. May be absent.
    pub reg_mr_dmabuf: Option<RegMrDmaBuf>,
    /// Deregisters memory.
    pub dereg_mr: Option<DeregMr>,
    /// Starts a send; a null request means: call again.
    pub isend: Option<IsendV10>,
    /// Starts a grouped receive; a null request means: call again.
    pub irecv: Option<IrecvV10>,
    /// Makes received GPU memory visible; a null request means: nothing to do.
    pub iflush: Option<Iflush>,
    /// Whether a request is done, and the sizes.
    pub test: Option<Test>,
    /// Closes a sending communicator.
    pub close_send: Option<Close>,
    /// Closes a receiving communicator.
    pub close_recv: Option<Close>,
    /// Stops listening.
    pub close_listen: Option<Close>,
    /// For networks that a GPU drives. May be absent.
    pub get_device_mr: Option<GetDeviceMr>,
    /// For networks that a GPU drives. May be absent.
    pub irecv_consumed: Option<IrecvConsumed>,
    /// Makes a virtual device. May be absent.
    pub make_vdevice: Option<MakeVDevice<VirtualDeviceV9>>,
}

/// `ncclNet_v9_t`: NCCL 2.24 and 2.25. No traffic class, no profiler.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetV9 {
    /// The network's name, which `NCCL_NET` selects by.
    pub name: *const c_char,
    /// Prepares the plugin; called again is the same as called once.
    pub init: Option<InitV8>,
    /// Number of devices.
    pub devices: Option<Devices>,
    /// What a device is.
    pub get_properties: Option<GetProperties<PropertiesV9>>,
    /// Starts listening; fills the handle that the peer connects with.
    pub listen: Option<ListenV8>,
    /// Connects; null until the connection stands.
    pub connect: Option<ConnectV8>,
    /// Accepts; null until a connection stands.
    pub accept: Option<Accept>,
    /// Registers memory.
    pub reg_mr: Option<RegMr>,
    /// Registers memory of a DMA-BUF. May be absent.
    pub reg_mr_dmabuf: Option<RegMrDmaBuf>,
    /// Deregisters memory.
    pub dereg_mr: Option<DeregMr>,
    /// Starts a send; a null request means: call again.
    pub isend: Option<IsendV9>,
    /// Starts a grouped receive; a null request means: call again.
    pub irecv: Option<IrecvV9>,
    /// Makes received GPU memory visible; a null request means: nothing to do.
    pub iflush: Option<Iflush>,
    /// Whether a request is done, and the sizes.
    pub test: Option<Test>,
    /// Closes a sending communicator.
    pub close_send: Option<Close>,
    /// Closes a receiving communicator.
    pub close_recv: Option<Close>,
    /// Stops listening.
    pub close_listen: Option<Close>,
    /// For networks that a GPU drives. May be absent.
    pub get_device_mr: Option<GetDeviceMr>,
    /// For networks that a GPU drives. May be absent.
    pub irecv_consumed: Option<IrecvConsumed>,
    /// Makes a virtual device. May be absent.
    pub make_vdevice: Option<MakeVDevice<VirtualDeviceV9>>,
}

/// `ncclNet_v8_t`: NCCL 2.20 to 2.23. Sizes are `int`; no virtual devices.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetV8 {
    /// The network's name, which `NCCL_NET` selects by.
    pub name: *const c_char,
    /// Prepares the plugin; called again is the same as called once.
    pub init: Option<InitV8>,
    /// Number of devices.
    pub devices: Option<Devices>,
    /// What a device is.
    pub get_properties: Option<GetProperties<PropertiesV8>>,
    /// Starts listening; fills the handle that the peer connects with.
    pub listen: Option<ListenV8>,
    /// Connects; null until the connection stands.
    pub connect: Option<ConnectV8>,
    /// Accepts; null until a connection stands.
    pub accept: Option<Accept>,
    /// Registers memory.
    pub reg_mr: Option<RegMr>,
    /// Registers memory of a DMA-BUF. May be absent.
    pub reg_mr_dmabuf: Option<RegMrDmaBuf>,
    /// Deregisters memory.
    pub dereg_mr: Option<DeregMr>,
    /// Starts a send; a null request means: call again.
    pub isend: Option<IsendV8>,
    /// Starts a grouped receive; a null request means: call again.
    pub irecv: Option<IrecvV8>,
    /// Makes received GPU memory visible; a null request means: nothing to do.
    pub iflush: Option<Iflush>,
    /// Whether a request is done, and the sizes.
    pub test: Option<Test>,
    /// Closes a sending communicator.
    pub close_send: Option<Close>,
    /// Closes a receiving communicator.
    pub close_recv: Option<Close>,
    /// Stops listening.
    pub close_listen: Option<Close>,
    /// For networks that a GPU drives. May be absent.
    pub get_device_mr: Option<GetDeviceMr>,
    /// For networks that a GPU drives. May be absent.
    pub irecv_consumed: Option<IrecvConsumed>,
}

// SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by itself.
unsafe impl Sync for NetV12 {}
// SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by itself.
unsafe impl Sync for NetV11 {}
// SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by itself.
unsafe impl Sync for NetV10 {}
// SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by itself.
unsafe impl Sync for NetV9 {}
// SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by itself.
unsafe impl Sync for NetV8 {}

/// Asserts the size of one table and the offset of each of its fields.
macro_rules! assert_table {
    ($type:ty, size $size:literal, $($field:ident @ $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size && align_of::<$type>() == 8);
            $(assert!(offset_of!($type, $field) == $offset);)+
        };
    };
}

assert_table!(
    NetV12, size 176, name @ 0, init @ 8, devices @ 16, get_properties @ 24, listen @ 32,
    connect @ 40, accept @ 48, reg_mr @ 56, reg_mr_dmabuf @ 64, dereg_mr @ 72, isend @ 80,
    irecv @ 88, iflush @ 96, test @ 104, close_send @ 112, close_recv @ 120, close_listen @ 128,
    get_device_mr @ 136, irecv_consumed @ 144, make_vdevice @ 152, finalize @ 160,
    set_net_attr @ 168,
);
assert_table!(
    NetV11, size 176, name @ 0, init @ 8, devices @ 16, get_properties @ 24, listen @ 32,
    connect @ 40, accept @ 48, reg_mr @ 56, reg_mr_dmabuf @ 64, dereg_mr @ 72, isend @ 80,
    irecv @ 88, iflush @ 96, test @ 104, close_send @ 112, close_recv @ 120, close_listen @ 128,
    get_device_mr @ 136, irecv_consumed @ 144, make_vdevice @ 152, finalize @ 160,
    set_net_attr @ 168,
);
assert_table!(
    NetV10, size 160, name @ 0, init @ 8, devices @ 16, get_properties @ 24, listen @ 32,
    connect @ 40, accept @ 48, reg_mr @ 56, reg_mr_dmabuf @ 64, dereg_mr @ 72, isend @ 80,
    irecv @ 88, iflush @ 96, test @ 104, close_send @ 112, close_recv @ 120, close_listen @ 128,
    get_device_mr @ 136, irecv_consumed @ 144, make_vdevice @ 152,
);
assert_table!(
    NetV9, size 160, name @ 0, init @ 8, devices @ 16, get_properties @ 24, listen @ 32,
    connect @ 40, accept @ 48, reg_mr @ 56, reg_mr_dmabuf @ 64, dereg_mr @ 72, isend @ 80,
    irecv @ 88, iflush @ 96, test @ 104, close_send @ 112, close_recv @ 120, close_listen @ 128,
    get_device_mr @ 136, irecv_consumed @ 144, make_vdevice @ 152,
);
assert_table!(
    NetV8, size 152, name @ 0, init @ 8, devices @ 16, get_properties @ 24, listen @ 32,
    connect @ 40, accept @ 48, reg_mr @ 56, reg_mr_dmabuf @ 64, dereg_mr @ 72, isend @ 80,
    irecv @ 88, iflush @ 96, test @ 104, close_send @ 112, close_recv @ 120, close_listen @ 128,
    get_device_mr @ 136, irecv_consumed @ 144,
);
