//! `ncclNetProperties_vN_t`: what a device is, in the seven layouts of API versions 3 to 12.
//!
//! Each older layout has fewer fields and can be made from the newest.

use std::ffi::{c_char, c_float, c_int};

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

/// Declares an older layout, and makes it from the newest.
macro_rules! older {
    ($(#[$about:meta])* $name:ident { $($field:ident: $type:ty,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "fields as in PropertiesV12")]
        pub struct $name {
            $(pub $field: $type,)+
        }

        impl From<PropertiesV12> for $name {
            fn from(newest: PropertiesV12) -> Self {
                Self {
                    $($field: newest.$field.into(),)+
                }
            }
        }
    };
}

older! {
    /// `ncclNetProperties_v11_t`: no rail and plane, four devices per virtual device.
    PropertiesV11 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        registration_is_global: c_int,
        force_flush: c_int,
        speed: c_int,
        port: c_int,
        latency: c_float,
        max_comms: c_int,
        max_receives: c_int,
        device_type: c_int,
        device_version: c_int,
        virtual_device: VirtualDeviceV9,
        max_p2p_bytes: usize,
        max_collective_bytes: usize,
        max_multi_request_size: c_int,
    }
}

older! {
    /// `ncclNetProperties_v10_t` and `_v9_t`: nor `maxMultiRequestSize`.
    PropertiesV9 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        registration_is_global: c_int,
        force_flush: c_int,
        speed: c_int,
        port: c_int,
        latency: c_float,
        max_comms: c_int,
        max_receives: c_int,
        device_type: c_int,
        device_version: c_int,
        virtual_device: VirtualDeviceV9,
        max_p2p_bytes: usize,
        max_collective_bytes: usize,
    }
}

older! {
    /// `ncclNetProperties_v8_t`: nor `forceFlush`, virtual devices and the size limits.
    PropertiesV8 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        registration_is_global: c_int,
        speed: c_int,
        port: c_int,
        latency: c_float,
        max_comms: c_int,
        max_receives: c_int,
        device_type: c_int,
        device_version: c_int,
    }
}

older! {
    /// `ncclNetProperties_v7_t`: nor `regIsGlobal`.
    PropertiesV7 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        speed: c_int,
        port: c_int,
        latency: c_float,
        max_comms: c_int,
        max_receives: c_int,
        device_type: c_int,
        device_version: c_int,
    }
}

older! {
    /// `ncclNetProperties_v6_t` and `_v5_t`: nor the kind of device.
    PropertiesV5 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        speed: c_int,
        port: c_int,
        latency: c_float,
        max_comms: c_int,
        max_receives: c_int,
    }
}

older! {
    /// `ncclNetProperties_v4_t` and `_v3_t`: nor `latency` and `maxRecvs`. (Version 2 has functions instead.)
    PropertiesV3 {
        name: *const c_char,
        pci_path: *const c_char,
        guid: u64,
        pointer_support: c_int,
        speed: c_int,
        port: c_int,
        max_comms: c_int,
    }
}
