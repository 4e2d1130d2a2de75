//! What a cache holds and has done, and what an invalidation has met.

/// What a cache holds now and has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Registrations that are live now: leased, idle, or invalidated and still leased.
    pub live: u64,
    /// Their bytes, whole pages. Those of overlapping registrations count for each.
    pub live_bytes: u64,
    /// Of these, registrations that have no lease.
    pub idle: u64,
    /// Their bytes.
    pub idle_bytes: u64,
    /// Leases that were given on a live registration.
    pub hits: u64,
    /// Leases for which a registration was started.
    pub misses: u64,
    /// Leases that waited for a registration that another thread had started.
    pub waits: u64,
    /// Registrations that succeeded.
    pub registrations: u64,
    /// Registrations that failed.
    pub failed_registrations: u64,
    /// Deregistrations that succeeded.
    pub deregistrations: u64,
    /// Deregistrations that failed.
    pub failed_deregistrations: u64,
    /// Bytes of these: memory that the device may still have access to.
    pub lost_bytes: u64,
    /// Idle registrations that had to make room.
    pub evictions: u64,
    /// Registrations that an invalidation has made unfindable.
    pub invalidations: u64,
}

/// What an invalidation has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidated {
    /// Live registrations that are no longer found. Those without leases are deregistered already,
    /// the others will be when their last lease ends.
    pub live: usize,
    /// Of these, the ones with leases.
    pub leased: usize,
    /// Pending registrations: the threads that have asked for them get them, and no others.
    pub pending: usize,
}
