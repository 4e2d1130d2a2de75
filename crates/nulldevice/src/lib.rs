//! An RDMA device that costs almost nothing, behind the names of libibverbs.
//!
//! What a transport over verbs costs the processor is hard to see on a real device, whose driver,
//! bus and wire take most of the time. The devices here do all their work inside `ibv_post_send`, in
//! the calling thread: the bytes are copied and the completions written before the call returns. What
//! is left to be measured is the transport. Both ends of a connection are in the same process.
//!
//! It is enough of a device for NCCL's transport and for `ibnet`: reliable connections, RDMA writes
//! with and without immediate value, RDMA reads, inline data, chains of requests, completion queues
//! shared by queue pairs, flushing. A write with immediate for which no receive is posted waits for
//! one, as on a device that retries without end. Unlike a real device it has no SEND, no atomics, no
//! completion channels, no events that ever happen, no limits worth mentioning; and keys are checked
//! in debug builds only. `simverbs` is the device for tests: this one is for measuring.
//!
//! # Threads
//!
//! Posting and polling take no lock, so one thread of the process does all of it; another one that
//! tries ends the process with a message. Everything else may be called from any thread.
//!
//! # Making the shared library
//!
//! The crate is a static library. Programs that look for libibverbs find the null device if this is
//! the first `libibverbs.so.1` (and `libibverbs.so`) on their library path:
//!
//! ```text
//! cc -shared -o libibverbs.so.1 -Wl,-soname,libibverbs.so.1 \
//!    -Wl,--version-script=libibverbs.map -Wl,--whole-archive libibnet_nulldevice.a \
//!    -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lm
//! ```
//!
//! `NULLDEVICE_COUNT` says how many devices there are (1 to 8; 2 if it is unset): `null0`, `null1`,
//! and so on, all on one InfiniBand subnet. A Rust program can have the same functions as a table:
//! [`functions`].
//!
//! # Safety
//!
//! All C functions here follow pointers that the caller gives. As for libibverbs, the caller
//! guarantees that a handle came from the function that makes such handles and that its object was
//! not destroyed, and that pointers to arguments and results are valid. This is what "the caller's
//! handle" and "the caller's argument" mean in the comments.

mod completion;
mod context;
mod device;
mod fabric;
mod memory;
mod owner;
mod post;
mod query;
mod queue_pair;
mod ring;
mod unsupported;

use ibnet_verbs::Functions;

/// The devices as a table, for [`ibnet_verbs::Library::from_functions`].
#[must_use]
pub fn functions() -> Functions {
    Functions {
        get_device_list: device::ibv_get_device_list,
        free_device_list: device::ibv_free_device_list,
        get_device_name: device::ibv_get_device_name,
        get_device_guid: device::ibv_get_device_guid,
        get_device_index: None,
        open_device: context::ibv_open_device,
        close_device: context::ibv_close_device,
        get_async_event: context::ibv_get_async_event,
        ack_async_event: context::ibv_ack_async_event,
        query_device: query::ibv_query_device,
        query_port: query::ibv_query_port,
        query_port_speed: None,
        query_gid: query::ibv_query_gid,
        query_gid_ex: Some(query::_ibv_query_gid_ex),
        query_gid_table: Some(query::_ibv_query_gid_table),
        query_pkey: query::ibv_query_pkey,
        get_pkey_index: None,
        alloc_pd: memory::ibv_alloc_pd,
        dealloc_pd: memory::ibv_dealloc_pd,
        reg_mr: memory::ibv_reg_mr,
        reg_mr_iova2: Some(memory::ibv_reg_mr_iova2),
        reg_dmabuf_mr: None,
        dereg_mr: memory::ibv_dereg_mr,
        create_comp_channel: unsupported::ibv_create_comp_channel,
        destroy_comp_channel: unsupported::ibv_destroy_comp_channel,
        get_cq_event: unsupported::ibv_get_cq_event,
        ack_cq_events: unsupported::ibv_ack_cq_events,
        create_cq: completion::ibv_create_cq,
        destroy_cq: completion::ibv_destroy_cq,
        create_qp: queue_pair::ibv_create_qp,
        modify_qp: queue_pair::ibv_modify_qp,
        query_qp: queue_pair::ibv_query_qp,
        destroy_qp: queue_pair::ibv_destroy_qp,
        query_ece: None,
        set_ece: None,
        fork_init: unsupported::ibv_fork_init,
        is_fork_initialized: None,
    }
}

/// A C structure in which nothing is set.
///
/// # Safety
///
/// All zeros must be a value of the type, as they are for every structure of libibverbs: integers,
/// pointers, optional functions, and arrays and structures of those.
unsafe fn zeroed<T>() -> T {
    // SAFETY: promised by the caller.
    unsafe { std::mem::MaybeUninit::zeroed().assume_init() }
}

/// Sets `errno`, for functions that report through it.
fn set_errno(errno: i32) {
    // SAFETY: the pointer is to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}
