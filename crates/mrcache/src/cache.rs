//! [`Cache`]: the interface to all of it.

use std::fmt;

use thiserror::Error;

use crate::hook::UnmapHook;
use crate::index::Selection;
use crate::invalidate::Invalidated;
use crate::lease::Lease;
use crate::memory::{DmaBuf, Domain};
use crate::miss;
use crate::pages::{self, InvalidRange};
use crate::pool::IdleLimits;
use crate::registration::{FailedDeregistration, Registration};
use crate::request::{Request, Target};
use crate::shared::{Report, Shared};
use crate::statistics::Statistics;
use crate::sync::Arc;
use crate::tree::Interval;

/// A cache of registrations `R`. Clones share it, and all threads may use it at once.
///
/// When the last clone is dropped, idle registrations are given back. Leases that still exist stay
/// valid; their registrations are given back with the last lease of each.
pub struct Cache<R: Registration>(Arc<Owner<R>>);

/// What the clones of a cache share; entries and hooks only share what is inside.
struct Owner<R: Registration>(Arc<Shared<R>>);

impl<R: Registration> Drop for Owner<R> {
    fn drop(&mut self) {
        // Failures are reported where they happen.
        let _ = self.0.flush(true);
    }
}

/// Why a lease was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError<E> {
    /// The range itself is invalid.
    #[error(transparent)]
    Range(#[from] InvalidRange),
    /// Registering failed: by this call, or by another thread's for the same memory that this call
    /// has waited for. The next call tries again.
    #[error("{0}")]
    Register(E),
    /// The function that registers has asked for a lease on the same memory, which would have to
    /// wait for itself.
    #[error(
        "{length} bytes at {address:#x} are being registered by this very thread, which cannot wait \
         for itself"
    )]
    Reentrant {
        /// Where the memory starts.
        address: usize,
        /// Bytes asked for.
        length: usize,
    },
}

impl<R: Registration> Clone for Cache<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Registration> Default for Cache<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Registration> fmt::Debug for Cache<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl<R: Registration> Cache<R> {
    /// An empty cache with the system's page size that keeps nothing without leases, and logs
    /// failed deregistrations as warnings (with `tracing`).
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A cache with other settings.
    pub fn builder() -> Builder<R> {
        Builder {
            page_size: None,
            idle: None,
            vouched_only: false,
            report: Box::new(|failure| tracing::warn!("{failure}")),
        }
    }

    /// A lease on a registration that covers what is requested, with at least that access. If none is
    /// live, `register` is called to make one; if another thread is about to, its result is waited
    /// for.
    ///
    /// `register` runs without any lock of the cache: others use the cache meanwhile, and
    /// it may use the cache itself, except for the same memory.
    ///
    /// # Errors
    /// An invalid range, or what `register` returned, here or in the thread that was waited for.
    #[inline]
    pub fn lease(
        &self,
        request: &Request,
        register: impl FnOnce(&Target) -> Result<R, R::Error>,
    ) -> Result<Lease<R>, LeaseError<R::Error>> {
        let shared = &self.0.0;
        let wanted = request.wanted(shared.page_size)?;
        if let Some(lease) = shared.hit(&wanted) {
            return Ok(lease);
        }
        let target = request.target(shared.page_size)?;
        miss::lease(shared, &wanted, &target, register)
    }

    /// A lease if a live registration covers what is requested; none if something would have to be
    /// registered or waited for.
    ///
    /// # Errors
    /// An invalid range.
    #[inline]
    pub fn find(&self, request: &Request) -> Result<Option<Lease<R>>, InvalidRange> {
        let shared = &self.0.0;
        Ok(shared.hit(&request.wanted(shared.page_size)?))
    }

    /// Memory that its address names, which is the host's and DMA-BUFs asked for
    /// [by address](Request::by_address), is about to be unmapped, or to become other memory: no registration of any of these
    /// bytes, in any domain, is found from now on. Those without leases are given back at once,
    /// the others with their last lease. A registration in progress is given to those who
    /// have asked for it before, and to nobody else.
    ///
    /// # Errors
    /// An invalid range.
    pub fn invalidate(&self, address: usize, length: usize) -> Result<Invalidated, InvalidRange> {
        let last = pages::last_byte(address, length)?;
        Ok(self.0.0.invalidate(Selection::Addresses(Interval {
            first: address as u64,
            last: last as u64,
        })))
    }

    /// The same for all of a DMA-BUF, but for what was asked for by address.
    pub fn invalidate_dmabuf(&self, buffer: DmaBuf) -> Invalidated {
        self.0.0.invalidate(Selection::Buffer {
            device: buffer.device,
            inode: buffer.inode,
        })
    }

    /// The same for all of a domain: its device was reset or is about to be closed.
    pub fn invalidate_domain(&self, domain: Domain) -> Invalidated {
        self.0.0.invalidate(Selection::Domain(domain))
    }

    /// What an allocator calls before it unmaps memory.
    pub fn unmap_hook(&self) -> UnmapHook<R> {
        UnmapHook(Arc::clone(&self.0.0))
    }

    /// Gives all idle registrations back, and says how many they were.
    ///
    /// # Errors
    /// The first failure, after all were tried.
    pub fn flush(&self) -> Result<usize, R::Error> {
        self.0.0.flush(false)
    }

    /// What the cache holds and has done.
    pub fn statistics(&self) -> Statistics {
        self.0.0.statistics()
    }

    /// Bytes of memory that the cache itself takes, the registrations included, but not what these
    /// refer to.
    pub fn overhead(&self) -> usize {
        self.0.0.overhead()
    }
}

/// Settings of a [`Cache`].
pub struct Builder<R: Registration> {
    page_size: Option<usize>,
    idle: Option<IdleLimits>,
    vouched_only: bool,
    report: Box<Report<R::Error>>,
}

impl<R: Registration> Builder<R> {
    /// Registers whole pages of `bytes` bytes. The default is the system's page size,
    /// `sysconf(_SC_PAGESIZE)`; single requests may ask for larger ones.
    ///
    /// # Panics
    /// If `bytes` is no power of two.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Self {
        assert!(bytes.is_power_of_two(), "a page size is a power of two");
        self.page_size = Some(bytes);
        self
    }

    /// Keeps registrations without leases within these limits, and gives those back first that were
    /// used longest ago. The default is to keep none.
    ///
    /// Who keeps idle registrations must [invalidate](Cache::invalidate) memory before it goes. So
    /// this is instead of [`vouched_only`](Self::vouched_only).
    #[must_use]
    pub fn idle(mut self, limits: IdleLimits) -> Self {
        self.idle = (limits.entries > 0).then_some(limits);
        self.vouched_only = false;
        self
    }

    /// Finds a registration of host memory, or of a DMA-BUF [by address](Request::by_address), only
    /// while a lease on all of its pages is live. For programs in which nothing tells when memory
    /// goes; instead of [`idle`](Self::idle).
    ///
    /// Usually a registration is found as long as it lives. If a lease on a part of it outlives the
    /// lease on the whole, the rest of the memory may be unmapped meanwhile and its addresses be
    /// used for other memory, which must not be found registered: hence the rule to
    /// [invalidate](Cache::invalidate) memory before it goes. With this setting it is
    /// enough that every user keeps the pages mapped that the own lease was asked for: once
    /// nobody has a lease on the whole any more, those who have one on a part keep it, and everybody
    /// else registers anew.
    #[must_use]
    pub fn vouched_only(mut self) -> Self {
        self.vouched_only = true;
        self.idle = None;
        self
    }

    /// Tells `report` of each deregistration that fails, instead of logging it. It is called without
    /// any lock, from the thread that deregistered, and should not panic.
    #[must_use]
    pub fn on_failed_deregistration(
        mut self,
        report: impl Fn(&FailedDeregistration<'_, R::Error>) + Send + Sync + 'static,
    ) -> Self {
        self.report = Box::new(report);
        self
    }

    /// The cache.
    pub fn build(self) -> Cache<R> {
        let page_size = self.page_size.unwrap_or_else(pages::system_page_size);
        let shared = Shared::new(page_size, self.idle, self.vouched_only, self.report);
        Cache(Arc::new(Owner(Arc::new(shared))))
    }
}
