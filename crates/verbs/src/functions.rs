//! The table of libibverbs entry points: the seam between this crate and whoever implements the
//! verbs.
//!
//! [`Library::load`](crate::Library::load) fills it from the system's libibverbs. A simulator or
//! a test fills it with its own functions and hands it to
//! [`Library::from_functions`](crate::Library::from_functions). A third kind wraps another table,
//! to inject faults or to count calls.

use std::os::raw::{c_char, c_int, c_uint, c_void};

use ibverbs_sys::{
    __be16, __be64, _compat_ibv_port_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_device, ibv_device_attr, ibv_ece, ibv_fork_status, ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};

/// The functions of libibverbs that this crate calls.
///
/// Every field has the name of its C function without `ibv_`. Fields that are an [`Option`] are
/// functions that an older libibverbs lacks; a table without them is complete, and each method
/// of this crate that would use one says what it does instead.
///
/// # What is not in the table
///
/// Posting, polling and requesting notification are not exported functions: they go through
/// `ibv_context.ops`. Whoever provides a table hands out contexts whose `ops` has `post_send`,
/// `post_recv`, `poll_cq` and `req_notify_cq`. Querying a port goes through the extended
/// `query_port` of [`layout::VerbsContext`](crate::layout::VerbsContext) when the context says
/// that it is extended (`abi_compat` all ones) and through [`query_port`](Self::query_port) else.
///
/// Objects are those of the C headers, and these of their fields are looked at: `ibdev_path` of a
/// device; `async_fd`, `ops` and `abi_compat` of a context; `lkey` and `rkey` of a memory region;
/// `fd` of a completion channel; `cqe` of a completion queue; `qp_num` of a queue pair. Both
/// descriptors are set to non-blocking, and `get_async_event` and `get_cq_event` must then
/// answer `EAGAIN` when nothing is pending.
///
/// # Error styles
///
/// "Null" means: a null pointer with `errno` set. "Errno" means: 0, or an errno as the return
/// value. "-1" means: 0 or more, or -1 with `errno` set.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// `ibv_get_device_list`, IBVERBS_1.1: a null-terminated list of devices. Null.
    pub get_device_list: unsafe extern "C" fn(number: *mut c_int) -> *mut *mut ibv_device,
    /// `ibv_free_device_list`, IBVERBS_1.1: gives back the list and, unless they are open, its
    /// devices.
    pub free_device_list: unsafe extern "C" fn(list: *mut *mut ibv_device),
    /// `ibv_get_device_name`, IBVERBS_1.1: the kernel's name of the device.
    pub get_device_name: unsafe extern "C" fn(device: *mut ibv_device) -> *const c_char,
    /// `ibv_get_device_guid`, IBVERBS_1.1: the node GUID, big-endian, 0 when unknown.
    pub get_device_guid: unsafe extern "C" fn(device: *mut ibv_device) -> __be64,
    /// `ibv_get_device_index`, IBVERBS_1.9: the kernel's index of the device, -1 when unknown.
    pub get_device_index: Option<unsafe extern "C" fn(device: *mut ibv_device) -> c_int>,

    /// `ibv_open_device`, IBVERBS_1.1. Null.
    pub open_device: unsafe extern "C" fn(device: *mut ibv_device) -> *mut ibv_context,
    /// `ibv_close_device`, IBVERBS_1.1. Errno.
    pub close_device: unsafe extern "C" fn(context: *mut ibv_context) -> c_int,
    /// `ibv_get_async_event`, IBVERBS_1.1. -1; `EAGAIN` when the descriptor is non-blocking and
    /// nothing is pending.
    pub get_async_event:
        unsafe extern "C" fn(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int,
    /// `ibv_ack_async_event`, IBVERBS_1.1: to be called once for each event that was taken.
    pub ack_async_event: unsafe extern "C" fn(event: *mut ibv_async_event),

    /// `ibv_query_device`, IBVERBS_1.1. Errno.
    pub query_device:
        unsafe extern "C" fn(context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int,
    /// `ibv_query_port`, IBVERBS_1.1: fills only the fields up to `flags` of an
    /// `ibv_port_attr`. Errno.
    pub query_port: unsafe extern "C" fn(
        context: *mut ibv_context,
        port: u8,
        attributes: *mut _compat_ibv_port_attr,
    ) -> c_int,
    /// `ibv_query_port_speed`, IBVERBS_1.16: the effective bandwidth of a port, in units of
    /// 100 Mb/s. Errno.
    pub query_port_speed: Option<
        unsafe extern "C" fn(context: *mut ibv_context, port: u32, speed: *mut u64) -> c_int,
    >,
    /// `ibv_query_gid`, IBVERBS_1.1: an empty entry is a GID of zeros. -1.
    pub query_gid: unsafe extern "C" fn(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int,
    /// `_ibv_query_gid_ex`, IBVERBS_1.11: one entry with its type and network interface;
    /// `flags` is 0. Errno; `ENODATA` for an empty entry.
    pub query_gid_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port: u32,
            index: u32,
            entry: *mut ibv_gid_entry,
            flags: u32,
            entry_size: usize,
        ) -> c_int,
    >,
    /// `_ibv_query_gid_table`, IBVERBS_1.11: the non-empty entries of all ports of the device;
    /// `flags` is 0. Their number, or a negated errno.
    pub query_gid_table: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            entries: *mut ibv_gid_entry,
            capacity: usize,
            flags: u32,
            entry_size: usize,
        ) -> isize,
    >,
    /// `ibv_query_pkey`, IBVERBS_1.1: the P_Key is big-endian. -1.
    pub query_pkey: unsafe extern "C" fn(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        pkey: *mut __be16,
    ) -> c_int,
    /// `ibv_get_pkey_index`, IBVERBS_1.5: the P_Key is big-endian. -1.
    pub get_pkey_index:
        Option<unsafe extern "C" fn(context: *mut ibv_context, port: u8, pkey: __be16) -> c_int>,

    /// `ibv_alloc_pd`, IBVERBS_1.1. Null.
    pub alloc_pd: unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_pd,
    /// `ibv_dealloc_pd`, IBVERBS_1.1. Errno.
    pub dealloc_pd: unsafe extern "C" fn(pd: *mut ibv_pd) -> c_int,
    /// `ibv_reg_mr`, IBVERBS_1.1: not to be given optional access flags. Null.
    pub reg_mr: unsafe extern "C" fn(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr,
    /// `ibv_reg_mr_iova2`, IBVERBS_1.8: drops the optional access flags that the kernel does not
    /// support. Null.
    pub reg_mr_iova2: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            address: *mut c_void,
            length: usize,
            iova: u64,
            access: c_uint,
        ) -> *mut ibv_mr,
    >,
    /// `ibv_reg_dmabuf_mr`, IBVERBS_1.12. Null.
    pub reg_dmabuf_mr: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            offset: u64,
            length: usize,
            iova: u64,
            fd: c_int,
            access: c_int,
        ) -> *mut ibv_mr,
    >,
    /// `ibv_dereg_mr`, IBVERBS_1.1. Errno.
    pub dereg_mr: unsafe extern "C" fn(mr: *mut ibv_mr) -> c_int,

    /// `ibv_create_comp_channel`, IBVERBS_1.0. Null.
    pub create_comp_channel:
        unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_comp_channel,
    /// `ibv_destroy_comp_channel`, IBVERBS_1.0. Errno; `EBUSY` while completion queues use it.
    pub destroy_comp_channel: unsafe extern "C" fn(channel: *mut ibv_comp_channel) -> c_int,
    /// `ibv_get_cq_event`, IBVERBS_1.1. -1; `EAGAIN` as for `get_async_event`.
    pub get_cq_event: unsafe extern "C" fn(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int,
    /// `ibv_ack_cq_events`, IBVERBS_1.1: one acknowledgement for each event that was taken.
    pub ack_cq_events: unsafe extern "C" fn(cq: *mut ibv_cq, number: c_uint),
    /// `ibv_create_cq`, IBVERBS_1.1. Null.
    pub create_cq: unsafe extern "C" fn(
        context: *mut ibv_context,
        depth: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq,
    /// `ibv_destroy_cq`, IBVERBS_1.1: waits until all its events are acknowledged. Errno.
    pub destroy_cq: unsafe extern "C" fn(cq: *mut ibv_cq) -> c_int,

    /// `ibv_create_qp`, IBVERBS_1.1: writes what was granted into the argument. Null.
    pub create_qp:
        unsafe extern "C" fn(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp,
    /// `ibv_modify_qp`, IBVERBS_1.1: `mask` says which attributes count. Errno.
    pub modify_qp:
        unsafe extern "C" fn(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int,
    /// `ibv_query_qp`, IBVERBS_1.1. Errno.
    pub query_qp: unsafe extern "C" fn(
        qp: *mut ibv_qp,
        attributes: *mut ibv_qp_attr,
        mask: c_int,
        init_attributes: *mut ibv_qp_init_attr,
    ) -> c_int,
    /// `ibv_destroy_qp`, IBVERBS_1.1: waits until all its events are acknowledged. Errno.
    pub destroy_qp: unsafe extern "C" fn(qp: *mut ibv_qp) -> c_int,
    /// `ibv_query_ece`, IBVERBS_1.10. Errno; `EOPNOTSUPP` when the driver has no ECE.
    pub query_ece: Option<unsafe extern "C" fn(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int>,
    /// `ibv_set_ece`, IBVERBS_1.10: writes what was accepted into the argument. Errno.
    pub set_ece: Option<unsafe extern "C" fn(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int>,

    /// `ibv_fork_init`, IBVERBS_1.1. Errno; `EINVAL` when memory was registered before.
    pub fork_init: unsafe extern "C" fn() -> c_int,
    /// `ibv_is_fork_initialized`, IBVERBS_1.13.
    pub is_fork_initialized: Option<unsafe extern "C" fn() -> ibv_fork_status>,
}

/// The files that may be the library of the provider mlx5.
pub(crate) const MLX5_FILES: [&str; 2] = ["libmlx5.so", "libmlx5.so.1"];

/// The functions of libmlx5 that this crate calls. A library lacks either all of them or none: see
/// [`Library::with_mlx5`](crate::Library::with_mlx5).
#[derive(Clone, Copy, Debug)]
pub struct Mlx5Functions {
    /// `mlx5dv_is_supported`, MLX5_1.8: whether the device is one of this provider's.
    pub is_supported: unsafe extern "C" fn(device: *mut ibv_device) -> bool,
    /// `mlx5dv_get_data_direct_sysfs_path`, MLX5_1.25: the directory of the device's Data Direct
    /// function, below `/sys`, null-terminated. Errno; `ENODEV` when it has none.
    pub get_data_direct_sysfs_path: unsafe extern "C" fn(
        context: *mut ibv_context,
        buffer: *mut c_char,
        length: usize,
    ) -> c_int,
    /// `mlx5dv_reg_dmabuf_mr`, MLX5_1.25: as `ibv_reg_dmabuf_mr`, with flags of the provider.
    /// Null.
    pub reg_dmabuf_mr: unsafe extern "C" fn(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
        mlx5_access: c_int,
    ) -> *mut ibv_mr,
}
