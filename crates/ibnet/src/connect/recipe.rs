//! How the queue pairs of a connection's paths are made: at its beginning, and again when one has failed.

use std::sync::Arc;

use ibnet_verbs::{Access, CompletionQueue};

use crate::config::Config;
use crate::connect::queue_pair::{Depths, NewQueuePair, post_receives};
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::wire::message::{Endpoint, PathPlan, Side};
use crate::wire::service::Service;

/// What an end wants of its queue pairs.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) depths: Depths,
    /// Completions of other queue pairs that a completion queue must have room for.
    pub(crate) reserve: u32,
    /// Whether the queues are filled with receives in advance. These have no buffers, and come back
    /// with this plus the number of their path.
    pub(crate) receives: Option<u64>,
    /// Queue pairs for flushing.
    pub(crate) loops: bool,
    /// Completions wake who waits for them.
    pub(crate) notify: bool,
    /// Ask the driver for its options of enhanced connection establishment first.
    pub(crate) offer_ece: bool,
}

impl Demand {
    /// Requests of a queue pair that can complete.
    pub(crate) fn completions(&self) -> u32 {
        self.depths.send + self.posted()
    }

    /// Receives of a queue pair that are posted in advance.
    pub(crate) fn posted(&self) -> u32 {
        self.receives.map_or(0, |_| self.depths.receive)
    }
}

/// What the queue pairs of a connection's paths are made of.
pub(crate) struct Recipe {
    pub(crate) plan: Vec<PathPlan>,
    pub(crate) side: Side,
    pub(crate) demand: Demand,
    /// What the packets of this end carry.
    pub(crate) service: Service,
}

impl Recipe {
    /// The own and the peer's device of path `number`.
    pub(crate) fn devices(&self, number: usize) -> (usize, usize) {
        self.plan[number].devices(self.side)
    }

    /// Receives that are posted on each path.
    pub(crate) fn receives(&self) -> u32 {
        self.demand.posted()
    }

    /// A queue pair for path `number`, in state RESET.
    pub(crate) fn create(
        &self,
        number: usize,
        device: &Device,
        cq: &CompletionQueue,
    ) -> Result<NewQueuePair, Error> {
        let plan = &self.plan[number];
        NewQueuePair::create(device, cq, plan, self.side, self.demand.depths)
    }

    pub(crate) fn to_init(
        &self,
        path: &NewQueuePair,
        device: &Device,
        local: &LocalPort,
    ) -> Result<(), Error> {
        path.to_init(device, local.pkey_index, Access::REMOTE_WRITE)
    }

    /// What else there is to do in state INIT: options are asked for, receives posted.
    pub(crate) fn fill(&self, path: &mut NewQueuePair, number: usize) -> Result<(), Error> {
        if self.demand.offer_ece {
            path.offer_ece();
        }
        if let Some(first) = self.demand.receives {
            let id = first + number as u64;
            let posted = post_receives(&path.queue_pair, id, self.receives());
            posted.map_err(|source| Error::Post {
                connection: format!("queue pair {:#x}", path.queue_pair.number()),
                source: Arc::new(source),
            })?;
        }
        Ok(())
    }

    /// Takes the options of the peer, if both ends are willing: the listener has offered its own, the connector
    /// has not.
    pub(crate) fn take_ece(&self, path: &mut NewQueuePair, end: &Endpoint, config: &Config) {
        let is_willing = config.ece && (!self.demand.offer_ece || path.has_ece());
        path.take_ece(end.ece.filter(|_| is_willing));
    }
}
