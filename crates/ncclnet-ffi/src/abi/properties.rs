//! `ncclNetProperties_vN_t`: what a device is, in the seven layouts of API versions 3 to 12.

use std::ffi::{c_char, c_float, c_int};
use std::mem::offset_of;

use super::structs::{VirtualDeviceV9, VirtualDeviceV12};

/// `ncclNetProperties_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesV12 {
    /// Name, unique among all devices. Lives as long as the process.
    pub name: *const c_char,
    /// The PCI device's folder in sysfs, or null. Lives as long as the process.
    pub pci_path: *const c_char,
    /// Equal for devices that are the same piece of hardware.
    pub guid: u64,
    /// Which memory can be registered: `PTR_*` bits.
    pub pointer_support: c_int,
    /// 1 if registering a part of what is registered already is nearly free.
    pub registration_is_global: c_int,
    /// 1 if every receive into GPU memory must be flushed.
    pub force_flush: c_int,
    /// Mb/s.
    pub speed: c_int,
    /// Port number; together with `guid` it tells physical ports apart.
    pub port: c_int,
    /// Microseconds; 0 lets NCCL assume its default.
    pub latency: c_float,
    /// Connections that the device can have.
    pub max_comms: c_int,
    /// Largest `n` of `irecv`.
    pub max_receives: c_int,
    /// Who drives the device.
    pub device_type: c_int,
    /// Version of the driver in the GPU, if that drives it.
    pub device_version: c_int,
    /// The physical devices that make up this one; a physical one names itself.
    pub virtual_device: VirtualDeviceV12,
    /// Bytes of the largest message.
    pub max_p2p_bytes: usize,
    /// Bytes of the largest operation of a collective network.
    pub max_collective_bytes: usize,
    /// Requests that may be combined.
    pub max_multi_request_size: c_int,
    /// Rail of the device, or −1.
    pub rail_id: i16,
    /// Plane of the device, or −1.
    pub plane_id: i16,
}

/// `ncclNetProperties_v11_t`: no rail and plane, four devices per virtual device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV11 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub registration_is_global: c_int,
    pub force_flush: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: c_float,
    pub max_comms: c_int,
    pub max_receives: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
    pub virtual_device: VirtualDeviceV9,
    pub max_p2p_bytes: usize,
    pub max_collective_bytes: usize,
    pub max_multi_request_size: c_int,
}

/// `ncclNetProperties_v10_t` and `_v9_t`: nor `maxMultiRequestSize`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV9 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub registration_is_global: c_int,
    pub force_flush: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: c_float,
    pub max_comms: c_int,
    pub max_receives: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
    pub virtual_device: VirtualDeviceV9,
    pub max_p2p_bytes: usize,
    pub max_collective_bytes: usize,
}

/// `ncclNetProperties_v8_t`: nor `forceFlush`, virtual devices and the size limits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV8 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub registration_is_global: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: c_float,
    pub max_comms: c_int,
    pub max_receives: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
}

/// `ncclNetProperties_v7_t`: nor `regIsGlobal`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV7 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: c_float,
    pub max_comms: c_int,
    pub max_receives: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
}

/// `ncclNetProperties_v6_t` and `_v5_t`: nor the kind of device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV5 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: c_float,
    pub max_comms: c_int,
    pub max_receives: c_int,
}

/// `ncclNetProperties_v4_t` and `_v3_t`: nor `latency` and `maxRecvs`. (Version 2 has functions instead.)
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "fields as in PropertiesV12")]
pub struct PropertiesV3 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub pointer_support: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub max_comms: c_int,
}

/// Asserts the offset of each named field of one struct.
macro_rules! assert_offsets {
    ($type:ty, size $size:literal, $($field:ident @ $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size && align_of::<$type>() == 8);
            $(assert!(offset_of!($type, $field) == $offset);)+
        };
    };
}

assert_offsets!(
    PropertiesV12, size 128,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, registration_is_global @ 28,
    force_flush @ 32, speed @ 36, port @ 40, latency @ 44, max_comms @ 48, max_receives @ 52,
    device_type @ 56, device_version @ 60, virtual_device @ 64, max_p2p_bytes @ 104,
    max_collective_bytes @ 112, max_multi_request_size @ 120, rail_id @ 124, plane_id @ 126,
);
assert_offsets!(
    PropertiesV11, size 112,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, registration_is_global @ 28,
    force_flush @ 32, speed @ 36, port @ 40, latency @ 44, max_comms @ 48, max_receives @ 52,
    device_type @ 56, device_version @ 60, virtual_device @ 64, max_p2p_bytes @ 88,
    max_collective_bytes @ 96, max_multi_request_size @ 104,
);
assert_offsets!(
    PropertiesV9, size 104,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, registration_is_global @ 28,
    force_flush @ 32, speed @ 36, port @ 40, latency @ 44, max_comms @ 48, max_receives @ 52,
    device_type @ 56, device_version @ 60, virtual_device @ 64, max_p2p_bytes @ 88,
    max_collective_bytes @ 96,
);
assert_offsets!(
    PropertiesV8, size 64,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, registration_is_global @ 28,
    speed @ 32, port @ 36, latency @ 40, max_comms @ 44, max_receives @ 48, device_type @ 52,
    device_version @ 56,
);
assert_offsets!(
    PropertiesV7, size 56,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, speed @ 28, port @ 32, latency @ 36,
    max_comms @ 40, max_receives @ 44, device_type @ 48, device_version @ 52,
);
assert_offsets!(
    PropertiesV5, size 48,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, speed @ 28, port @ 32, latency @ 36,
    max_comms @ 40, max_receives @ 44,
);
assert_offsets!(
    PropertiesV3, size 40,
    name @ 0, pci_path @ 8, guid @ 16, pointer_support @ 24, speed @ 28, port @ 32, max_comms @ 36,
);
