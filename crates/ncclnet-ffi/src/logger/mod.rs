//! NCCL's logger as the place where the plugin's `tracing` events go.
//!
//! [`install`] takes the function that NCCL gave to `init`. Every event of the plugin and of the
//! crates below it then becomes one call of that function (or several, if the text is long), with
//! NCCL's level and subsystem:
//!
//! | event | NCCL level | shown with |
//! |---|---|---|
//! | error, warn | WARN, all subsystems | `NCCL_DEBUG=WARN` and above |
//! | info | INFO, subsystem by module | `NCCL_DEBUG=INFO` |
//! | debug | TRACE, subsystem by module | `NCCL_DEBUG=TRACE` |
//! | trace | none | never |
//!
//! Without a logger every event is off, and an event that is off costs one load.

mod lines;
mod subscriber;
mod subsystem;
mod variables;

use std::ffi::{CString, c_char, c_int, c_ulong};
use std::mem;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use tracing_core::{callsite, dispatcher};

use crate::abi::DebugLogger;
use subscriber::Forwarder;

/// The logger in use, or null. `DebugLogger` is a function pointer, which has no atomic of its own.
static LOGGER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

static SUBSCRIBE: Once = Once::new();

/// Sends all events to `logger` from now on; none means silence.
///
/// The last caller's logger is used, for events of every communicator. If the program that this
/// library is linked into has a `tracing` subscriber already, that one keeps its place.
pub(crate) fn install(logger: Option<DebugLogger>) {
    let new = logger.map_or(ptr::null_mut(), |logger| logger as *mut ());
    let old = LOGGER.swap(new, Ordering::AcqRel);
    if !new.is_null() {
        SUBSCRIBE.call_once(|| {
            // An error says that the program has a subscriber of its own, which is then used.
            let _ = dispatcher::set_global_default(dispatcher::Dispatch::new(Forwarder));
        });
    }
    if old.is_null() != new.is_null() {
        callsite::rebuild_interest_cache();
    }
}

/// Whether anybody listens.
fn is_installed() -> bool {
    !LOGGER.load(Ordering::Acquire).is_null()
}

/// One call of NCCL's logger.
fn send(level: c_int, flags: c_ulong, origin: &CString, line: c_int, text: &CString) {
    let logger = LOGGER.load(Ordering::Acquire);
    if logger.is_null() {
        return;
    }
    // SAFETY: `install` stored this pointer, which it got as a `DebugLogger`; both have the size of
    // a pointer on every platform that `abi` compiles for.
    let logger = unsafe { mem::transmute::<*mut (), DebugLogger>(logger) };
    let format: *const c_char = c"%s".as_ptr();
    // SAFETY: the contract of `ncclDebugLogger_t`: C strings that live for the call, and after a
    // format of one `%s` one C string. NCCL keeps the function valid for as long as it uses the
    // plugin, and the plugin forgets it in the last `finalize`.
    unsafe { logger(level, flags, origin.as_ptr(), line, format, text.as_ptr()) };
}
