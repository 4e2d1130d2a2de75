//! The functions that NCCL hands to the plugin: its logger and its profiler.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use super::result::NcclResult;

/// `ncclDebugLogger_t`: `(level, flags, file, line, fmt, ...)`, variadic like `printf`.
///
/// NCCL may pass none at all.
pub type DebugLogger = unsafe extern "C" fn(
    level: c_int,
    flags: c_ulong,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    ...
);

/// `ncclProfilerCallback_t`: `(eHandle, type, pHandle, pluginId, extData)`.
///
/// Given to `init` from API version 10 on; NCCL may pass none.
pub type ProfilerCallback = unsafe extern "C" fn(
    event: *mut *mut c_void,
    kind: c_int,
    parent: *mut c_void,
    plugin: i64,
    data: *mut c_void,
) -> NcclResult;
