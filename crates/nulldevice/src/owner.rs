//! The one thread that posts and polls.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

thread_local! {
    /// Its address tells threads apart, and costs one instruction to find.
    static HERE: u8 = const { 0 };
}

static OWNER: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Ends the process if another thread has posted or polled before.
#[inline]
pub(crate) fn check() {
    let here = HERE.with(|here| ptr::from_ref(here).cast_mut());
    if OWNER.load(Ordering::Relaxed) != here {
        claim(here);
    }
}

/// Nobody posts or polls any more: the next thread may begin.
pub(crate) fn release() {
    OWNER.store(ptr::null_mut(), Ordering::Relaxed);
}

#[cold]
fn claim(here: *mut u8) {
    let nobody = ptr::null_mut();
    if OWNER
        .compare_exchange(nobody, here, Ordering::Relaxed, Ordering::Relaxed)
        .is_err()
    {
        eprintln!("null device: a second thread posts or polls, which this device is not made for");
        std::process::abort();
    }
}
