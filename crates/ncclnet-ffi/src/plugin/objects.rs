//! The tables of everything that C holds a handle of.

use std::collections::HashSet;
use std::sync::Arc;

use ibnet::{RecvConnection, Region, Registrar, SendConnection};

use crate::handles::{Kind, MAX_COMMUNICATORS, ObjectId, Regions, Table};
use crate::plugin::device::Properties;
use crate::plugin::lifecycle::Context;
use crate::plugin::listening::Listening;

/// Contexts that may exist at a time: one per NCCL communicator of this process.
const MAX_CONTEXTS: u32 = 1 << 16;

/// Contexts. Several threads use one at the same time, so all of it is the shared part.
pub(super) static CONTEXTS: Table<(), Context> = Table::new(Kind::Context, MAX_CONTEXTS);

/// `listenComm`, and the device that it listens on.
pub(super) static LISTENERS: Table<Listening, Arc<Properties>> =
    Table::new(Kind::Listener, MAX_COMMUNICATORS);

/// `sendComm`.
pub(super) static SENDERS: Table<SendConnection, Memory> =
    Table::new(Kind::Sender, MAX_COMMUNICATORS);

/// `recvComm`.
pub(super) static RECEIVERS: Table<RecvConnection, Memory> =
    Table::new(Kind::Receiver, MAX_COMMUNICATORS);

/// `mhandle`.
pub(super) static REGIONS: Regions<Region> = Regions::new();

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
