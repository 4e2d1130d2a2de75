//! `init` and `finalize`: one transport per process, shared by all communicators.
//!
//! - API versions 11 and 12 call `init` once per communicator and `finalize` for each. The first
//!   opens the transport; each gets a [`Context`]; the last `finalize` lets the transport go, which
//!   joins its thread and closes the devices. A later `init` opens it again.
//! - API versions 2 to 10 call `init` any number of times and nothing at the end: the first opens the
//!   transport for the rest of the process. (The library cannot be unloaded, see `build.rs`.) A later one
//!   comes from an NCCL that has unloaded the plugin, as it thinks: see [`numbering`](crate::device::numbering).
//! - An `init` that failed has changed nothing: the next one tries again.
//!
//! Communicators that are still open at the last `finalize` stay usable, and keep what they need of
//! the transport alive until they are closed. NCCL closes all of them first; if it did not, a warning
//! says how many were left.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibnet::{Config, Transport};
use ibnet_verbs::Library;

use crate::abi::{
    CONFIG_UNDEFINED, CommConfig, DebugLogger, NcclResult, ProfilerCallback,
    TRAFFIC_CLASS_UNDEFINED,
};
use crate::device::Devices;
use crate::fault::Fault;
use crate::guard::{LACKS_REMOTE_ERROR, Out, guard};
use crate::handles::{Handle, Kind};
use crate::objects::{self, CONTEXTS, Context};
use crate::{attempts, logger, profiler};

/// The first version whose users know `ncclRemoteError`.
const REMOTE_ERROR_SINCE: u32 = 6;

/// What is open, and for whom. One thread at a time opens and closes.
struct State {
    open: Option<Open>,
    contexts: usize,
    /// An `init` without a matching `finalize` was called.
    for_ever: bool,
}

/// What the first `init` has opened.
#[derive(Clone)]
struct Open {
    devices: Arc<Devices>,
    /// Traffic class of all connections, whatever a communicator asks for (`NCCL_IB_TC`).
    traffic_class: Option<u8>,
}

static STATE: Mutex<State> = Mutex::new(State {
    open: None,
    contexts: 0,
    for_ever: false,
});

/// What `init` takes instead of the machine's, if anything.
#[derive(Clone)]
struct Provided {
    library: Option<Library>,
    sysfs: Option<PathBuf>,
    settings: Option<Config>,
}

static PROVIDED: Mutex<Provided> = Mutex::new(Provided {
    library: None,
    sysfs: None,
    settings: None,
});

/// Has every `init` of this process that opens the devices take those of `library`, rather than load
/// libibverbs. `NCCL_IBVERBS_LIB` is then ignored; everything else is as always.
///
/// For programs that link this crate and provide the devices themselves, such as simulated ones. To
/// be called before the first `init`: a transport that is open already stays.
pub fn use_library(library: Library) {
    lock(&PROVIDED).library = Some(library);
}

/// Has every `init` of this process look in the directory `root` for what sysfs shows of the devices
/// and of the modules that they need, instead of in `/sys`.
///
/// It belongs to [`use_library`]: devices that a program provides have their files nowhere else.
pub fn use_sysfs(root: PathBuf) {
    lock(&PROVIDED).sysfs = Some(root);
}

/// Has every `init` of this process that opens the devices take these settings, and look at no
/// variable of the environment.
///
/// For programs that provide devices with [`use_library`], to which not all that is set for those of
/// the host applies.
pub fn use_settings(settings: Config) {
    lock(&PROVIDED).settings = Some(settings);
}

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
        logger::install(logger);
        LACKS_REMOTE_ERROR.store(version < REMOTE_ERROR_SINCE, Ordering::Relaxed);
        let mut state = lock(&STATE);
        let open = open(&mut state, version)?;
        if state.for_ever {
            open.devices.begin_anew();
        }
        state.for_ever = true;
        profiler::install(profiler);
        Ok(())
    })
}

/// `init` of API versions 11 and 12: the context of one communicator, of which `communicator` is NCCL's hash.
pub(crate) unsafe extern "C" fn init_v11<const VERSION: u32>(
    context: *mut *mut c_void,
    communicator: u64,
    config: *mut CommConfig,
    logger: Option<DebugLogger>,
    profiler: Option<ProfilerCallback>,
) -> NcclResult {
    guard("init", || {
        logger::install(logger);
        let out = Out::handle(context, "ctx")?;
        // SAFETY: see `guard`. NCCL's configuration is a local variable of its own: it is read here
        // and not kept.
        let wish = unsafe { traffic_class(config) };
        let mut state = lock(&STATE);
        let open = open(&mut state, VERSION)?;
        let context = CONTEXTS.insert(Context {
            devices: open.devices,
            traffic_class: wish,
        });
        if context.is_err() {
            close_if_unused(&mut state);
        }
        out.set(context?.to_pointer());
        state.contexts += 1;
        match (wish, open.traffic_class) {
            (Some(wish), Some(class)) if wish != class => tracing::info!(
                "communicator {communicator:#x}: traffic class {wish} is asked for, and NCCL_IB_TC \
                 makes it {class}"
            ),
            (Some(class), _) => {
                tracing::info!("communicator {communicator:#x}: traffic class {class}");
            }
            (None, _) => tracing::debug!("communicator {communicator:#x}"),
        }
        profiler::install(profiler);
        Ok(())
    })
}

/// `finalize`: the end of one communicator. Null, which `init` never gives, is nothing to do.
pub(crate) unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    guard("finalize", || {
        if context.is_null() {
            return Ok(());
        }
        let context = Handle::of(Kind::Context, context)?;
        let mut state = lock(&STATE);
        drop(CONTEXTS.take(context)?);
        attempts::abandon(Some(context));
        state.contexts -= 1;
        close_if_unused(&mut state);
        Ok(())
    })
}

/// The transport, opened if it is not.
fn open(state: &mut State, version: u32) -> Result<Open, Fault> {
    // A forked child opens the devices anew: what its parent has opened is of no use to it.
    if let Some(open) = &state.open
        && !open.devices.transport().is_inherited()
    {
        return Ok(open.clone());
    }
    tracing::info!(
        "ibnet {}, network plugin API version {version}",
        env!("CARGO_PKG_VERSION")
    );
    let provided = lock(&PROVIDED).clone();
    let mut config = provided
        .settings
        .map_or_else(Config::from_env, Ok)
        .map_err(|error| cannot_start(error.into()))?;
    if config.disabled {
        return Err(Fault::usage("disabled by NCCL_IB_DISABLE"));
    }
    if let Some(root) = provided.sysfs {
        config.sysfs = root;
    }
    let traffic_class = config.traffic_class;
    let transport = match provided.library {
        Some(library) => Transport::with_library(library, config),
        None => Transport::open(config),
    };
    let devices = Devices::of(transport.map_err(cannot_start)?)?;
    devices.announce();
    let open = Open {
        devices: Arc::new(devices),
        traffic_class,
    };
    state.open = Some(open.clone());
    Ok(open)
}

/// Why the transport cannot be opened, and what that means to the job: NCCL takes the next network that
/// starts, in this process alone.
fn cannot_start(error: ibnet::Error) -> Fault {
    Fault::from(error).with(
        "; this rank will now use another network than its peers, unless NCCL_NET=IBNET is set, \
         with which it fails at once",
    )
}

/// Lets the transport go if it is not needed any more.
fn close_if_unused(state: &mut State) {
    if state.contexts > 0 || state.for_ever {
        return;
    }
    attempts::abandon(None);
    let left = objects::open_communicators();
    if left > 0 {
        tracing::warn!(
            "the last finalize came with {left} communicators open; their devices stay open until \
             they are closed"
        );
    }
    // Unless one of those is left, this joins the events thread and closes the devices.
    state.open = None;
    tracing::debug!("finalized");
    // NCCL may be unloaded from here on, and its functions with it.
    profiler::install(None);
    logger::install(None);
}

/// The open devices.
pub(crate) fn devices() -> Result<Arc<Devices>, Fault> {
    let state = lock(&STATE);
    let open = state.open.as_ref();
    open.map(|open| Arc::clone(&open.devices))
        .ok_or_else(|| Fault::internal("the plugin is not initialised: call init first"))
}

/// The context that C passed. Null stands for the devices as they are, without wishes of its own.
pub(crate) fn context(value: *mut c_void) -> Result<(Option<Handle>, Context), Fault> {
    if value.is_null() {
        let context = Context {
            devices: devices()?,
            traffic_class: None,
        };
        return Ok((None, context));
    }
    let handle = Handle::of(Kind::Context, value)?;
    // SAFETY: NCCL ends a context when no call uses it any more.
    let context = unsafe { CONTEXTS.get(handle) }?.clone();
    Ok((Some(handle), context))
}

/// The traffic class that a configuration asks for, if there is one. One that is no traffic class is not cut to
/// eight bits: the log says so, and it is taken for undefined.
///
/// # Safety
/// `config` is null or can be read.
pub(crate) unsafe fn traffic_class(config: *const CommConfig) -> Option<u8> {
    // API version 10 asks again and again while it connects.
    static TOLD: AtomicI32 = AtomicI32::new(TRAFFIC_CLASS_UNDEFINED);
    // SAFETY: as this function requires.
    let value = unsafe { config.as_ref() }?.traffic_class;
    if matches!(value, TRAFFIC_CLASS_UNDEFINED | CONFIG_UNDEFINED) {
        return None;
    }
    let class = u8::try_from(value).ok();
    if class.is_none() && TOLD.swap(value, Ordering::Relaxed) != value {
        tracing::warn!(
            "traffic class {value} is asked for; there are 0 to 255, and the one of a communicator that \
             asks for none is used"
        );
    }
    class
}

/// A lock that a panic leaves usable: what it protects is changed in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_classes_are_checked_and_not_cut() {
        let class = |value| {
            let config = CommConfig {
                traffic_class: value,
            };
            // SAFETY: a variable.
            unsafe { traffic_class(&config) }
        };
        for value in [0, 15, 16, 255] {
            assert_eq!(class(value.into()), Some(value));
        }
        // Undefined, for NCCL's networks and for its configuration.
        for value in [-1, i32::MIN] {
            assert_eq!(class(value), None);
        }
        for value in [-2, 256, 262, i32::MAX] {
            assert_eq!(class(value), None);
        }
        // SAFETY: null is none.
        assert_eq!(unsafe { traffic_class(std::ptr::null()) }, None);
    }
}
