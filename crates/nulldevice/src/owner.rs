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

/// This thread does not post or poll any more: the next one may begin.
pub(crate) fn release() {
    OWNER.store(ptr::null_mut(), Ordering::Relaxed);
}

#[cold]
fn claim(here: *mut u8) {
    let no_owner = ptr::null_mut();
    if OWNER
        .compare_exchange(no_owner, here, Ordering::Relaxed, Ordering::Relaxed)
        .is_err()
    {
        eprintln!("null device: a second thread posts or polls, which this device is not made for");
        std::process::abort();
    }
}
