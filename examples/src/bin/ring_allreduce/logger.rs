//! The function that the plugin logs through.
//!
//! NCCL's logger is variadic, and stable Rust cannot define such a function. The plugin promises to
//! pass the format `"%s"` and one string, so it always passes six integer or pointer arguments. On the
//! platforms named below the sixth such argument of a variadic call travels exactly as that of an
//! ordinary call, so an ordinary function of six arguments can take it. Elsewhere there is no logger.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ibnet_examples::complain;
use ncclnet_ffi::abi::{DebugLogger, LOG_WARN};

static VERBOSE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The plugin warns of a call in the thread of the call.
    static LAST_WARNING: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The logger for `init`. Warnings go to standard error; with `verbose` everything does.
pub(crate) fn logger(verbose: bool) -> Option<DebugLogger> {
    VERBOSE.store(verbose, Ordering::Relaxed);
    if cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )) {
        // SAFETY: the two types differ in the variadic part only. In both psABIs (System V x86-64,
        // AAPCS64 on Linux) the first six integer or pointer arguments of any call are in registers,
        // the variadic ones of them like the named ones, and the plugin passes six.
        Some(unsafe { std::mem::transmute::<Logger, DebugLogger>(log) })
    } else {
        None
    }
}

/// This thread's last warning, without the plugin's name: it says why a call has failed.
pub(crate) fn last_warning() -> String {
    LAST_WARNING.with_borrow(String::clone)
}

type Logger =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char);

/// # Safety
/// `text` is a C string, which is what the plugin passes after the format.
unsafe extern "C" fn log(
    level: c_int,
    _flags: c_ulong,
    _file: *const c_char,
    _line: c_int,
    _format: *const c_char,
    text: *const c_char,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: as this function requires.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if level == LOG_WARN {
        let text = text.trim_start_matches("NET/IBNET");
        let text = text.trim_start_matches([' ', ':']);
        // A thread that ends has nobody left to ask.
        let _ = LAST_WARNING.try_with(|last| text.clone_into(&mut last.borrow_mut()));
    }
    if level == LOG_WARN || VERBOSE.load(Ordering::Relaxed) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("?");
        complain!("[{} {name}] {text}", std::process::id());
    }
}
