//! `init` and `finalize`.

use std::ffi::c_void;

use super::Out;
use crate::abi::{CommConfig, DebugLogger, NcclResult, ProfilerCallback};
use crate::guard::guard;
use crate::handles::{Kind, ObjectId};
use crate::plugin::lifecycle;
use crate::profiler;

/// `init` of API versions 2 to 9.
pub(crate) unsafe extern "C" fn init_v2<const VERSION: u32>(
    logger: Option<DebugLogger>,
) -> NcclResult {
    init_process(VERSION, logger, None)
}

/// `init` of API version 10.
pub(crate) unsafe extern "C" fn init_v10(
    logger: Option<DebugLogger>,
    profiler: Option<ProfilerCallback>,
) -> NcclResult {
    init_process(10, logger, profiler)
}

fn init_process(
    version: u32,
    logger: Option<DebugLogger>,
    profiler: Option<ProfilerCallback>,
) -> NcclResult {
    guard("init", || {
        // Before anything can fail: the reason is to be read somewhere.
        lifecycle::use_logger(logger);
        lifecycle::init_process(version)?;
        profiler::install(profiler);
        Ok(())
    })
}

/// `init` of API versions 11 and 12.
pub(crate) unsafe extern "C" fn init_v11<const VERSION: u32>(
    context: *mut *mut c_void,
    communicator: u64,
    config: *mut CommConfig,
    logger: Option<DebugLogger>,
    profiler: Option<ProfilerCallback>,
) -> NcclResult {
    guard("init", || {
        // Before anything can fail: the reason is to be read somewhere.
        lifecycle::use_logger(logger);
        let out = Out::new(context, "ctx")?;
        // SAFETY: see the module. NCCL's configuration is a local variable of its own: it is read here
        // and not kept.
        let traffic_class = unsafe { traffic_class(config) };
        out.set(lifecycle::init_communicator(VERSION, communicator, traffic_class)?.to_pointer());
        profiler::install(profiler);
        Ok(())
    })
}

/// `finalize`. Null, which `init` never gives, is nothing to do.
pub(crate) unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    guard("finalize", || {
        if context.is_null() {
            return Ok(());
        }
        lifecycle::finalize(ObjectId::from_pointer(context, Kind::Context)?)
    })
}

/// The traffic class that a configuration asks for, if there is one.
///
/// # Safety
/// `config` is null or can be read.
pub(crate) unsafe fn traffic_class(config: *const CommConfig) -> Option<u8> {
    // SAFETY: as this function requires.
    let config = unsafe { config.as_ref() }?;
    lifecycle::traffic_class(config.traffic_class)
}
