//! [`UnmapHook`]: how an allocator tells a cache that memory goes.

use crate::index::Selection;
use crate::pages;
use crate::registration::Registration;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::tree::Interval;

/// Tells a cache of memory that is about to be unmapped or given to somebody else. Cheap to clone.
///
/// Whoever owns the memory calls [`unmapping`](Self::unmapping) *before* it goes: between unmapping
/// and the call, the same addresses could be mapped anew and hit the old registration.
///
/// It may be called from inside an allocator (a wrapper of `munmap`, a `GlobalAlloc`), also when the
/// allocation is one of the cache's own: the cache notices that this thread is changing its tables,
/// and does nothing, because the memory of its tables is not registered. It does allocate in
/// turn, if it finds something.
///
/// ```
/// use mrcache::{Cache, Registration, UnmapHook};
///
/// /// An arena whose pieces come from `mmap`, and some are registered with a device.
/// struct Arena<R: Registration> {
///     pieces: Vec<Vec<u8>>,
///     hook: UnmapHook<R>,
/// }
///
/// impl<R: Registration> Arena<R> {
///     fn shrink(&mut self) {
///         if let Some(piece) = self.pieces.pop() {
///             self.hook.unmapping(piece.as_ptr() as usize, piece.len());
///             drop(piece);
///         }
///     }
/// }
/// # struct Registered;
/// # impl Registration for Registered {
/// #     type Error = String;
/// #     fn deregister(self) -> Result<(), String> { Ok(()) }
/// # }
/// # let cache = Cache::<Registered>::new();
/// # let mut arena = Arena { pieces: vec![vec![0; 8192]], hook: cache.unmap_hook() };
/// # let domain = mrcache::Domain::unique();
/// # let piece = arena.pieces[0].as_ptr() as usize;
/// # let request = mrcache::Request::host(domain, mrcache::Access::new(1), piece, 8192);
/// # let lease = cache.lease(&request, |_| Ok(Registered)).unwrap();
/// # arena.shrink();
/// # assert_eq!(cache.statistics().invalidations, 1);
/// ```
pub struct UnmapHook<R: Registration>(pub(crate) Arc<Shared<R>>);

impl<R: Registration> Clone for UnmapHook<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Registration> UnmapHook<R> {
    /// `length` bytes of host memory at `address` are about to go: registrations of them are no
    /// longer found, and end with their last lease. As [`Cache::invalidate`](crate::Cache::invalidate),
    /// but without an answer; an empty range or one that makes no sense is ignored.
    pub fn unmapping(&self, address: usize, length: usize) {
        if crate::inside::is_inside() {
            return;
        }
        if let Ok(last) = pages::last_byte(address, length) {
            self.0.invalidate(Selection::Addresses(Interval {
                first: address as u64,
                last: last as u64,
            }));
        }
    }
}
