//! The small structs that the functions of the table take.

use std::ffi::{c_int, c_void};

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

/// Those that there is room for.
impl From<VirtualDeviceV12> for VirtualDeviceV9 {
    fn from(newest: VirtualDeviceV12) -> Self {
        let mut devices = [0; MAX_DEVICES_PER_NIC_V9];
        devices.copy_from_slice(&newest.devices[..MAX_DEVICES_PER_NIC_V9]);
        Self {
            count: newest.count.min(MAX_DEVICES_PER_NIC_V9 as c_int),
            devices,
        }
    }
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
