//! Faults on demand: what can be made to go wrong, where, and when.
//!
//! Each fault counts how often it struck. A test that arms one should assert that count: otherwise
//! it may pass because the fault never happened.

mod armed;
mod hooks;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ibnet_verbs::{QueuePair, QueuePairState, WcStatus};

pub(crate) use armed::{Action, FaultTable, Kind, Place};
pub(crate) use hooks::WorkFault;

use crate::shared::Shared;

/// What a fault applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything in the fabric.
    Any,
    /// One device, by name.
    Device(String),
    /// One queue pair, by number. Numbers are unique in a fabric, and not beyond it.
    QueuePair(u32),
}

impl From<&str> for Target {
    /// The device of that name.
    fn from(device: &str) -> Self {
        Self::Device(device.to_owned())
    }
}

impl From<&QueuePair> for Target {
    fn from(qp: &QueuePair) -> Self {
        Self::QueuePair(qp.number())
    }
}

/// At which of the occasions that its target offers a fault strikes. Occasions are counted from 1,
/// from when the fault is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, at this occasion.
    Nth(u64),
    /// At this occasion and all later ones.
    From(u64),
}

impl When {
    /// At every occasion.
    pub const ALWAYS: Self = Self::From(1);

    /// # Panics
    ///
    /// If it names an occasion 0, which there is not.
    fn check(self) {
        let (Self::Nth(first) | Self::From(first)) = self;
        assert!(first > 0, "{self:?}: occasions are counted from 1");
    }

    const fn strikes_at(self, occasion: u64) -> bool {
        match self {
            Self::Nth(nth) => occasion == nth,
            Self::From(first) => occasion >= first,
        }
    }
}

/// A verb that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// `ibv_get_device_list`, which is about no device: only with [`Target::Any`].
    GetDeviceList,
    /// `ibv_open_device`.
    OpenDevice,
    /// `ibv_query_device`.
    QueryDevice,
    /// `ibv_query_port` and the extended `query_port`.
    QueryPort,
    /// `ibv_query_gid`, `_ibv_query_gid_ex` and `_ibv_query_gid_table`.
    QueryGid,
    /// `ibv_alloc_pd`.
    AllocatePd,
    /// `ibv_reg_mr`, `ibv_reg_mr_iova2` and `ibv_reg_dmabuf_mr`.
    RegisterMemory,
    /// `ibv_dereg_mr`.
    DeregisterMemory,
    /// `ibv_create_comp_channel`.
    CreateChannel,
    /// `ibv_create_cq`.
    CreateCq,
    /// `ibv_destroy_cq`.
    DestroyCq,
    /// `ibv_create_qp`.
    CreateQp,
    /// `ibv_modify_qp`, whatever it is to do.
    ModifyQp,
    /// `ibv_modify_qp` to this state.
    ModifyQpTo(QueuePairState),
    /// `ibv_query_qp`.
    QueryQp,
    /// `ibv_destroy_qp`.
    DestroyQp,
    /// `ibv_query_ece`.
    QueryEce,
    /// `ibv_set_ece`.
    SetEce,
    /// `ibv_post_send`. Occasions are requests, so that a chain can be accepted in part.
    PostSend,
    /// `ibv_post_recv`. Occasions are requests.
    PostRecv,
    /// `ibv_poll_cq`: -1 with this errno, and nothing is taken out.
    PollCq,
    /// `ibv_req_notify_cq`.
    RequestNotification,
}

impl Verb {
    /// Whether the call names a queue pair: only then a fault can wait for one of it.
    const fn is_about_qp(self) -> bool {
        matches!(
            self,
            Self::ModifyQp
                | Self::ModifyQpTo(_)
                | Self::QueryQp
                | Self::DestroyQp
                | Self::QueryEce
                | Self::SetEce
                | Self::PostSend
                | Self::PostRecv
        )
    }
}

/// How far a work request comes before an injected error ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was sent: the peer's memory is as before, and no receive was consumed.
    NotSent,
    /// The peer carried it out, but the acknowledgement was lost: this is what makes recovery
    /// hard.
    CarriedOut,
}

/// The faults of a fabric. Made by [`Fabric::faults`](crate::Fabric::faults).
///
/// Faults are armed and disarmed at any time, from any thread. Dropping a [`Fault`] leaves it
/// armed.
///
/// # Panics
///
/// What could never strike is a mistake in the test, and all methods panic at it: a target that the
/// fabric does not have (a device of no such name, a queue pair of no such number at present), or
/// that has no such occasions, and an occasion 0. What else is refused is told with the method.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

impl Faults {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// A verb fails with `errno`, in its own style, and does nothing.
    ///
    /// # Panics
    ///
    /// If `errno` is not greater than 0, or the target is a queue pair and the verb not about one.
    pub fn fail_call(&self, verb: Verb, on: impl Into<Target>, when: When, errno: i32) -> Fault {
        assert!(errno > 0, "{errno} is no errno: they are greater than 0");
        let on = on.into();
        assert!(
            verb != Verb::GetDeviceList || on == Target::Any,
            "{verb:?} is about no device: it waits for `Target::Any`"
        );
        assert!(
            verb.is_about_qp() || !matches!(on, Target::QueuePair(_)),
            "{verb:?} is about no queue pair: it waits for a device or `Target::Any`"
        );
        self.arm(on, when, Action::Call { verb, errno })
    }

    /// A send request ends with `status`. The queue pair goes to ERR, as after every failed
    /// request; the peer is not told. Occasions are requests that come up to be sent.
    ///
    /// # Panics
    ///
    /// If the status is that of success.
    pub fn fail_work(
        &self,
        on: impl Into<Target>,
        when: When,
        status: WcStatus,
        stage: Stage,
    ) -> Fault {
        assert!(
            status != WcStatus::SUCCESS,
            "a request that fails has no {status}"
        );
        self.arm(on, when, Action::Work { status, stage })
    }

    /// A send request is never sent and never ends by itself, and so hold up all after it. Moving
    /// the queue pair to ERR flushes them. Occasions are requests that come up to be sent.
    pub fn hang_work(&self, on: impl Into<Target>, when: When) -> Fault {
        self.arm(on, when, Action::Hang)
    }

    /// One bit of the remote key of a request is flipped on the way. Occasions are requests with a
    /// remote key and at least one byte that come up to be sent.
    pub fn flip_rkey(&self, on: impl Into<Target>, when: When) -> Fault {
        self.arm(on, when, Action::FlipRkey)
    }

    /// Completions become visible only a random time after they happened. Those of one queue stay
    /// in order; those of different queue pairs overtake each other. Occasions are completions, and
    /// it strikes at all of them.
    ///
    /// # Panics
    ///
    /// If the range is empty, or holds nothing but 0.
    pub fn delay_completions(
        &self,
        on: impl Into<Target>,
        delay: RangeInclusive<Duration>,
    ) -> Fault {
        assert!(
            !delay.is_empty() && !delay.end().is_zero(),
            "{delay:?} is no delay: the range goes from the shortest to the longest"
        );
        let nanos = |duration: &Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let action = Action::DelayCompletions {
            shortest: nanos(delay.start()),
            longest: nanos(delay.end()),
        };
        self.arm(on, When::ALWAYS, action)
    }

    /// The 64-byte lines of memory that a message lies in are placed in random order; in a stepped
    /// fabric over several steps, so that a program can look in between. What lies in one line
    /// (between two addresses that are multiples of 64) always becomes visible at once, as on
    /// hardware.
    ///
    /// Occasions are messages of more than one byte, whose lines may be two. One that happens to lie
    /// in a single line cannot be torn, and is not counted. So when faults strike and what happens
    /// next does not depend on where the memory is; only what of a message is visible before its
    /// completion does, where a buffer does not start at a line.
    ///
    /// Name the queue pair of the sender, or of the reader.
    pub fn tear_messages(&self, on: impl Into<Target>, when: When) -> Fault {
        self.arm(on, when, Action::Tear)
    }

    /// Polling gives fewer completions than there are and fit, sometimes none. Occasions are polls
    /// that could have given one; of those that could have given only one, half are left in peace,
    /// so that everything comes in the end.
    ///
    /// # Panics
    ///
    /// If the target is a queue pair: a completion queue may serve several.
    pub fn partial_polls(&self, on: impl Into<Target>, when: When) -> Fault {
        let on = on.into();
        assert!(
            !matches!(on, Target::QueuePair(_)),
            "polls are about no queue pair: they wait for a device or `Target::Any`"
        );
        self.arm(on, when, Action::PartialPolls)
    }

    /// A completion finds its queue full: the queue fails with `IBV_EVENT_CQ_ERR`, and the queue
    /// pair with `IBV_EVENT_QP_FATAL`. Occasions are completions.
    pub fn overrun_cq(&self, on: impl Into<Target>, when: When) -> Fault {
        self.arm(on, when, Action::OverrunCq)
    }

    /// A completion channel is not told of a completion that it was to be told of. Occasions are
    /// notifications.
    pub fn lose_notifications(&self, on: impl Into<Target>, when: When) -> Fault {
        self.arm(on, when, Action::LoseNotifications)
    }

    /// The link of a port loses everything for a while, without anybody being told: messages and
    /// acknowledgements alike. It counts what it lost. Cutting a link again replaces the cut. What a
    /// port sends to itself does not use the link.
    ///
    /// # Panics
    ///
    /// If there is no such port, or `duration` is 0.
    pub fn cut_link(&self, device: &str, port: u8, duration: Duration) -> Fault {
        assert!(
            !duration.is_zero(),
            "a link that is cut for no time loses nothing"
        );
        let mut state = self.shared.lock();
        let device = state.device_named(device);
        let (id, lost) = state.cut_link(device, port, duration);
        Fault {
            id,
            struck: lost,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Everybody who has the device open gets this many asynchronous events at once: ports going
    /// up and down, changes of addresses and subnet managers. Nothing of that is really so. It
    /// counts the events.
    ///
    /// # Panics
    ///
    /// If it is to be no event at all.
    pub fn event_storm(&self, device: &str, events: u64) -> Fault {
        assert!(events > 0, "a storm of no events");
        let mut state = self.shared.lock();
        let device = state.device_named(device);
        let raised = state.storm(device, events);
        Fault {
            id: 0,
            struck: Arc::new(AtomicU64::new(raised)),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Disarms everything that is armed, and restores all links.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.faults.clear();
        state.restore_links(|_| true);
        drop(state);
        self.shared.progress();
    }

    fn arm(&self, on: impl Into<Target>, when: When, action: Action) -> Fault {
        when.check();
        let mut state = self.shared.lock();
        let place = match on.into() {
            Target::Any => Place::Any,
            Target::Device(name) => Place::Device(state.device_named(&name)),
            Target::QueuePair(number) => {
                assert!(
                    state.has_qp(number),
                    "the fabric has no queue pair {number:#x}"
                );
                Place::Qp(number)
            }
        };
        let (id, struck) = state.faults.arm(place, when, action);
        drop(state);
        Fault {
            id,
            struck,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

/// A fault that was armed. Dropping it leaves it armed.
///
/// It keeps its fabric, as a clone of [`Fabric`](crate::Fabric) does.
#[must_use = "a test should assert that the fault struck"]
pub struct Fault {
    /// 0 if there is nothing to disarm.
    id: u64,
    struck: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Fault {
    /// How often it struck.
    pub fn struck(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }

    /// Ends it. What it has done stays done.
    pub fn disarm(&self) {
        let mut state = self.shared.lock();
        state.faults.disarm(self.id);
        state.restore_links(|cut| cut.token == self.id);
        drop(state);
        self.shared.progress();
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("struck", &self.struck())
            .finish_non_exhaustive()
    }
}
