//! Everything that C holds a handle of.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibnet::raw::{RecvConnection, SendConnection};
use ibnet::{Region, Registrar};

use crate::fault::Fault;
use crate::handles::{CHUNK, Kind, MAX_COMMUNICATORS, Object, ObjectId, Table};
use crate::plugin::device::{Devices, Properties};
use crate::plugin::listening::Accepted;

/// Contexts that may exist at a time: one per NCCL communicator of this process.
const MAX_CONTEXTS: usize = 1 << 16;

/// Registrations that may exist at a time.
const MAX_REGIONS: usize = 1 << 24;

/// Chunks of a table of `MAX_COMMUNICATORS`.
const COMMUNICATORS: usize = MAX_COMMUNICATORS as usize / CHUNK;

/// Contexts.
pub(crate) static CONTEXTS: Table<Context, { MAX_CONTEXTS / CHUNK }> = Table::new();

/// `listenComm`.
pub(crate) static LISTENERS: Table<Listener, COMMUNICATORS> = Table::new();

/// `sendComm`.
pub(crate) static SENDERS: Table<Communicator<SendConnection>, COMMUNICATORS> = Table::new();

/// `recvComm`.
pub(crate) static RECEIVERS: Table<Communicator<RecvConnection>, COMMUNICATORS> = Table::new();

/// `mhandle`.
pub(crate) static REGIONS: Table<Registered, { MAX_REGIONS / CHUNK }> = Table::new();

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
    pub(crate) device: Arc<Properties>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listening::ByItself(accepted) = &self.listening {
            accepted.end();
        }
    }
}

/// When a listener accepts.
pub(crate) enum Listening {
    /// When it is asked to, by one thread at a time.
    WhenAsked(Box<Mutex<ibnet::Listener>>),
    /// At any time.
    ByItself(Arc<Accepted>),
}

impl Listening {
    pub(crate) fn when_asked(listener: ibnet::Listener) -> Result<Self, Fault> {
        Ok(Self::WhenAsked(Box::new(Mutex::new(listener))))
    }

    pub(crate) fn by_itself(listener: ibnet::Listener) -> Result<Self, Fault> {
        Ok(Self::ByItself(Arc::new(Accepted::by_itself(listener)?)))
    }
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
    /// Handles of those that are live.
    live: Mutex<HashSet<ObjectId>>,
}

// SAFETY: the connection is reached only through `connection`, whose callers promise to be one at a time, and
// through `close`, which owns it; so it moves between threads and is never shared.
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
    pub(crate) fn into_parts(self) -> (C, HashSet<ObjectId>) {
        let live = self.memory.live.into_inner();
        let live = live.unwrap_or_else(PoisonError::into_inner);
        (self.connection.into_inner(), live)
    }
}

impl Memory {
    /// The handles of what is registered.
    pub(crate) fn live(&self) -> MutexGuard<'_, HashSet<ObjectId>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registration, and the handle of the communicator that it was made with.
pub(crate) struct Registered {
    pub(crate) region: Region,
    pub(crate) communicator: usize,
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
