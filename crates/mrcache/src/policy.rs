//! [`Policy`]: how long a registration is found.

/// How long a registration is found.
///
/// If memory is unmapped and its addresses are used for other memory, a registration still means the
/// old pages, and a hit on it would be silent corruption. So each policy asks something of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// While there is a lease on any part of it. Memory of which a part is still leased must be
    /// [invalidated](crate::Cache::invalidate) before it goes.
    #[default]
    WhileLeased,
    /// While there is a lease on all of its pages, if an address names its memory: it is the host's,
    /// or a DMA-BUF's asked for [by address](crate::Request::by_address).
    ///
    /// For programs that do not invalidate: it is enough that the pages for which a lease was asked
    /// stay mapped as long as the lease. If a lease on a part outlives the lease on the whole, the
    /// rest of the memory may be unmapped meanwhile. The part's lease stays valid, and further ones
    /// register anew.
    WhileFullyLeased,
    /// Also without leases, in a pool within these limits; what was used longest ago is given back
    /// first. All memory must be invalidated before it goes.
    KeepIdle {
        /// Registrations that are kept at most.
        registrations: usize,
        /// Bytes of registered pages that are kept at most. A registration that alone exceeds them
        /// is not kept.
        bytes: usize,
    },
}
