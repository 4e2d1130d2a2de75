//! Everything that C holds a handle of.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibnet::raw::{RecvConnection, SendConnection};
use ibnet::{Region, Registrar};

use crate::accepting::Accepting;
use crate::device::{Device, Devices};
use crate::fault::Fault;
use crate::handles::{CHUNK, Handle, Kind, MAX_COMMUNICATORS, Object, Table};

/// Contexts: one per NCCL communicator of this process.
pub(crate) static CONTEXTS: Table<Context, { (1 << 16) / CHUNK }> = Table::new();

/// `listenComm`.
pub(crate) static LISTENERS: Table<Listener, { MAX_COMMUNICATORS / CHUNK }> = Table::new();

/// `sendComm`.
pub(crate) static SENDERS: Table<Communicator<SendConnection>, { MAX_COMMUNICATORS / CHUNK }> =
    Table::new();

/// `recvComm`.
pub(crate) static RECEIVERS: Table<Communicator<RecvConnection>, { MAX_COMMUNICATORS / CHUNK }> =
    Table::new();

/// `mhandle`.
pub(crate) static REGIONS: Table<Registered, { (1 << 20) / CHUNK }> = Table::new();

/// What `init` of API version 11 and later gives to each communicator.
#[derive(Clone)]
pub(crate) struct Context {
    /// The devices, kept open by this.
    pub(crate) devices: Arc<Devices>,
    /// Traffic class of the communicator's connections, if it asks for one.
    pub(crate) traffic_class: Option<u8>,
}

/// A listener, and the device that it listens on.
pub(crate) struct Listener {
    pub(crate) listening: Listening,
    pub(crate) device: Arc<Device>,
}

/// When a listener accepts.
pub(crate) enum Listening {
    /// When it is asked to, by one thread at a time.
    WhenAsked(Box<Mutex<ibnet::Listener>>),
    /// At any time (API versions 2 to 4).
    ByItself(Accepting),
}

/// A connection, and the memory that is registered with it. One thread at a time sends or receives; others
/// register memory meanwhile.
pub(crate) struct Communicator<C> {
    connection: UnsafeCell<C>,
    pub(crate) memory: Memory,
}

/// What memory of a communicator is registered with, and what is registered.
pub(crate) struct Memory {
    pub(crate) registrar: Registrar,
    live: Mutex<HashSet<Handle>>,
}

// SAFETY: the connection is reached only through `connection`, whose callers promise to be one at a time, and
// through `into_parts`, which owns it; so it moves between threads and is never shared.
unsafe impl<C: Send> Sync for Communicator<C> {}

impl<C> Communicator<C> {
    pub(crate) fn new(connection: C, registrar: Registrar) -> Self {
        Self {
            connection: UnsafeCell::new(connection),
            memory: Memory {
                registrar,
                live: Mutex::default(),
            },
        }
    }

    /// The connection.
    ///
    /// # Safety
    /// No other call has it: NCCL uses a communicator's data path from one thread at a time, and not from
    /// within a call (that is, from the logger or the profiler).
    #[inline]
    #[allow(
        clippy::mut_from_ref,
        reason = "exclusive by the contract of this function"
    )]
    pub(crate) unsafe fn connection(&self) -> &mut C {
        // SAFETY: the only reference, as this function requires.
        unsafe { &mut *self.connection.get() }
    }

    /// The connection by itself, and the handles of what is still registered.
    pub(crate) fn into_parts(self) -> (C, HashSet<Handle>) {
        let live = self.memory.live.into_inner();
        let live = live.unwrap_or_else(PoisonError::into_inner);
        (self.connection.into_inner(), live)
    }
}

impl Memory {
    /// The handles of what is registered.
    pub(crate) fn live(&self) -> MutexGuard<'_, HashSet<Handle>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registration, and the handle of the communicator that it was made with.
pub(crate) struct Registered {
    pub(crate) region: Region,
    pub(crate) communicator: usize,
}

/// The registration of a buffer of `size` bytes that goes through a communicator. None is needed for no bytes, and
/// one that comes with them is not looked at: NCCL passes whichever it has.
///
/// # Safety
/// The memory is not deregistered for as long as the reference lives.
#[inline(always)]
pub(crate) unsafe fn region_for<'a>(
    size: usize,
    region: *mut c_void,
    communicator: *mut c_void,
) -> Result<Option<&'a Region>, Fault> {
    if size == 0 {
        return Ok(None);
    }
    // SAFETY: handed on to the caller.
    let registered = unsafe { REGIONS.get(Handle::of(Kind::Region, region)?) }?;
    if registered.communicator != communicator.addr() {
        return Err(Fault::internal(
            "the memory handle was registered with another communicator",
        ));
    }
    Ok(Some(&registered.region))
}

impl Object for Context {
    const KIND: Kind = Kind::Context;
}

impl Object for Listener {
    const KIND: Kind = Kind::Listener;
}

impl Object for Communicator<SendConnection> {
    const KIND: Kind = Kind::Sender;
}

impl Object for Communicator<RecvConnection> {
    const KIND: Kind = Kind::Receiver;
}

impl Object for Registered {
    const KIND: Kind = Kind::Region;
}

/// Communicators that are open.
pub(crate) fn open_communicators() -> usize {
    SENDERS.len() + RECEIVERS.len() + LISTENERS.len()
}
