//! The simulated machine itself: everything that a fabric knows, and what can happen to it.
//!
//! [`State`] is one value behind one lock; all of this module is ordinary safe code on it, apart
//! from the copying of bytes. The C functions around it are in [`crate::ffi`], which turns handles
//! into the numbers that are used here.
//!
//! A queue pair gets ahead in *lanes* ([`lanes`]), each a small step such as carrying out the next
//! message or taking in an acknowledgement. A stepped fabric lets a seeded scheduler choose which
//! lane is next ([`schedule`]); a free-running one drives all lanes as far as they go whenever
//! something is posted or polled ([`run`]).

pub(crate) mod bell;
mod complete;
pub(crate) mod copy;
pub(crate) mod cq;
mod create;
mod deliver;
pub(crate) mod device;
pub(crate) mod events;
mod handle;
mod lanes;
mod mapping;
mod message;
pub(crate) mod modify;
mod network;
mod place;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod queue;
mod reads;
pub(crate) mod regions;
mod retry;
mod route;
pub(crate) mod run;
mod schedule;
pub(crate) mod slab;
pub(crate) mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use self::bell::Bell;
use self::copy::Span;
use self::cq::{Channel, Cq};
use self::device::Device;
use self::events::Pending;
use self::qp::Qp;
use self::slab::{ChannelId, ContextId, CqId, DeviceId, PdId, QpId, RegionId, Slab};
use self::timers::{Clock, Nanos, Timer, Timers};
use crate::faults::FaultTable;
use crate::random::Random;
use crate::trace::{Counters, TraceEntry, TraceEvent};

pub(crate) use self::create::NewQp;
pub(crate) use self::handle::Handle;
pub(crate) use self::regions::{Optional, Registration};

/// An errno.
pub(crate) type Errno = i32;

/// A device that is open.
pub(crate) struct Context {
    pub(crate) device: DeviceId,
    pub(crate) events: VecDeque<Pending>,
    pub(crate) bell: Bell,
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) context: ContextId,
}

/// Whether registered memory survives fork(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// The kernel copies pinned pages.
    Unneeded,
    /// It does not, and `ibv_fork_init` was not called.
    Disabled,
    /// `ibv_fork_init` was called in time.
    Enabled,
}

/// Everything that a fabric knows.
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) devices: Slab<DeviceId, Device>,
    pub(crate) contexts: Slab<ContextId, Context>,
    pub(crate) pds: Slab<PdId, Pd>,
    pub(crate) cqs: Slab<CqId, Cq>,
    pub(crate) channels: Slab<ChannelId, Channel>,
    pub(crate) qps: Slab<QpId, Qp>,
    /// Queue pairs by number.
    numbers: BTreeMap<u32, QpId>,
    last_number: u32,
    /// Rises whenever a message might find another way than the one before: cached routes of
    /// before are void.
    network: u64,
    timers: Timers,
    /// When the next timer of a free-running fabric is due. Read without the lock.
    attention: Arc<AtomicU64>,
    /// The thread that fires timers while everybody sleeps, if there is one.
    pub(crate) ticker: Option<Thread>,
    /// How many tokens of timers there were.
    tokens: u64,
    /// Queue pairs that may have something to do (free-running only).
    queued: VecDeque<QpId>,
    pub(crate) faults: FaultTable,
    pub(crate) counters: Counters,
    pub(crate) trace: Option<Vec<TraceEntry>>,
    pub(crate) fork: Fork,
    /// Whether `ibv_fork_init` has succeeded.
    is_fork_initialized: bool,
    /// Whether memory was registered.
    has_registered: bool,
    /// How many completions were held back so far.
    held_so_far: u64,
    /// The local and the remote memory of the message at hand. Kept for its capacity.
    local: Vec<Span>,
    remote: Vec<Span>,
    /// The regions that these are in.
    pins: Vec<(DeviceId, RegionId)>,
    /// The lanes that a stepped fabric can choose from. Kept for its capacity.
    choices: Vec<schedule::Choice>,
    /// By how much each queue pair is favoured at present, for schedules that are not fair.
    favour: schedule::Favour,
}

impl State {
    pub(crate) fn new(
        clock: Clock,
        seed: u64,
        devices: Slab<DeviceId, Device>,
        fork: Fork,
        traces: bool,
    ) -> Self {
        let mut random = Random::new(seed);
        Self {
            clock,
            // A number that no program can guess, but not one that looks like an address.
            last_number: 0x100 + (random.next_u32() & 0xffff),
            favour: schedule::Favour::new(random.next_u64()),
            random,
            devices,
            contexts: Slab::new(),
            pds: Slab::new(),
            cqs: Slab::new(),
            channels: Slab::new(),
            qps: Slab::new(),
            numbers: BTreeMap::new(),
            network: 1,
            timers: Timers::default(),
            attention: Arc::new(AtomicU64::new(Nanos::MAX)),
            ticker: None,
            tokens: 0,
            queued: VecDeque::new(),
            faults: FaultTable::default(),
            counters: Counters::default(),
            trace: traces.then(Vec::new),
            fork,
            is_fork_initialized: false,
            has_registered: false,
            held_so_far: 0,
            local: Vec::new(),
            remote: Vec::new(),
            pins: Vec::new(),
            choices: Vec::new(),
        }
    }

    /// Whether time is virtual, and things happen in steps.
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.clock, Clock::Virtual(_))
    }

    /// Notes in the record, if one is kept, that something happened.
    #[inline]
    pub(crate) fn record(&mut self, event: TraceEvent) {
        if let Some(trace) = &mut self.trace {
            let at = Duration::from_nanos(self.clock.now());
            trace.push(TraceEntry { at, event });
        }
    }

    pub(crate) fn set_timer(&mut self, at: Nanos, timer: Timer) {
        self.timers.set(at, timer);
        self.note_attention();
    }

    /// To be called when timers have changed.
    pub(crate) fn note_attention(&self) {
        let next = match self.is_stepped() {
            true => Nanos::MAX,
            false => self.timers.next().unwrap_or(Nanos::MAX),
        };
        self.attention.store(next, Ordering::Relaxed);
        if let Some(ticker) = &self.ticker {
            ticker.unpark();
        }
    }

    pub(crate) fn attention(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.attention)
    }

    /// A number for a timer, never 0 and never the same.
    fn new_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// To be called when a message might now find another way than before.
    pub(crate) fn network_changed(&mut self) {
        self.network += 1;
    }

    /// Notes that a queue pair may have something to do.
    #[inline]
    pub(crate) fn enqueue(&mut self, id: QpId) {
        if self.is_stepped() {
            // The scheduler looks at all of them.
            return;
        }
        let qp = &mut self.qps[id];
        if !qp.is_queued {
            qp.is_queued = true;
            self.queued.push_back(id);
        }
    }
}
