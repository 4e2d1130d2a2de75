//! [`Limits`]: how much of everything a device has.

/// The limits of a device, as ibv_query_device(3) reports them, and its inline limit, which that
/// verb does not report.
///
/// The defaults are those of a mid-range adapter. A test of a limit sets a small one:
///
/// ```
/// use ibnet_simverbs::Limits;
///
/// let limits = Limits { max_qp: 2, max_cqe: 16, ..Limits::default() };
/// assert_eq!(limits.max_mr, Limits::default().max_mr);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs of the device.
    pub max_qp: u32,
    /// Work requests that one queue of a queue pair holds.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of one work request.
    pub max_sge: u32,
    /// Completion queues of the device.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Memory regions of the device.
    pub max_mr: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Protection domains of the device.
    pub max_pd: u32,
    /// RDMA reads that a queue pair serves at once (`max_dest_rd_atomic` may not exceed it).
    pub max_qp_rd_atom: u32,
    /// RDMA reads that a queue pair has under way at once (`max_rd_atomic` may not exceed it).
    pub max_qp_init_rd_atom: u32,
    /// Bytes that can be posted inline. Creating a queue pair with more fails with `EINVAL`.
    pub max_inline: u32,
    /// Completion vectors of an open device.
    pub completion_vectors: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_qp: 16_384,
            max_qp_wr: 16_384,
            max_sge: 16,
            max_cq: 16_384,
            max_cqe: 1 << 20,
            max_mr: 1 << 20,
            max_mr_size: 1 << 46,
            max_pd: 1 << 16,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            max_inline: 256,
            completion_vectors: 4,
        }
    }
}
