//! [`Cache`]: the interface to all of it.

use std::fmt;

use crate::index::Selection;
use crate::lease::Lease;
use crate::memory::{DmaBuf, Domain};
use crate::pages::{self, InvalidRange};
use crate::registration::{FailedDeregistration, LeaseError, Registration};
use crate::request::{Request, Target};
use crate::shared::{Report, Shared};
use crate::state::{IdleLimits, Invalidated, State};
use crate::statistics::Statistics;
use crate::sync::{Arc, Lock, has_lock};

/// A cache of registrations `R`. Clones share it, and all threads may use it at once.
///
/// When the last clone is dropped, idle registrations are given back. Leases that still exist stay
/// valid; their registrations are given back with the last lease of each.
pub struct Cache<R: Registration>(Arc<Owner<R>>);

/// What the clones of a cache share; leases share only what is inside.
struct Owner<R: Registration>(Arc<Shared<R>>);

impl<R: Registration> Drop for Owner<R> {
    fn drop(&mut self) {
        let ended = self.0.state.with(|state| state.flush(true));
        // Failures are counted and reported.
        let _ = self.0.deregister_all(ended);
    }
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
            pinned_by_lease: false,
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
    pub fn lease(
        &self,
        request: &Request,
        register: impl FnOnce(&Target) -> Result<R, R::Error>,
    ) -> Result<Lease<R>, LeaseError<R::Error>> {
        let leased = self.0.0.lease(request, register)?;
        Ok(Lease::new(&self.0.0, leased))
    }

    /// A lease if a live registration covers what is requested; none if something would have to be
    /// registered or waited for.
    ///
    /// # Errors
    /// An invalid range.
    pub fn find(&self, request: &Request) -> Result<Option<Lease<R>>, InvalidRange> {
        let wanted = request.wanted(self.0.0.page_size)?;
        let leased = self.0.0.state.with(|state| state.hit(&wanted));
        Ok(leased.map(|leased| Lease::new(&self.0.0, leased)))
    }

    /// Makes unfindable what is registered of memory that its address names, in any domain: the host's,
    /// and DMA-BUFs asked for [by address](Request::by_address). To be called *before* the memory is
    /// unmapped or becomes other memory: between unmapping and the call, the addresses could be mapped
    /// anew and hit the old registration.
    ///
    /// Registrations without leases are given back at once, the others with their last lease. A
    /// registration in progress goes to the threads that have asked for it before, and to no others.
    ///
    /// May be called from inside an allocator, such as a wrapper of `munmap` or a `GlobalAlloc`. If
    /// what is freed is memory of the cache's own tables, the call does nothing. It allocates in turn
    /// if it finds something.
    ///
    /// # Errors
    /// An invalid range.
    pub fn invalidate(&self, address: usize, length: usize) -> Result<Invalidated, InvalidRange> {
        let last = pages::last_byte(address, length)?;
        Ok(self.invalidate_selection(Selection::Addresses(address, last)))
    }

    /// The same for all of a DMA-BUF, but for what was asked for by address.
    pub fn invalidate_dmabuf(&self, buffer: DmaBuf) -> Invalidated {
        self.invalidate_selection(Selection::Buffer(buffer))
    }

    /// The same for all of a domain: its device was reset or is about to be closed.
    pub fn invalidate_domain(&self, domain: Domain) -> Invalidated {
        self.invalidate_selection(Selection::Domain(domain))
    }

    fn invalidate_selection(&self, selection: Selection) -> Invalidated {
        if has_lock() {
            return Invalidated::default();
        }
        let shared = &self.0.0;
        let (invalidated, ended) = shared.state.with(|state| state.invalidate(selection));
        // Failures are counted and reported.
        let _ = shared.deregister_all(ended);
        invalidated
    }

    /// Gives all idle registrations back, and says how many they were.
    ///
    /// # Errors
    /// The first failure, after all were tried.
    pub fn flush(&self) -> Result<usize, R::Error> {
        let ended = self.0.0.state.with(|state| state.flush(false));
        let count = ended.len();
        self.0.0.deregister_all(ended).map(|()| count)
    }

    /// What the cache holds and has done.
    pub fn statistics(&self) -> Statistics {
        self.0.0.state.with(|state| state.statistics)
    }
}

/// Settings of a [`Cache`].
pub struct Builder<R: Registration> {
    page_size: Option<usize>,
    idle: Option<IdleLimits>,
    pinned_by_lease: bool,
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
    /// With idle registrations, memory must be [invalidated](Cache::invalidate) before it goes. So
    /// this is instead of [`pinned_by_lease`](Self::pinned_by_lease).
    #[must_use]
    pub fn idle(mut self, limits: IdleLimits) -> Self {
        self.idle = (limits.entries > 0).then_some(limits);
        self.pinned_by_lease = false;
        self
    }

    /// Finds a registration of host memory, or of a DMA-BUF [by address](Request::by_address), only
    /// while there is a lease on all of its pages. For programs that do not
    /// [invalidate](Cache::invalidate) memory; instead of [`idle`](Self::idle).
    ///
    /// Usually a registration is found as long as it lives. If a lease on a part of it outlives the
    /// lease on the whole, the rest of the memory may be unmapped meanwhile and its addresses be
    /// used for other memory, which must not be found registered. With this setting it is enough
    /// that the pages for which a lease was asked stay mapped as long as the lease: once there is
    /// none on the whole any more, leases on a part stay valid, and further ones register anew.
    #[must_use]
    pub fn pinned_by_lease(mut self) -> Self {
        self.pinned_by_lease = true;
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
        let state = State::new(self.idle, self.pinned_by_lease);
        let shared = Shared {
            state: Lock::new(state),
            page_size,
            report: self.report,
        };
        Cache(Arc::new(Owner(Arc::new(shared))))
    }
}
