//! What a conversation has made: all that a live connection consists of.

use std::sync::Arc;

use ibnet_verbs::CompletionQueue;

use super::control::Channel;
use super::names::Names;
use super::queue_pair::NewQueuePair;
use super::recipe::Recipe;
use super::shared::Shared;
use crate::device::nic::Nic;
use crate::memory::area::Area;
use crate::memory::cts_ring::{CtsRing, CtsStaging};
use crate::wire::frame::Decoder;
use crate::wire::message::RemoteArea;

/// The own queue pairs. The order of the fields is the order of teardown.
pub(crate) struct QueuePairs {
    pub(crate) paths: Vec<NewQueuePair>,
    /// One for each of the own devices.
    pub(crate) cqs: Vec<CompletionQueue>,
    /// Of a receiver, one for each of the own devices, which leads back to it: for flushing.
    pub(crate) loops: Vec<NewQueuePair>,
    /// How they are made.
    pub(crate) recipe: Recipe,
}

/// What both ends have.
pub(crate) struct Established {
    pub(crate) queue_pairs: QueuePairs,
    pub(crate) channel: Channel,
    pub(crate) decoder: Decoder,
    pub(crate) names: Names,
    pub(crate) nic: Arc<Nic>,
    pub(crate) shared: Arc<Shared>,
}

/// What a sending end is made of.
pub(crate) struct NewSender {
    pub(crate) common: Established,
    pub(crate) ring: CtsRing,
    pub(crate) sizes: Option<Area>,
    pub(crate) size_table: RemoteArea,
    pub(crate) first_entry: u64,
    pub(crate) largest_write: u32,
}

/// What a receiving end is made of.
pub(crate) struct NewReceiver {
    pub(crate) common: Established,
    pub(crate) staging: CtsStaging,
    pub(crate) sizes: Area,
    pub(crate) ring: RemoteArea,
    pub(crate) first_entry: u64,
    pub(crate) cts_with_immediate: bool,
}
