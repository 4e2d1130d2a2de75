//! The tables of everything that C holds a handle of.

use std::collections::HashSet;
use std::sync::Arc;

use ibnet::{RecvConnection, Region, Registrar, SendConnection};

use crate::handles::{CHUNK, Kind, MAX_COMMUNICATORS, Object, ObjectId, Regions, Table};
use crate::plugin::device::Properties;
use crate::plugin::lifecycle::Context;
use crate::plugin::listening::Listening;

/// Contexts that may exist at a time: one per NCCL communicator of this process.
const MAX_CONTEXTS: usize = 1 << 16;

/// Registrations that may exist at a time.
const MAX_REGIONS: usize = 1 << 24;

/// Chunks of a table of `MAX_COMMUNICATORS`.
const COMMUNICATORS: usize = MAX_COMMUNICATORS as usize / CHUNK;

/// Contexts. Several threads use one at the same time, so all of it is the shared part.
pub(super) static CONTEXTS: Table<(), Context, { MAX_CONTEXTS / CHUNK }> = Table::new();

/// `listenComm`, and the device that it listens on.
pub(super) static LISTENERS: Table<Listening, Arc<Properties>, COMMUNICATORS> = Table::new();

/// `sendComm`.
pub(super) static SENDERS: Table<SendConnection, Memory, COMMUNICATORS> = Table::new();

/// `recvComm`.
pub(super) static RECEIVERS: Table<RecvConnection, Memory, COMMUNICATORS> = Table::new();

/// The part of a context that one call at a time may use: there is none.
impl Object for () {
    const KIND: Kind = Kind::Context;
}

impl Object for Listening {
    const KIND: Kind = Kind::Listener;
}

impl Object for SendConnection {
    const KIND: Kind = Kind::Sender;
}

impl Object for RecvConnection {
    const KIND: Kind = Kind::Receiver;
}

/// `mhandle`.
pub(super) static REGIONS: Regions<Region, { MAX_REGIONS / CHUNK }> = Regions::new();

/// What other threads do with a communicator while its data path is busy: its memory.
pub(super) struct Memory {
    pub(super) registrar: Registrar,
    /// The communicator's registrations, as long as they are live.
    pub(super) regions: HashSet<ObjectId>,
}

impl Memory {
    pub(super) fn new(registrar: Registrar) -> Self {
        Self {
            registrar,
            regions: HashSet::new(),
        }
    }
}

/// Communicators that are open.
pub(super) fn open_communicators() -> usize {
    SENDERS.len() + RECEIVERS.len() + LISTENERS.len()
}
