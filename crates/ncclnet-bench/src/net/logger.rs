//! The function that a plugin logs through.
//!
//! NCCL's logger is variadic, and stable Rust cannot define such a function. An ordinary function of
//! six arguments can take the first argument after the format, on the platforms named below, where
//! the first six integer or pointer arguments of any call travel alike. It is looked at only where the
//! format says that it is a string; other texts appear as they stand in the plugin's code.

use std::ffi::{CStr, c_char, c_int, c_ulong};

use ncclnet_ffi::abi::{DebugLogger, LOG_INFO, LOG_TRACE, LOG_WARN};

type Logger =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char);

/// The logger for `init`. What it shows is asked for as with NCCL: `NCCL_DEBUG`.
pub(super) fn logger() -> Option<DebugLogger> {
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        // In both psABIs (System V x86-64, AAPCS64 on Linux) the first six integer or pointer
        // arguments of any call are in registers, the variadic ones like the named ones. If fewer
        // were passed, the sixth is some number, which `log` does not look at.
        // SAFETY: the two types differ in the variadic part only, which is passed alike: see above.
        Some(unsafe { std::mem::transmute::<Logger, DebugLogger>(log) })
    } else {
        None
    }
}

/// # Safety
///
/// `format` is null or a C string. If it is `"%s"`, so is `text`.
unsafe extern "C" fn log(
    level: c_int,
    _flags: c_ulong,
    _file: *const c_char,
    _line: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    if format.is_null() || level > shown() {
        return;
    }
    // SAFETY: as this function requires.
    let format = unsafe { CStr::from_ptr(format) };
    let line = if format == c"%s" && !text.is_null() {
        // SAFETY: as this function requires.
        unsafe { CStr::from_ptr(text) }
    } else {
        format
    };
    eprintln!("{}", line.to_string_lossy().trim_end());
}

/// The highest level that is shown; 0 is none.
fn shown() -> c_int {
    match std::env::var("NCCL_DEBUG").unwrap_or_default().as_str() {
        "WARN" => LOG_WARN,
        "INFO" => LOG_INFO,
        "TRACE" => LOG_TRACE,
        _ => 0,
    }
}
