//! Initialisation and teardown: one transport per process, shared by all communicators.
//!
//! - API versions 11 and 12 call `init` once per communicator and `finalize` for each. The first
//!   opens the transport; each gets a [`Context`]; the last `finalize` lets the transport go, which
//!   joins its thread and closes the devices. A later `init` opens it again.
//! - API versions 2 to 10 call `init` any number of times and nothing at the end: the first opens the
//!   transport for the rest of the process. (The library cannot be unloaded, see `build.rs`.) A later one
//!   comes from an NCCL that has unloaded the plugin, as it thinks: see [`numbering`](super::numbering).
//! - An `init` that failed has changed nothing: the next one tries again.
//!
//! Communicators that are still open at the last `finalize` stay usable, and keep what they need of
//! the transport alive until they are closed: closing one under a thread that is in the middle of a
//! call with it could not be done safely. NCCL closes all of them first; if it did not, a warning
//! says how many were left.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ibnet::{Config, Transport};
use ibnet_verbs::Library;

use super::device::Devices;
use super::objects::{self, CONTEXTS, Context};
use super::pending;
use crate::abi::{CONFIG_UNDEFINED, DebugLogger, TRAFFIC_CLASS_UNDEFINED};
use crate::fault::Fault;
use crate::handles::{Kind, ObjectId};
use crate::{logger, profiler};

/// Who keeps the transport open. The lock is held while it is opened and let go, so that one thread
/// at a time does either.
struct Users {
    contexts: usize,
    /// An `init` without a matching `finalize` was called.
    for_ever: bool,
}

static USERS: Mutex<Users> = Mutex::new(Users {
    contexts: 0,
    for_ever: false,
});

/// What the first `init` has opened.
#[derive(Clone)]
struct Open {
    devices: Arc<Devices>,
    /// Traffic class of all connections, whatever a communicator asks for (`NCCL_IB_TC`).
    traffic_class: Option<u8>,
}

/// The open devices. Locked for no longer than it takes to clone this, so that properties can be
/// read while another thread is in `init`.
static OPEN: RwLock<Option<Open>> = RwLock::new(None);

/// What `init` opens instead of libibverbs, if anything.
static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);

/// Where `init` looks for what sysfs shows of the devices, if not in `/sys`.
static SYSFS: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The settings that `init` takes instead of the environment's, if any.
static SETTINGS: Mutex<Option<Config>> = Mutex::new(None);

/// Has every `init` of this process that opens the devices take those of `library`, rather than load
/// libibverbs. `NCCL_IBVERBS_LIB` is then ignored; everything else is as always.
///
/// For programs that link this crate and provide the devices themselves, such as simulated ones. To
/// be called before the first `init`: a transport that is open already stays.
pub fn use_library(library: Library) {
    *LIBRARY.lock().unwrap_or_else(PoisonError::into_inner) = Some(library);
}

/// Has every `init` of this process look in the directory `root` for what sysfs shows of the devices
/// and of the modules that they need, instead of in `/sys`.
///
/// It belongs to [`use_library`]: devices that a program provides have their files nowhere else.
pub fn use_sysfs(root: PathBuf) {
    *SYSFS.lock().unwrap_or_else(PoisonError::into_inner) = Some(root);
}

/// Has every `init` of this process that opens the devices take these settings, and look at no
/// variable of the environment.
///
/// For programs that provide devices with [`use_library`], to which not all that is set for those of
/// the host applies.
pub fn use_settings(settings: Config) {
    *SETTINGS.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
}

/// What `init` does first, so that the rest of it can say something: NCCL's logger.
///
/// Null is silence. The logger of the last `init` is used for everything.
pub(crate) fn use_logger(logger: Option<DebugLogger>) {
    logger::install(logger);
}

/// `init` of API versions 2 to 10.
pub(crate) fn init_process(version: u32) -> Result<(), Fault> {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open(version)?;
    if users.for_ever {
        open.devices.begin_anew();
    }
    users.for_ever = true;
    Ok(())
}

/// `init` of API versions 11 and 12: the context of one communicator.
///
/// `communicator` is NCCL's hash of it, for the log.
pub(crate) fn init_communicator(
    version: u32,
    communicator: u64,
    traffic_class: Option<u8>,
) -> Result<ObjectId, Fault> {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open(version)?;
    let context = match CONTEXTS.insert(Context {
        devices: open.devices,
        traffic_class,
    }) {
        Ok(context) => context,
        Err(error) => {
            close_if_unused(&users);
            return Err(error.into());
        }
    };
    users.contexts += 1;
    match (traffic_class, open.traffic_class) {
        (Some(wish), Some(class)) if wish != class => tracing::info!(
            "communicator {communicator:#x}: traffic class {wish} is asked for, and NCCL_IB_TC \
             makes it {class}"
        ),
        (Some(class), _) => {
            tracing::info!("communicator {communicator:#x}: traffic class {class}");
        }
        (None, _) => tracing::debug!("communicator {communicator:#x}"),
    }
    Ok(context)
}

/// `finalize`: the end of one communicator.
pub(crate) fn finalize(context: ObjectId) -> Result<(), Fault> {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    drop(CONTEXTS.take(context)?);
    pending::abandon_context(context);
    users.contexts -= 1;
    close_if_unused(&users);
    Ok(())
}

/// The transport, opened if it is not. Called under the lock of [`USERS`].
fn open(version: u32) -> Result<Open, Fault> {
    let already = OPEN.read().unwrap_or_else(PoisonError::into_inner).clone();
    // A forked child opens the devices anew: what its parent has opened is of no use to it.
    if let Some(open) = already
        && !open.devices.transport().is_inherited()
    {
        return Ok(open);
    }
    tracing::info!(
        "ibnet {}, network plugin API version {version}",
        env!("CARGO_PKG_VERSION")
    );
    let provided = SETTINGS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let mut config = provided
        .map_or_else(Config::from_env, Ok)
        .map_err(|error| cannot_start(error.into()))?;
    if config.disabled {
        return Err(Fault::usage("disabled by NCCL_IB_DISABLE"));
    }
    if let Some(root) = &*SYSFS.lock().unwrap_or_else(PoisonError::into_inner) {
        config.sysfs.clone_from(root);
    }
    let provided = LIBRARY
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let traffic_class = config.traffic_class;
    let transport = match provided {
        Some(library) => Transport::with_library(library, config),
        None => Transport::open(config),
    }
    .map_err(cannot_start)?;
    let devices = Devices::of(transport)?;
    devices.announce();
    let open = Open {
        devices: Arc::new(devices),
        traffic_class,
    };
    *OPEN.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
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

/// Lets the transport go if nobody needs it. Called under the lock of [`USERS`].
fn close_if_unused(users: &Users) {
    if users.contexts > 0 || users.for_ever {
        return;
    }
    let open = OPEN.write().unwrap_or_else(PoisonError::into_inner).take();
    pending::abandon_all();
    let left = objects::open_communicators();
    if left > 0 {
        tracing::warn!(
            "the last finalize came with {left} communicators open; their devices stay open until \
             they are closed"
        );
    }
    // Unless one of those is left, this joins the events thread and closes the devices.
    drop(open);
    tracing::debug!("finalized");
    // NCCL may be unloaded from here on, and its functions with it.
    profiler::install(None);
    logger::install(None);
}

/// The open devices.
pub(crate) fn devices() -> Result<Arc<Devices>, Fault> {
    OPEN.read()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|open| Arc::clone(&open.devices))
        .ok_or_else(|| Fault::internal("the plugin is not initialised: call init first"))
}

/// The context that C passed. Null stands for the devices as they are, without wishes of its own.
pub(crate) fn context(value: *mut std::ffi::c_void) -> Result<(Option<ObjectId>, Context), Fault> {
    if value.is_null() {
        return Ok((
            None,
            Context {
                devices: devices()?,
                traffic_class: None,
            },
        ));
    }
    let id = ObjectId::from_pointer(value, Kind::Context)?;
    // SAFETY: NCCL ends a context when no call uses it any more.
    let context = unsafe { CONTEXTS.get(id) }?.clone();
    Ok((Some(id), context))
}

/// The traffic class of a communicator's configuration. One that is none is not cut to eight bits but
/// told of, and taken for undefined.
pub(crate) fn traffic_class(value: i32) -> Option<u8> {
    // API version 10 asks again and again while it connects.
    static TOLD: AtomicI32 = AtomicI32::new(TRAFFIC_CLASS_UNDEFINED);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_classes_are_checked_and_not_cut() {
        for class in [0, 15, 16, 255] {
            assert_eq!(traffic_class(class.into()), Some(class));
        }
        // Undefined, for NCCL's networks and for its configuration.
        for value in [-1, i32::MIN] {
            assert_eq!(traffic_class(value), None);
        }
        for value in [-2, 256, 262, i32::MAX] {
            assert_eq!(traffic_class(value), None);
        }
    }
}
