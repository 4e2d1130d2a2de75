//! Which process this is, in a line of processes each forked by the one before.
//!
//! A forked child inherits the descriptors of open devices and a copy of what describes their objects.
//! What it does with them happens to the parent: the kernel destroys the parent's queue pair, and a
//! driver writes to the parent's doorbells. So a child must know what it has inherited.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks since the beginning of the line.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks that lie between the first process that loaded a [`Library`](crate::Library) and
/// this one: of what was made by this process as long as the number is the same, and inherited
/// otherwise. Costs one load.
///
/// Children made by fork(3) count. Those of a bare clone(2) are not seen.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on.
pub(crate) fn count_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler may be called in a child at any time: it adds to a number. It stays
        // valid, because the C library drops the handlers of a shared object that is unloaded.
        let result = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if result != 0 {
            let error = std::io::Error::from_raw_os_error(result);
            tracing::debug!(%error, "forked children will not be noticed");
        }
    });
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
