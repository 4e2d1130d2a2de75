//! [`Access`]: what a device may do with memory, or a peer through a queue pair.

use std::fmt;

use ibverbs_sys::ibv_access_flags;

bitflags::bitflags! {
    /// What the device may do with a memory region, or peers through a queue pair
    /// (`enum ibv_access_flags`, ibv_reg_mr(3)).
    ///
    /// Reading by the local device is always allowed. Bits that this crate does not know are
    /// kept and passed on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The local device may write: needed for every receive and read buffer.
        const LOCAL_WRITE = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        /// Peers may write. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        /// Peers may read.
        const REMOTE_READ = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        /// Peers may use atomic operations. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound.
        const MW_BIND = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        /// Writes to the memory may become visible in another order than they were made.
        /// Faster on some machines. Optional: dropped where it is not supported.
        const RELAXED_ORDERING = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;

        const _ = !0;
    }
}

impl Access {
    /// The bits that kernels without support for them ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    pub const OPTIONAL: Self = Self::from_bits_retain(0x3ff0_0000);
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str("local read access")
        } else {
            self.0.fmt(f)
        }
    }
}
