//! [`Cache`]: the interface to all of it.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use nix::unistd::{SysconfVar, sysconf};

use crate::entry::Leased;
use crate::key::{DmaBuf, DomainId, Key, Space};
use crate::lease::{Lease, Shared};
use crate::policy::Policy;
use crate::range::{AddressRange, InvalidRange};
use crate::registration::{LeaseError, Registration};
use crate::request::{Request, Target};
use crate::statistics::{Invalidated, Statistics};
use crate::sync::{Lock, has_lock};
use crate::tables::Tables;

/// A cache of registrations `R`. Clones share it, and all threads may use it at once.
///
/// When the last clone is dropped, idle registrations are given back. Leases that still exist stay
/// valid; their registrations are given back with the last lease of each.
pub struct Cache<R: Registration>(Arc<Owner<R>>);

/// What the clones of a cache share; leases share only what is inside.
struct Owner<R: Registration>(Arc<Shared<R>>);

impl<R: Registration> Drop for Owner<R> {
    fn drop(&mut self) {
        let ended = self.0.tables.with(|tables| {
            // What is leased now is not kept later.
            if matches!(tables.policy, Policy::KeepIdle { .. }) {
                tables.policy = Policy::WhileLeased;
            }
            tables.flush()
        });
        // Failures are counted and logged.
        let _ = self.0.deregister_all(ended);
    }
}

impl<R: Registration> Clone for Cache<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
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
    /// An empty cache that registers whole pages of the system, `sysconf(_SC_PAGESIZE)`.
    pub fn new(policy: Policy) -> Self {
        let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        // POSIX requires the value to be there.
        let size = size.and_then(|size| usize::try_from(size).ok());
        Self::with_page_size(policy, size.unwrap_or(4096))
    }

    /// An empty cache that registers whole pages of `page_size` bytes, for memory that is known to
    /// lie in such pages.
    ///
    /// # Panics
    /// If `page_size` is no power of two.
    pub fn with_page_size(policy: Policy, page_size: usize) -> Self {
        assert!(
            page_size.is_power_of_two(),
            "a page size is a power of two, not {page_size}"
        );
        Self(Arc::new(Owner(Arc::new(Shared {
            tables: Lock::new(Tables::new(policy)),
            page_size,
        }))))
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
        let shared = &self.0.0;
        let wanted = request.wanted(shared.page_size)?;
        loop {
            let (leased, target) = shared.tables.with(|tables| tables.lease(&wanted))?;
            if let Some(target) = target {
                return self.register(leased, || register(&target));
            }
            let entry = &leased.entry;
            match shared.tables.wait(|| entry.outcome.get()) {
                Ok(_) => return Ok(Lease::new(shared, leased)),
                // What fails for a larger range, or with other rights, is tried here; so is what panics.
                Err(Some(error)) if wanted.registers(&entry.key, entry.range) => {
                    return Err(LeaseError::Register(R::Error::clone(error)));
                }
                Err(_) => {}
            }
        }
    }

    /// Registers what is pending.
    fn register(
        &self,
        leased: Leased<R>,
        register: impl FnOnce() -> Result<R, R::Error>,
    ) -> Result<Lease<R>, LeaseError<R::Error>> {
        let shared = &self.0.0;
        let complete = |outcome| {
            shared
                .tables
                .with(|tables| tables.complete(&leased.entry, outcome));
            shared.tables.notify_all();
        };
        match panic::catch_unwind(AssertUnwindSafe(register)) {
            Ok(Ok(registration)) => complete(Ok(registration)),
            Ok(Err(error)) => {
                complete(Err(Some(Box::new(error.clone()))));
                return Err(LeaseError::Register(error));
            }
            Err(panic) => {
                complete(Err(None));
                panic::resume_unwind(panic)
            }
        }
        Ok(Lease::new(shared, leased))
    }

    /// A lease if a live registration covers what is requested; none if something would have to be
    /// registered or waited for.
    ///
    /// # Errors
    /// An invalid range.
    pub fn find(&self, request: &Request) -> Result<Option<Lease<R>>, InvalidRange> {
        let shared = &self.0.0;
        let wanted = request.wanted(shared.page_size)?;
        let leased = shared.tables.with(|tables| tables.find(&wanted));
        Ok(leased.map(|leased| Lease::new(shared, leased)))
    }

    /// Makes unfindable what is registered of memory that its address names, in any domain: the host's,
    /// and DMA-BUFs asked for [by address](Request::by_address). To be called *before* the memory is
    /// unmapped or becomes other memory: between unmapping and the call, the addresses could be mapped
    /// anew and hit the old registration.
    ///
    /// Registrations without leases are given back at once, the others with their last lease. A
    /// pending registration goes to the threads that have asked for it before, and to no others.
    ///
    /// May be called from inside an allocator, such as a wrapper of `munmap` or a `GlobalAlloc`. If
    /// what is freed is memory of the cache's own tables, the call does nothing. It allocates in turn
    /// if it finds something.
    ///
    /// # Errors
    /// An invalid range.
    pub fn invalidate(&self, address: usize, length: usize) -> Result<Invalidated, InvalidRange> {
        let range = AddressRange::new(address, length)?;
        Ok(self.invalidate_if(range, |key| key.space.is_named_by_address()))
    }

    /// The same for all of a DMA-BUF, but for what was asked for by address.
    pub fn invalidate_dmabuf(&self, buffer: DmaBuf) -> Invalidated {
        let identity = (buffer.device, buffer.inode);
        self.invalidate_if(AddressRange::ALL, |key| {
            matches!(key.space, Space::Inode { device, inode, .. } if (device, inode) == identity)
        })
    }

    /// The same for all of a domain: its device was reset or is about to be closed.
    pub fn invalidate_domain(&self, domain: DomainId) -> Invalidated {
        self.invalidate_if(AddressRange::ALL, |key| key.domain == domain)
    }

    fn invalidate_if(&self, range: AddressRange, is_met: impl Fn(&Key) -> bool) -> Invalidated {
        if has_lock() {
            return Invalidated::default();
        }
        let shared = &self.0.0;
        let (invalidated, ended) = shared
            .tables
            .with(|tables| tables.invalidate(range, is_met));
        // Failures are counted and logged.
        let _ = shared.deregister_all(ended);
        invalidated
    }

    /// Gives all idle registrations back, and says how many they were.
    ///
    /// # Errors
    /// The first failure, after all were tried.
    pub fn flush(&self) -> Result<usize, R::Error> {
        let ended = self.0.0.tables.with(Tables::flush);
        let count = ended.len();
        self.0.0.deregister_all(ended).map(|()| count)
    }

    /// What the cache holds and has done.
    pub fn statistics(&self) -> Statistics {
        self.0.0.tables.with(|tables| tables.statistics)
    }
}
