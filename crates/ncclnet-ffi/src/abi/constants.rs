//! The numbers that the plugin ABI fixes (NCCL `src/include/plugin/nccl_net.h`).

use std::ffi::{c_int, c_ulong};

/// Bytes of the handle that `listen` fills and `connect` reads (API version 5 and later).
pub const HANDLE_MAX_SIZE: usize = 128;

/// The same in API versions 2 to 4.
pub const HANDLE_MAX_SIZE_V2: usize = 64;

/// Requests that may be outstanding on one communicator: API version 7 and later. A grouped receive
/// is one of them, so that a sender may have [`MAX_REQUESTS`] times as many as a group has buffers.
pub const MAX_REQUESTS: usize = 32;
/// The same in API versions 4 to 6.
pub const MAX_REQUESTS_V4: usize = 8;
/// The same in API versions 2 and 3.
pub const MAX_REQUESTS_V2: usize = 16;

/// Devices that NCCL's per-device arrays hold: physical and virtual ones together must not exceed it.
pub const MAX_NET_DEVICES: usize = 128;

/// Memory type of `regMr`: host memory. Also the bit of `ptrSupport` that offers it.
pub const PTR_HOST: c_int = 1;
/// Memory type of `regMr`: GPU memory. Also the bit of `ptrSupport` that offers it.
pub const PTR_CUDA: c_int = 2;
/// The bit of `ptrSupport` that offers `regMrDmaBuf`.
pub const PTR_DMABUF: c_int = 4;

/// Value that `irecv` may find in `*request`: NCCL does not need to hear of this completion.
pub const OPTIONAL_RECV_COMPLETION: usize = 0x1;

/// The other flag that NCCL knows of (2.28 and later): several requests at once, which a plugin must
/// have offered by `maxMultiRequestSize`.
pub const MULTI_REQUEST: usize = 0x2;

/// Undefined traffic class in a [`CommConfig`](super::CommConfig).
pub const TRAFFIC_CLASS_UNDEFINED: c_int = -1;
/// `NCCL_CONFIG_UNDEF_INT` of `nccl.h`: what a field of `ncclConfig_t` has that was not set. NCCL hands on
/// [`TRAFFIC_CLASS_UNDEFINED`] in its place; programs that drive a plugin themselves may not.
pub const CONFIG_UNDEFINED: c_int = c_int::MIN;
/// Undefined rail or plane of a device.
pub const NET_ID_UNDEFINED: i16 = -1;
/// The bit that marks the plane of a virtual device: the other bits are those of its members' planes
/// (`NCCL_IB_PLANE_VIRT_BIT`).
pub const VIRTUAL_PLANE: i16 = 1 << 14;

/// Devices of one virtual device in API versions 9 to 11.
pub const MAX_DEVICES_PER_NIC_V9: usize = 4;
/// Devices of one virtual device in API version 12.
pub const MAX_DEVICES_PER_NIC_V12: usize = 8;

/// `netDeviceType` of a device that the host drives, the only kind offered here.
pub const NET_DEVICE_HOST: c_int = 0;
/// `netDeviceVersion` that goes with [`NET_DEVICE_HOST`].
pub const NET_DEVICE_INVALID_VERSION: c_int = 0;

/// Bytes that NCCL takes as the largest collective-network operation.
pub const MAX_COLLNET_SIZE: usize = 512 << 20;
/// Bytes above which NCCL refuses `maxP2pBytes`.
pub const MAX_NET_SIZE_BYTES: usize = 1 << 40;

/// Log level: a problem that the user should see.
pub const LOG_WARN: c_int = 2;
/// Log level: information.
pub const LOG_INFO: c_int = 3;
/// Log level: detail for developers.
pub const LOG_TRACE: c_int = 5;

/// Log subsystem: initialisation.
pub const SUBSYS_INIT: c_ulong = 0x1;
/// Log subsystem: networks.
pub const SUBSYS_NET: c_ulong = 0x10;
/// Log subsystem: environment variables.
pub const SUBSYS_ENV: c_ulong = 0x80;
/// Log subsystem: memory registration.
pub const SUBSYS_REG: c_ulong = 0x2000;
/// All log subsystems, which is what warnings are sent to.
pub const SUBSYS_ALL: c_ulong = c_ulong::MAX;

/// `type` of the profiler's callback: an event begins.
pub const PROFILER_START: c_int = 0;
/// `type` of the profiler's callback: an event ends.
pub const PROFILER_STOP: c_int = 1;
/// `pluginId` of the profiler's callback: an InfiniBand network (1 in the high half), and version 1 of
/// [`ProfilerDescriptor`](super::ProfilerDescriptor).
pub const PROFILER_NET_IB_V1: i64 = 1 << 16 | 1;
/// Kind of event in a [`ProfilerDescriptor`](super::ProfilerDescriptor): a work request of a queue pair.
pub const PROFILE_QP: u8 = 1;
