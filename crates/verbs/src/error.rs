//! [`Error`]: what went wrong, on which device, and what usually causes it.

use std::io;

use crate::access::Access;
use crate::hint;
use crate::qp_state::Transition;

/// A verb that failed. Each variant is one operation.
///
/// The text says what was being done, on what, what the system answered, and what usually
/// causes that answer. [`errno`](Self::errno) gives the bare number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `ibv_alloc_pd` failed.
    #[error(
        "{device}: allocating a protection domain failed: {source}{}",
        hint::create(source, "max_pd")
    )]
    AllocatePd {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_create_comp_channel` failed.
    #[error(
        "{device}: creating a completion channel failed: {source}{}",
        hint::descriptors(source)
    )]
    CreateChannel {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_create_cq` failed.
    #[error(
        "{device}: creating a completion queue of {depth} entries failed: {source}{}",
        hint::create(source, "max_cq and max_cqe")
    )]
    CreateCq {
        /// The device.
        device: String,
        /// How many entries were asked for.
        depth: u32,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_create_qp` failed.
    #[error(
        "{device}: creating a queue pair with {request} failed: {source}{}",
        hint::create(source, "max_qp, max_qp_wr and max_sge, and its inline size")
    )]
    CreateQp {
        /// The device.
        device: String,
        /// What was asked for.
        request: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `mlx5dv_get_data_direct_sysfs_path` failed.
    #[error("{device}: asking for its Data Direct function failed: {source}")]
    DataDirect {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_dereg_mr` failed. The region is leaked.
    #[error(
        "{device}: deregistering {length} bytes at {address:#x} failed: {source}{}",
        hint::destroy(source)
    )]
    Deregister {
        /// The device.
        device: String,
        /// Where the region starts.
        address: u64,
        /// How long it is, in bytes.
        length: usize,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_get_pkey_index` found no such P_Key, or the table cannot be read.
    #[error("{device} port {port}: P_Key {pkey:#06x} was not found in the port's table: {source}")]
    FindPkey {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
        /// The P_Key that was looked for, in host byte order.
        pkey: u16,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_fork_init` failed.
    #[error(
        "making registered memory survive fork failed: {source}{}",
        hint::fork(source)
    )]
    InitFork {
        /// What the system answered.
        source: io::Error,
    },

    /// An argument that no device could accept. No verb was called.
    #[error("{device}: {operation}: {problem}")]
    InvalidArgument {
        /// The device.
        device: String,
        /// What was being done.
        operation: &'static str,
        /// What is wrong with which argument.
        problem: String,
    },

    /// `ibv_get_device_list` failed.
    #[error(
        "listing the RDMA devices failed: {source}{}",
        hint::list_devices(source)
    )]
    ListDevices {
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_modify_qp` failed.
    #[error(
        "{device}: moving queue pair {qp:#x} to {transition} failed: {source}{}",
        hint::modify(transition, source)
    )]
    ModifyQp {
        /// The device.
        device: String,
        /// The number of the queue pair.
        qp: u32,
        /// Where it was to go, with the attributes that matter.
        transition: Transition,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_get_async_event` failed.
    #[error(
        "{device}: reading an asynchronous event failed: {source}{}",
        hint::device_gone(source)
    )]
    NextEvent {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_get_cq_event` failed.
    #[error(
        "{device}: reading a completion event failed: {source}{}",
        hint::device_gone(source)
    )]
    NextCompletionEvent {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_open_device` failed.
    #[error("opening {device} failed: {source}{}", hint::open(source))]
    OpenDevice {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_poll_cq` failed.
    #[error(
        "{device}: polling a completion queue failed: {source}{}",
        hint::device_gone(source)
    )]
    PollCq {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_device` failed.
    #[error(
        "{device}: querying the device failed: {source}{}",
        hint::device_gone(source)
    )]
    QueryDevice {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_ece` failed.
    #[error("{device}: querying the ECE options of queue pair {qp:#x} failed: {source}")]
    QueryEce {
        /// The device.
        device: String,
        /// The number of the queue pair.
        qp: u32,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_gid` failed.
    #[error(
        "{device} port {port}: reading GID {index} failed: {source}{}",
        hint::index(source)
    )]
    QueryGid {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
        /// The index in the port's GID table.
        index: u32,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_pkey` failed.
    #[error(
        "{device} port {port}: reading P_Key {index} failed: {source}{}",
        hint::index(source)
    )]
    QueryPkey {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
        /// The index in the port's P_Key table.
        index: u16,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_port` failed.
    #[error(
        "{device}: querying port {port} failed: {source}{}",
        hint::port(source)
    )]
    QueryPort {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_port_speed` failed.
    #[error(
        "{device}: querying the speed of port {port} failed: {source}{}",
        hint::port(source)
    )]
    QueryPortSpeed {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_query_qp` failed.
    #[error(
        "{device}: querying queue pair {qp:#x} failed: {source}{}",
        hint::device_gone(source)
    )]
    QueryQp {
        /// The device.
        device: String,
        /// The number of the queue pair.
        qp: u32,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_reg_mr` or `ibv_reg_mr_iova2` failed.
    #[error(
        "{device}: registering {length} bytes at {address:#x} with {access} failed: {source}{}",
        hint::register(source)
    )]
    Register {
        /// The device.
        device: String,
        /// Where the memory starts.
        address: u64,
        /// How long it is, in bytes.
        length: usize,
        /// What the device was to be allowed.
        access: Access,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_reg_dmabuf_mr` failed.
    #[error(
        "{device}: registering {length} bytes at offset {offset:#x} of a DMA-BUF (fd {fd}) as \
         {iova:#x} with {access} failed: {source}{}",
        hint::register_dmabuf(source)
    )]
    RegisterDmabuf {
        /// The device.
        device: String,
        /// The descriptor of the DMA-BUF.
        fd: i32,
        /// Where in the DMA-BUF the region starts, in bytes.
        offset: u64,
        /// How long the region is, in bytes.
        length: usize,
        /// The address by which the region is to be known to the device and to peers.
        iova: u64,
        /// What the device was to be allowed.
        access: Access,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_req_notify_cq` failed.
    #[error(
        "{device}: requesting notification of a completion queue failed: {source}{}",
        hint::device_gone(source)
    )]
    RequestNotification {
        /// The device.
        device: String,
        /// What the system answered.
        source: io::Error,
    },

    /// `ibv_set_ece` failed.
    #[error("{device}: setting the ECE options of queue pair {qp:#x} failed: {source}")]
    SetEce {
        /// The device.
        device: String,
        /// The number of the queue pair.
        qp: u32,
        /// What the system answered.
        source: io::Error,
    },

    /// The library or the driver has no such function.
    #[error("{device}: {operation} needs {missing}, which this libibverbs or driver lacks")]
    Unsupported {
        /// The device.
        device: String,
        /// What was being done.
        operation: &'static str,
        /// The function that is missing.
        missing: &'static str,
    },
}

impl Error {
    /// The errno that the system answered with, if it gave one.
    ///
    /// [`Error::Unsupported`] counts as `EOPNOTSUPP` and [`Error::InvalidArgument`] as `EINVAL`,
    /// which is what the verb would have answered.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Unsupported { .. } => Some(libc::EOPNOTSUPP),
            Self::InvalidArgument { .. } => Some(libc::EINVAL),
            other => std::error::Error::source(other)?
                .downcast_ref::<io::Error>()?
                .raw_os_error(),
        }
    }

    /// Whether the operation is not there at all, rather than failed this time.
    pub fn is_unsupported(&self) -> bool {
        self.errno().is_some_and(is_unsupported)
    }
}

/// The errnos by which libibverbs, the kernel and drivers say that they lack a function.
pub(crate) fn is_unsupported(errno: i32) -> bool {
    matches!(
        errno,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT
    )
}
