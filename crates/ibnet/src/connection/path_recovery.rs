//! What is known of the recovery of a path: data for [`recovery`](super::recovery), which has the steps.

use std::time::{Duration, Instant};

use crate::connect::queue_pair::NewQueuePair;
use crate::device::LocalPort;
use crate::wire::message::{DeviceOffer, Endpoint};

/// What has become of a path.
pub(super) struct Recovery {
    /// Which of the path's queue pairs is meant, from 0.
    pub(super) epoch: u32,
    pub(super) stage: Stage,
    /// Why it has failed, and when.
    pub(super) reason: String,
    pub(super) since: Instant,
    /// The peer has drained its end of this epoch, having taken so many parts.
    pub(super) peer_taken: Option<u64>,
    /// The peer's next queue pair.
    pub(super) offer: Option<Offer>,
    /// The peer has connected its queue pair of this epoch.
    pub(super) ready: Option<u32>,
    /// The own next queue pair.
    pub(super) attempt: Option<Attempt>,
    /// The last request that was seen to be finished, and when.
    pub(super) seen: (u32, Instant),
    /// Epochs in a row through which nothing has come.
    pub(super) fruitless: u32,
    /// When to try again, and how long to wait after the next failure.
    pub(super) next: Instant,
    pub(super) pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Live,
    /// The queue pair is in ERR; not all work requests have come back.
    Draining,
    /// All have; the peer's have not, as far as is known.
    Drained,
    /// A new queue pair is made.
    Rebuilding,
}

pub(super) struct Offer {
    pub(super) epoch: u32,
    pub(super) device: DeviceOffer,
    pub(super) endpoint: Endpoint,
}

pub(super) struct Attempt {
    pub(super) epoch: u32,
    pub(super) queue_pair: NewQueuePair,
    pub(super) local: LocalPort,
    pub(super) is_connected: bool,
}

/// The pauses between attempts to make a path live.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl Recovery {
    pub(super) fn new() -> Self {
        Self {
            epoch: 0,
            stage: Stage::Live,
            reason: String::new(),
            since: Instant::now(),
            peer_taken: None,
            offer: None,
            ready: None,
            attempt: None,
            seen: (0, Instant::now()),
            fruitless: 0,
            next: Instant::now(),
            pause: FIRST_PAUSE,
        }
    }

    pub(super) fn try_later(&mut self) {
        self.attempt = None;
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
