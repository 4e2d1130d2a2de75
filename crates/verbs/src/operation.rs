//! [`Operation`]: what was being done when a verb failed.

use std::fmt;

use crate::access::Access;
use crate::qp_state::QueuePairState;

/// What was being done, with what names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Operation {
    /// `ibv_get_device_list`.
    ListDevices,
    /// `ibv_fork_init`.
    InitFork,
    /// `ibv_open_device`.
    OpenDevice,
    /// `ibv_query_device`.
    QueryDevice,
    /// `ibv_query_port`.
    QueryPort { port: u8 },
    /// `ibv_query_port_speed`.
    QueryPortSpeed { port: u8 },
    /// `ibv_query_pkey`, by index.
    QueryPkey { port: u8, index: u16 },
    /// `ibv_get_pkey_index`, by P_Key in host byte order.
    FindPkey { port: u8, pkey: u16 },
    /// `ibv_query_gid`, by index.
    QueryGid { port: u8, index: u32 },
    /// `mlx5dv_get_data_direct_sysfs_path`.
    QueryDataDirect,
    /// `ibv_get_async_event`.
    NextEvent,
    /// `ibv_alloc_pd`.
    AllocatePd,
    /// `ibv_reg_mr` or `ibv_reg_mr_iova2`: from where, how many bytes, and for what.
    Register {
        address: u64,
        length: usize,
        access: Access,
    },
    /// `ibv_reg_dmabuf_mr` or `mlx5dv_reg_dmabuf_mr`: from where in which DMA-BUF, how many bytes, as
    /// which address, and for what.
    RegisterDmabuf {
        fd: i32,
        offset: u64,
        length: usize,
        iova: u64,
        access: Access,
    },
    /// `ibv_dereg_mr`. The region is leaked.
    Deregister { address: u64, length: usize },
    /// `ibv_create_comp_channel`.
    CreateChannel,
    /// `ibv_get_cq_event`, or waiting for one.
    NextCompletionEvent,
    /// `ibv_create_cq`, with so many entries.
    CreateCq { depth: u32 },
    /// `ibv_poll_cq`.
    PollCq,
    /// `ibv_req_notify_cq`.
    RequestNotification,
    /// `ibv_create_qp`, with the options in words.
    CreateQp { options: String },
    /// `ibv_modify_qp`: to which state, with the attributes in words.
    ModifyQp {
        qp: u32,
        to: QueuePairState,
        attributes: String,
    },
    /// `ibv_query_qp`.
    QueryQp { qp: u32 },
    /// `ibv_query_ece`.
    QueryEce { qp: u32 },
    /// `ibv_set_ece`.
    SetEce { qp: u32 },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListDevices => f.write_str("listing the RDMA devices"),
            Self::InitFork => f.write_str("making registered memory survive fork"),
            Self::OpenDevice => f.write_str("opening the device"),
            Self::QueryDevice => f.write_str("querying the device"),
            Self::QueryPort { port } => write!(f, "querying port {port}"),
            Self::QueryPortSpeed { port } => write!(f, "querying the speed of port {port}"),
            Self::QueryPkey { port, index } => write!(f, "reading P_Key {index} of port {port}"),
            Self::FindPkey { port, pkey } => {
                write!(f, "finding P_Key {pkey:#06x} in the table of port {port}")
            }
            Self::QueryGid { port, index } => write!(f, "reading GID {index} of port {port}"),
            Self::QueryDataDirect => f.write_str("asking for its Data Direct function"),
            Self::NextEvent => f.write_str("reading an asynchronous event"),
            Self::AllocatePd => f.write_str("allocating a protection domain"),
            Self::Register {
                address,
                length,
                access,
            } => write!(
                f,
                "registering {length} bytes at {address:#x} with {access}"
            ),
            Self::RegisterDmabuf {
                fd,
                offset,
                length,
                iova,
                access,
            } => write!(
                f,
                "registering {length} bytes at offset {offset:#x} of a DMA-BUF (fd {fd}) as \
                 {iova:#x} with {access}"
            ),
            Self::Deregister { address, length } => {
                write!(f, "deregistering {length} bytes at {address:#x}")
            }
            Self::CreateChannel => f.write_str("creating a completion channel"),
            Self::NextCompletionEvent => f.write_str("reading a completion event"),
            Self::CreateCq { depth } => {
                write!(f, "creating a completion queue of {depth} entries")
            }
            Self::PollCq => f.write_str("polling a completion queue"),
            Self::RequestNotification => {
                f.write_str("requesting notification of a completion queue")
            }
            Self::CreateQp { options } => write!(f, "creating a queue pair with {options}"),
            Self::ModifyQp { qp, to, attributes } => {
                write!(f, "moving queue pair {qp:#x} to {to}")?;
                match attributes.as_str() {
                    "" => Ok(()),
                    attributes => write!(f, " ({attributes})"),
                }
            }
            Self::QueryQp { qp } => write!(f, "querying queue pair {qp:#x}"),
            Self::QueryEce { qp } => write!(f, "querying the ECE options of queue pair {qp:#x}"),
            Self::SetEce { qp } => write!(f, "setting the ECE options of queue pair {qp:#x}"),
        }
    }
}
