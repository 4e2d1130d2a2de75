//! [`QueuePairView`] and [`RegionView`]: what the code under test has set on a device.
//!
//! A program may ask for one thing and pass another to the driver, and everything still works on a
//! simulated network. These tell a test what arrived.

use ibnet_verbs::{Access, QueuePairAttributes};

use crate::engine::State;
use crate::engine::slab::DeviceId;

/// A queue pair as its device has it. Made by [`Hca::queue_pairs`](crate::Hca::queue_pairs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairView {
    /// Its number.
    pub number: u32,
    /// What `ibv_query_qp` tells, asked of the device rather than of the program: the address with its
    /// service level and, if there is one, its global route with the traffic class; the path MTU, the
    /// time-out, the retries, the P_Key's index and what the peer may do.
    pub attributes: QueuePairAttributes,
}

/// Registered memory as its device has it. Made by [`Hca::regions`](crate::Hca::regions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// The first address by which work requests name it.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// What is allowed, without the optional flags that the kernel has dropped.
    pub access: Access,
    /// The local key.
    pub lkey: u32,
    /// The remote key.
    pub rkey: u32,
    /// How it was registered.
    pub kind: RegionKind,
}

/// How memory was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// As memory of the process: `ibv_reg_mr`, `ibv_reg_mr_iova2`.
    Process,
    /// As a DMA-BUF: `ibv_reg_dmabuf_mr`.
    DmaBuf,
    /// As a DMA-BUF for mlx5's Data Direct: `mlx5dv_reg_dmabuf_mr` with
    /// `MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT`.
    DataDirect,
}

/// The queue pairs of a device that live, by number: so in the order in which they were made.
pub(crate) fn queue_pairs(state: &State, device: DeviceId) -> Vec<QueuePairView> {
    let own = state.qps.iter().filter(|(_, qp)| qp.device == device);
    let mut views: Vec<_> = own
        .map(|(id, qp)| QueuePairView {
            number: qp.number,
            attributes: QueuePairAttributes::from(&state.describe_qp(id).0),
        })
        .collect();
    views.sort_unstable_by_key(|view| view.number);
    views
}
