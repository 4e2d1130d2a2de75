//! The small structs that the functions of the table take.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use super::constants::{MAX_DEVICES_PER_NIC_V9, MAX_DEVICES_PER_NIC_V12};

/// `ncclNetVDeviceProps_v9_t` to `_v11_t`: the physical devices of a virtual one, at most four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VirtualDeviceV9 {
    /// How many entries of `devices` count.
    pub count: c_int,
    /// Indices of physical devices.
    pub devices: [c_int; MAX_DEVICES_PER_NIC_V9],
}

/// `ncclNetVDeviceProps_v12_t`: the same with room for eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VirtualDeviceV12 {
    /// How many entries of `devices` count.
    pub count: c_int,
    /// Indices of physical devices.
    pub devices: [c_int; MAX_DEVICES_PER_NIC_V12],
}

/// `ncclNetCommConfig_v10_t` to `_v12_t`: settings of one NCCL communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommConfig {
    /// Traffic class of the communicator's connections, or
    /// [`TRAFFIC_CLASS_UNDEFINED`](super::TRAFFIC_CLASS_UNDEFINED).
    pub traffic_class: c_int,
}

/// `ncclNetDeviceHandle_v7_t` to `_v12_t`: for networks that a GPU drives. Not used here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceHandle {
    /// Kind of device, [`NET_DEVICE_HOST`](super::NET_DEVICE_HOST) and others.
    pub device_type: c_int,
    /// Version of the device's protocol.
    pub device_version: c_int,
    /// Data of the device.
    pub handle: *mut c_void,
    /// Bytes behind `handle`.
    pub size: usize,
    /// Whether the proxy thread must make progress for it.
    pub needs_proxy_progress: c_int,
}

/// `ncclNetCommAttr_v11_t` and `_v12_t`: how one direction is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommAttributes {
    /// Most peers that are talked to at a time.
    pub max_concurrent_peers: i32,
    /// Fewest peers that are talked to at a time.
    pub min_concurrent_peers: i32,
    /// Most flows to one peer.
    pub max_flows_per_peer: i32,
    /// Fewest flows to one peer.
    pub min_flows_per_peer: i32,
}

/// `ncclNetAttr_v11_t` and `_v12_t`: the hint that `setNetAttr` carries. −1 means undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NetAttributes {
    /// Sending.
    pub send: CommAttributes,
    /// Receiving.
    pub receive: CommAttributes,
    /// Bit mask of collective operations.
    pub operations: u32,
    /// Bit mask of algorithms.
    pub algorithms: u32,
    /// Bit mask of protocols.
    pub protocols: u32,
}

/// `ncclProfilerNetIbDescr_v1_t`: what a profiler is told of a work request. (The C type has a union
/// with this one member.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProfilerDescriptor {
    /// [`PROFILE_QP`](super::PROFILE_QP).
    pub kind: u8,
    /// The event.
    pub qp: ProfilerQpEvent,
}

/// The part of [`ProfilerDescriptor`] that describes a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProfilerQpEvent {
    /// Number of the physical device.
    pub device: c_int,
    /// Identifier of the work request.
    pub wr_id: u64,
    /// `enum ibv_wr_opcode` of what is sent; 0 for a receive, which has no such code.
    pub opcode: c_int,
    /// Queue pair number.
    pub qp_number: c_int,
    /// Bytes.
    pub length: usize,
}

const _: () = {
    assert!(size_of::<ProfilerDescriptor>() == 40 && align_of::<ProfilerDescriptor>() == 8);
    assert!(offset_of!(ProfilerDescriptor, kind) == 0);
    assert!(offset_of!(ProfilerDescriptor, qp) == 8);
    assert!(offset_of!(ProfilerQpEvent, device) == 0);
    assert!(offset_of!(ProfilerQpEvent, wr_id) == 8);
    assert!(offset_of!(ProfilerQpEvent, opcode) == 16);
    assert!(offset_of!(ProfilerQpEvent, qp_number) == 20);
    assert!(offset_of!(ProfilerQpEvent, length) == 24);

    assert!(size_of::<VirtualDeviceV9>() == 20 && align_of::<VirtualDeviceV9>() == 4);
    assert!(offset_of!(VirtualDeviceV9, devices) == 4);
    assert!(size_of::<VirtualDeviceV12>() == 36 && align_of::<VirtualDeviceV12>() == 4);
    assert!(offset_of!(VirtualDeviceV12, devices) == 4);

    assert!(size_of::<CommConfig>() == 4);

    assert!(size_of::<DeviceHandle>() == 32 && align_of::<DeviceHandle>() == 8);
    assert!(offset_of!(DeviceHandle, device_type) == 0);
    assert!(offset_of!(DeviceHandle, device_version) == 4);
    assert!(offset_of!(DeviceHandle, handle) == 8);
    assert!(offset_of!(DeviceHandle, size) == 16);
    assert!(offset_of!(DeviceHandle, needs_proxy_progress) == 24);

    assert!(size_of::<CommAttributes>() == 16);
    assert!(offset_of!(CommAttributes, min_concurrent_peers) == 4);
    assert!(offset_of!(CommAttributes, max_flows_per_peer) == 8);
    assert!(offset_of!(CommAttributes, min_flows_per_peer) == 12);

    assert!(size_of::<NetAttributes>() == 44 && align_of::<NetAttributes>() == 4);
    assert!(offset_of!(NetAttributes, receive) == 16);
    assert!(offset_of!(NetAttributes, operations) == 32);
    assert!(offset_of!(NetAttributes, algorithms) == 36);
    assert!(offset_of!(NetAttributes, protocols) == 40);
};
