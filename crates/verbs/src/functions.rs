//! The table of libibverbs entry points: the seam between this crate and what implements the
//! verbs.
//!
//! [`Library::load`](crate::Library::load) fills it from the system's libibverbs. A simulator or
//! a test fills it with its own functions and hands it to
//! [`Library::from_functions`](crate::Library::from_functions). A third kind wraps another table,
//! to inject faults or to count calls.

use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use ibverbs_sys::{
    __be16, __be64, _compat_ibv_port_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_device, ibv_device_attr, ibv_ece, ibv_fork_status, ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};

/// Defines the table and how it is filled: a line says whether a function is required, its field,
/// its name, the version of the symbol, and its signature.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        pub struct $table:ident {
            $(
                $(#[$doc:meta])*
                $need:ident $field:ident = $symbol:literal $version:literal
                    ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            $(
                #[doc = concat!("`", $symbol, "`, ", $version, ".")]
                $(#[$doc])*
                pub $field: functions!(
                    type $need unsafe extern "C" fn($($argument: $type),*) $(-> $result)?
                ),
            )*
        }

        impl $table {
            /// Fills the table with what `find` finds by name and version, or says which function
            /// is missing.
            ///
            /// # Safety
            ///
            /// What is found is the function of that name and version of the library that the
            /// table is of, whose types the version fixes.
            pub(crate) unsafe fn fill(
                find: impl Fn(&'static str, &'static str) -> Option<NonNull<c_void>>,
            ) -> Result<Self, (&'static str, &'static str)> {
                Ok(Self {
                    $( $field: functions!(
                        find $need unsafe extern "C" fn($($argument: $type),*) $(-> $result)?,
                        find($symbol, $version)
                    ), )*
                })
            }
        }
    };
    (type required $type:ty) => { $type };
    (type optional $type:ty) => { Option<$type> };
    (find required $type:ty, $find:ident($symbol:literal, $version:literal)) => {
        match $find($symbol, $version) {
            // SAFETY: the caller promises that this is the function of that type.
            Some(address) => unsafe { std::mem::transmute::<NonNull<c_void>, $type>(address) },
            None => return Err(($symbol, $version)),
        }
    };
    (find optional $type:ty, $find:ident($symbol:literal, $version:literal)) => {
        $find($symbol, $version)
            // SAFETY: as above.
            .map(|address| unsafe { std::mem::transmute::<NonNull<c_void>, $type>(address) })
    };
}

functions! {
    /// The functions of libibverbs that this crate calls.
    ///
    /// Every field has the name of its C function without `ibv_`. Fields that are an [`Option`] are
    /// functions that an older libibverbs lacks; a table without them is complete, and each method
    /// of this crate that would use one says what it does instead.
    ///
    /// # What is not in the table
    ///
    /// Posting, polling and requesting notification are not exported functions: they go through
    /// `ibv_context.ops`. The provider of a table hands out contexts whose `ops` has `post_send`,
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
    pub struct Functions {
        /// A null-terminated list of devices. Null.
        required get_device_list = "ibv_get_device_list" "IBVERBS_1.1"
            (number: *mut c_int) -> *mut *mut ibv_device;
        /// Gives back the list and, unless they are open, its devices.
        required free_device_list = "ibv_free_device_list" "IBVERBS_1.1" (list: *mut *mut ibv_device);
        /// The kernel's name of the device.
        required get_device_name = "ibv_get_device_name" "IBVERBS_1.1"
            (device: *mut ibv_device) -> *const c_char;
        /// The node GUID, big-endian, 0 when unknown.
        required get_device_guid = "ibv_get_device_guid" "IBVERBS_1.1"
            (device: *mut ibv_device) -> __be64;
        /// The kernel's index of the device, -1 when unknown.
        optional get_device_index = "ibv_get_device_index" "IBVERBS_1.9"
            (device: *mut ibv_device) -> c_int;
        /// Null.
        required open_device = "ibv_open_device" "IBVERBS_1.1"
            (device: *mut ibv_device) -> *mut ibv_context;
        /// Errno.
        required close_device = "ibv_close_device" "IBVERBS_1.1" (context: *mut ibv_context) -> c_int;
        /// -1; `EAGAIN` when the descriptor is non-blocking and nothing is pending.
        required get_async_event = "ibv_get_async_event" "IBVERBS_1.1"
            (context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// To be called once for each event that was taken.
        required ack_async_event = "ibv_ack_async_event" "IBVERBS_1.1" (event: *mut ibv_async_event);
        /// Errno.
        required query_device = "ibv_query_device" "IBVERBS_1.1"
            (context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int;
        /// Fills only the fields up to `flags` of an `ibv_port_attr`. Errno.
        required query_port = "ibv_query_port" "IBVERBS_1.1"
            (context: *mut ibv_context, port: u8, attributes: *mut _compat_ibv_port_attr) -> c_int;
        /// The effective bandwidth of a port, in units of 100 Mb/s. Errno.
        optional query_port_speed = "ibv_query_port_speed" "IBVERBS_1.16"
            (context: *mut ibv_context, port: u32, speed: *mut u64) -> c_int;
        /// An empty entry is a GID of zeros. -1.
        required query_gid = "ibv_query_gid" "IBVERBS_1.1"
            (context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// One entry with its type and network interface; `flags` is 0. Errno; `ENODATA` for an empty
        /// entry.
        optional query_gid_ex = "_ibv_query_gid_ex" "IBVERBS_1.11"
            (context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32,
            entry_size: usize) -> c_int;
        /// The non-empty entries of all ports of the device; `flags` is 0. Their number, or a negated
        /// errno.
        optional query_gid_table = "_ibv_query_gid_table" "IBVERBS_1.11"
            (context: *mut ibv_context, entries: *mut ibv_gid_entry, capacity: usize, flags: u32,
            entry_size: usize) -> isize;
        /// The P_Key is big-endian. -1.
        required query_pkey = "ibv_query_pkey" "IBVERBS_1.1"
            (context: *mut ibv_context, port: u8, index: c_int, pkey: *mut __be16) -> c_int;
        /// The P_Key is big-endian. -1.
        optional get_pkey_index = "ibv_get_pkey_index" "IBVERBS_1.5"
            (context: *mut ibv_context, port: u8, pkey: __be16) -> c_int;
        /// Null.
        required alloc_pd = "ibv_alloc_pd" "IBVERBS_1.1" (context: *mut ibv_context) -> *mut ibv_pd;
        /// Errno.
        required dealloc_pd = "ibv_dealloc_pd" "IBVERBS_1.1" (pd: *mut ibv_pd) -> c_int;
        /// Not to be given optional access flags. Null.
        required reg_mr = "ibv_reg_mr" "IBVERBS_1.1"
            (pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Drops the optional access flags that the kernel does not support. Null.
        optional reg_mr_iova2 = "ibv_reg_mr_iova2" "IBVERBS_1.8"
            (pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut
            ibv_mr;
        /// Null.
        optional reg_dmabuf_mr = "ibv_reg_dmabuf_mr" "IBVERBS_1.12"
            (pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut
            ibv_mr;
        /// Errno.
        required dereg_mr = "ibv_dereg_mr" "IBVERBS_1.1" (mr: *mut ibv_mr) -> c_int;
        /// Null.
        required create_comp_channel = "ibv_create_comp_channel" "IBVERBS_1.0"
            (context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Errno; `EBUSY` while completion queues use it.
        required destroy_comp_channel = "ibv_destroy_comp_channel" "IBVERBS_1.0"
            (channel: *mut ibv_comp_channel) -> c_int;
        /// -1; `EAGAIN` as for `get_async_event`.
        required get_cq_event = "ibv_get_cq_event" "IBVERBS_1.1"
            (channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) ->
            c_int;
        /// One acknowledgement for each event that was taken.
        required ack_cq_events = "ibv_ack_cq_events" "IBVERBS_1.1" (cq: *mut ibv_cq, number: c_uint);
        /// Null.
        required create_cq = "ibv_create_cq" "IBVERBS_1.1"
            (context: *mut ibv_context, depth: c_int, cq_context: *mut c_void, channel: *mut
            ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
        /// Waits until all its events are acknowledged. Errno.
        required destroy_cq = "ibv_destroy_cq" "IBVERBS_1.1" (cq: *mut ibv_cq) -> c_int;
        /// Writes what was granted into the argument. Null.
        required create_qp = "ibv_create_qp" "IBVERBS_1.1"
            (pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// `mask` says which attributes count. Errno.
        required modify_qp = "ibv_modify_qp" "IBVERBS_1.1"
            (qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int;
        /// Errno.
        required query_qp = "ibv_query_qp" "IBVERBS_1.1"
            (qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int, init_attributes: *mut
            ibv_qp_init_attr) -> c_int;
        /// Waits until all its events are acknowledged. Errno.
        required destroy_qp = "ibv_destroy_qp" "IBVERBS_1.1" (qp: *mut ibv_qp) -> c_int;
        /// Errno; `EOPNOTSUPP` when the driver has no ECE.
        optional query_ece = "ibv_query_ece" "IBVERBS_1.10"
            (qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// Writes what was accepted into the argument. Errno.
        optional set_ece = "ibv_set_ece" "IBVERBS_1.10" (qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// Errno; `EINVAL` when memory was registered before.
        required fork_init = "ibv_fork_init" "IBVERBS_1.1" () -> c_int;
        optional is_fork_initialized = "ibv_is_fork_initialized" "IBVERBS_1.13" () -> ibv_fork_status;
    }
}

/// The files that may be the library of the provider mlx5.
pub(crate) const MLX5_FILES: [&str; 2] = ["libmlx5.so", "libmlx5.so.1"];

functions! {
    /// The functions of libmlx5 that this crate calls. A library lacks either all of them or none: see
    /// [`Library::with_mlx5`](crate::Library::with_mlx5).
    pub struct Mlx5Functions {
        /// Whether the device is one of this provider's.
        required is_supported = "mlx5dv_is_supported" "MLX5_1.8" (device: *mut ibv_device) -> bool;
        /// The directory of the device's Data Direct function, below `/sys`, null-terminated. Errno;
        /// `ENODEV` when it has none.
        required get_data_direct_sysfs_path = "mlx5dv_get_data_direct_sysfs_path" "MLX5_1.25"
            (context: *mut ibv_context, buffer: *mut c_char, length: usize) -> c_int;
        /// As `ibv_reg_dmabuf_mr`, with flags of the provider. Null.
        required reg_dmabuf_mr = "mlx5dv_reg_dmabuf_mr" "MLX5_1.25"
            (pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int,
             mlx5_access: c_int) -> *mut ibv_mr;
    }
}
