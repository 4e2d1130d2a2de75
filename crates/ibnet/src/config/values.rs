//! The values of settings that are one of a few.

/// How the sender chooses paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathPolicy {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Those with the fewest requests under way.
    LeastOutstanding,
}

/// Which entry of a port's P_Key table to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The entry at this index, whatever it holds.
    Index(u16),
    /// The entry that holds this P_Key. The highest bit is that of full membership: a full
    /// member's entry is taken whether it is set here or not, a limited member's only without a
    /// better one.
    Value(u16),
}

/// mlx5's Data Direct: a second PCI function, by which the adapter reaches GPU memory past the
/// CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirect {
    /// Not used.
    Off,
    /// A device that has it is listed with it alone, as `NAME_dma`.
    Only,
    /// A device that has it is listed twice: as `NAME`, and with it as `NAME_dma`.
    Both,
}

/// Whether the device may write to memory in any order within a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelaxedOrdering {
    /// Never.
    Off,
    /// Yes; a warning if libibverbs is too old for it (before IBVERBS_1.8).
    Force,
    /// If libibverbs is new enough for it.
    Auto,
}

/// An address family for the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}
