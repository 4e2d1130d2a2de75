//! Protection domains and memory regions.

use std::os::raw::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use ibnet_verbs::sys::{ibv_context, ibv_mr, ibv_pd};

use crate::set_errno;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(ibv_pd { context, handle: 0 }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's handle, used for the last time.
    drop(unsafe { Box::from_raw(pd) });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = address.expose_provenance() as u64;
    register(pd, address, length, iova, access as c_uint)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    register(pd, address, length, iova, access)
}

/// With the caller's handle and arguments. The functions above do not call each other: in a process
/// with another libibverbs, a call by an exported name may end there.
fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    static NEXT_KEY: AtomicU32 = AtomicU32::new(1);
    // The devices use addresses of the process as they are.
    if iova != address.expose_provenance() as u64 || length == 0 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    checked::insert(key, iova, length as u64, access);
    Box::into_raw(Box::new(ibv_mr {
        // SAFETY: the caller's handle.
        context: unsafe { (*pd).context },
        pd,
        addr: address,
        length,
        handle: key,
        lkey: key,
        rkey: key,
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's handle, used for the last time.
    let mr = unsafe { Box::from_raw(mr) };
    checked::remove(mr.lkey);
    0
}

/// Whether the key covers the range with these rights (`IBV_ACCESS_*`). In release builds the answer
/// is always yes: a real device's checks take none of the processor's time.
#[inline]
pub(crate) fn allows(key: u32, address: u64, length: u32, access: c_uint) -> bool {
    length == 0 || checked::allows(key, address, length.into(), access)
}

/// What is registered, for the checks of debug builds.
#[cfg(debug_assertions)]
mod checked {
    use std::collections::BTreeMap;
    use std::os::raw::c_uint;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Address, length, rights.
    type Regions = BTreeMap<u32, (u64, u64, c_uint)>;

    static REGIONS: Mutex<Regions> = Mutex::new(BTreeMap::new());

    fn regions() -> MutexGuard<'static, Regions> {
        REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(key: u32, address: u64, length: u64, access: c_uint) {
        regions().insert(key, (address, length, access));
    }

    pub(super) fn remove(key: u32) {
        regions().remove(&key);
    }

    pub(super) fn allows(key: u32, address: u64, length: u64, access: c_uint) -> bool {
        regions().get(&key).is_some_and(|&(start, size, granted)| {
            let offset = address.wrapping_sub(start);
            offset <= size && length <= size - offset && granted & access == access
        })
    }
}

/// Without the checks there is nothing to remember.
#[cfg(not(debug_assertions))]
mod checked {
    use std::os::raw::c_uint;

    #[inline]
    pub(super) fn insert(_: u32, _: u64, _: u64, _: c_uint) {}

    #[inline]
    pub(super) fn remove(_: u32) {}

    #[inline]
    pub(super) fn allows(_: u32, _: u64, _: u64, _: c_uint) -> bool {
        true
    }
}
