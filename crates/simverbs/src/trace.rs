//! What a fabric did: a record of each thing that happened, and counts of them.

use std::fmt;
use std::time::Duration;

use ibnet_verbs::{EventType, QueuePairState, WcStatus};

/// Why a message did not reach its queue pair. The sender is not told: it sees only that no
/// acknowledgement comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The own device or the peer's was removed.
    DeviceRemoved,
    /// The own port or the peer's is down.
    PortDown,
    /// A fault cut the link of the own port or the peer's.
    LinkCut,
    /// The own address is no longer in the own port's table at the index that the queue pair uses.
    SourceAddressGone,
    /// No port of this network has the peer's address.
    NoSuchAddress,
    /// The peer's port has no queue pair of that number.
    NoSuchQueuePair,
    /// The peer's queue pair is not in a state in which it receives.
    NotReceiving,
    /// The peer's queue pair is connected to another queue pair or address.
    PeerMismatch,
    /// The two are in different partitions, or both only limited members of one.
    PartitionMismatch,
    /// The peer expects another packet sequence number.
    SequenceMismatch,
    /// A packet is longer than the MTU of the peer's port.
    TooLong,
}

impl LossReason {
    /// How many there are.
    const COUNT: usize = Self::TooLong as usize + 1;
}

/// How often things happened since the fabric was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that were carried out by the peer: writes, sends, and read requests.
    pub messages: u64,
    /// Bytes that were placed.
    pub bytes: u64,
    /// Completions that were put into completion queues, flushed ones included.
    pub completions: u64,
    /// Completions that were flushed.
    pub flushed: u64,
    /// Completions that found their completion queue full, and were lost.
    pub overruns: u64,
    /// Times that a queue pair sent again because no acknowledgement came.
    pub retries: u64,
    /// Times that a queue pair was told that its peer has no receive posted.
    pub not_ready: u64,
    /// Messages that the peer refused.
    pub refused: u64,
    /// Asynchronous events that were handed to open devices.
    pub events: u64,
    lost: [u64; LossReason::COUNT],
}

impl Counters {
    /// Messages and acknowledgements that were lost for this reason.
    pub const fn lost(&self, reason: LossReason) -> u64 {
        self.lost[reason as usize]
    }

    /// Messages and acknowledgements that were lost for any reason.
    pub fn lost_in_all(&self) -> u64 {
        self.lost.iter().sum()
    }

    pub(crate) fn count_loss(&mut self, reason: LossReason) {
        self.lost[reason as usize] += 1;
    }
}

/// One thing that happened. Queue pairs are named by their numbers, which are unique in a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// The peer carried out a request; its acknowledgement is on the way.
    Delivered {
        /// The sender.
        qp: u32,
        /// The request.
        wr_id: u64,
        /// How long the message is.
        bytes: u64,
    },
    /// A part of a message was placed in memory, and more is to come.
    Placed {
        /// The sender, or the reader.
        qp: u32,
        /// The request.
        wr_id: u64,
        /// How many lines are still to be placed, at most.
        left: u64,
    },
    /// An acknowledgement arrived.
    Acknowledged {
        /// The sender.
        qp: u32,
        /// How many requests since the last reset it covers.
        requests: u64,
    },
    /// A completion was put into a completion queue.
    Completed {
        /// The queue pair.
        qp: u32,
        /// The request.
        wr_id: u64,
        /// How it ended.
        status: WcStatus,
    },
    /// A message or an acknowledgement was lost.
    Lost {
        /// The sender of the message.
        qp: u32,
        /// Why.
        reason: LossReason,
    },
    /// The sender tries again.
    Retried {
        /// The sender.
        qp: u32,
    },
    /// The peer had no receive posted.
    NotReady {
        /// The sender.
        qp: u32,
    },
    /// The peer refused a message.
    Refused {
        /// The sender.
        qp: u32,
        /// How its request will end.
        status: WcStatus,
    },
    /// A queue pair entered a state.
    Entered {
        /// The queue pair.
        qp: u32,
        /// The state.
        state: QueuePairState,
    },
    /// An asynchronous event was handed to an open device.
    Event {
        /// What happened.
        kind: EventType,
    },
}

/// An entry of a fabric's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// When it happened, since the fabric was made.
    pub at: Duration,
    /// What happened.
    pub event: TraceEvent,
}

impl fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: ", self.at)?;
        match self.event {
            TraceEvent::Delivered { qp, wr_id, bytes } => {
                write!(f, "{qp:#x} delivered {wr_id:#x} ({bytes} bytes)")
            }
            TraceEvent::Placed { qp, wr_id, left } => {
                write!(f, "{qp:#x} placed a part of {wr_id:#x} ({left} lines left)")
            }
            TraceEvent::Acknowledged { qp, requests } => {
                write!(f, "{qp:#x} was acknowledged {requests} requests")
            }
            TraceEvent::Completed { qp, wr_id, status } => {
                write!(f, "{qp:#x} completed {wr_id:#x}: {status}")
            }
            TraceEvent::Lost { qp, reason } => write!(f, "{qp:#x} lost a packet: {reason:?}"),
            TraceEvent::Retried { qp } => write!(f, "{qp:#x} tries again"),
            TraceEvent::NotReady { qp } => write!(f, "{qp:#x} found its peer not ready"),
            TraceEvent::Refused { qp, status } => write!(f, "{qp:#x} was refused: {status}"),
            TraceEvent::Entered { qp, state } => write!(f, "{qp:#x} entered {state}"),
            TraceEvent::Event { kind } => write!(f, "event {kind}"),
        }
    }
}
