//! [`FaultTable`]: the faults that are armed, and when each strikes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ibnet_verbs::WcStatus;

use super::{Stage, Verb, When};
use crate::engine::slab::DeviceId;
use crate::engine::timers::Nanos;

/// What a fault does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Call { verb: Verb, errno: i32 },
    Work { status: WcStatus, stage: Stage },
    Hang,
    FlipRkey,
    DelayCompletions { shortest: Nanos, longest: Nanos },
    Tear,
    PartialPolls,
    OverrunCq,
    LoseNotifications,
}

/// An [`Action`] without what it is to do: the occasions that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Call,
    Work,
    Hang,
    FlipRkey,
    DelayCompletions,
    Tear,
    PartialPolls,
    OverrunCq,
    LoseNotifications,
}

impl Action {
    const fn kind(self) -> Kind {
        match self {
            Self::Call { .. } => Kind::Call,
            Self::Work { .. } => Kind::Work,
            Self::Hang => Kind::Hang,
            Self::FlipRkey => Kind::FlipRkey,
            Self::DelayCompletions { .. } => Kind::DelayCompletions,
            Self::Tear => Kind::Tear,
            Self::PartialPolls => Kind::PartialPolls,
            Self::OverrunCq => Kind::OverrunCq,
            Self::LoseNotifications => Kind::LoseNotifications,
        }
    }
}

/// Where a fault waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Any,
    Device(DeviceId),
    Qp(u32),
}

/// Where an occasion arises.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scene {
    pub(crate) device: Option<DeviceId>,
    pub(crate) qp: Option<u32>,
}

#[derive(Debug)]
struct Armed {
    id: u64,
    place: Place,
    when: When,
    occasions: u64,
    struck: Arc<AtomicU64>,
    action: Action,
}

/// All armed faults of a fabric.
#[derive(Debug, Default)]
pub(crate) struct FaultTable {
    armed: Vec<Armed>,
    /// One bit per [`Kind`] of which a fault is armed, for the hot path.
    kinds: u32,
    /// Whether polls are to be looked at. Read without the fabric's lock.
    watches_polls: Arc<AtomicBool>,
    ids: u64,
}

impl FaultTable {
    #[inline]
    pub(crate) fn is_armed(&self, kind: Kind) -> bool {
        self.kinds & 1 << kind as u8 != 0
    }

    #[inline]
    pub(crate) fn is_any_armed(&self) -> bool {
        self.kinds != 0
    }

    /// A number for a fault, never 0 and never the same.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn arm(
        &mut self,
        place: Place,
        when: When,
        action: Action,
    ) -> (u64, Arc<AtomicU64>) {
        let id = self.new_id();
        let struck = Arc::new(AtomicU64::new(0));
        self.armed.push(Armed {
            id,
            place,
            when,
            occasions: 0,
            struck: Arc::clone(&struck),
            action,
        });
        self.note_kinds();
        (id, struck)
    }

    pub(crate) fn disarm(&mut self, id: u64) {
        self.armed.retain(|fault| fault.id != id);
        self.note_kinds();
    }

    pub(crate) fn clear(&mut self) {
        self.armed.clear();
        self.note_kinds();
    }

    fn note_kinds(&mut self) {
        let bits = self
            .armed
            .iter()
            .map(|fault| 1 << fault.action.kind() as u8);
        self.kinds = bits.fold(0, |kinds, bit: u32| kinds | bit);
        let mut actions = self.armed.iter().map(|fault| fault.action);
        let is_poll = |action| {
            matches!(
                action,
                Action::Call {
                    verb: Verb::PollCq,
                    ..
                }
            )
        };
        self.watches_polls
            .store(actions.any(is_poll), Ordering::Relaxed);
    }

    /// Whether a fault waits for polls, now and later.
    pub(crate) fn watches_polls(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.watches_polls)
    }

    /// An occasion for faults of one kind that `concerns` admits. All of them count it; the first
    /// that it is time for strikes.
    pub(crate) fn strike(
        &mut self,
        kind: Kind,
        scene: Scene,
        concerns: impl Fn(&Action) -> bool,
    ) -> Option<Action> {
        self.strike_if(kind, scene, concerns, true)
    }

    /// The same, but unless it `counts` it is not told that it struck.
    pub(crate) fn strike_if(
        &mut self,
        kind: Kind,
        scene: Scene,
        concerns: impl Fn(&Action) -> bool,
        counts: bool,
    ) -> Option<Action> {
        let mut striking = None;
        for fault in &mut self.armed {
            let is_here = match fault.place {
                Place::Any => true,
                Place::Device(device) => scene.device == Some(device),
                Place::Qp(number) => scene.qp == Some(number),
            };
            if fault.action.kind() != kind || !is_here || !concerns(&fault.action) {
                continue;
            }
            fault.occasions += 1;
            if fault.when.strikes_at(fault.occasions) && striking.is_none() {
                fault.struck.fetch_add(counts.into(), Ordering::Relaxed);
                striking = Some(fault.action);
            }
        }
        striking
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::engine::slab::Key;
    use super::*;

    fn scene(device: usize, qp: u32) -> Scene {
        Scene {
            device: Some(DeviceId::new(device)),
            qp: Some(qp),
        }
    }

    #[test]
    fn a_fault_strikes_in_its_place_at_its_time() {
        let mut table = FaultTable::default();
        let (id, struck) = table.arm(Place::Qp(7), When::Nth(2), Action::Hang);
        let mut strikes = |scene| table.strike(Kind::Hang, scene, |_| true).is_some();
        assert!(!strikes(scene(0, 7)));
        assert!(!strikes(scene(0, 8)));
        assert!(strikes(scene(1, 7)));
        assert!(!strikes(scene(0, 7)));
        assert_eq!(struck.load(Ordering::Relaxed), 1);
        assert!(table.is_armed(Kind::Hang) && !table.is_armed(Kind::Tear));
        table.disarm(id);
        assert!(!table.is_any_armed());
    }

    #[test]
    fn all_count_an_occasion_but_one_strikes() {
        let mut table = FaultTable::default();
        let (_, first) = table.arm(Place::Any, When::Nth(1), Action::Tear);
        let device = Place::Device(DeviceId::new(3));
        let (_, second) = table.arm(device, When::From(2), Action::Tear);
        for _ in 0..3 {
            table.strike(Kind::Tear, scene(3, 1), |_| true);
        }
        let counts = [first, second].map(|struck| struck.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 2]);
    }
}
