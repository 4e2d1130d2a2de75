//! [`Fabric`]: the handle of a test on its machine.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ibnet_verbs::Library;

use crate::builder::FabricBuilder;
use crate::faults::Faults;
use crate::hca::Hca;
use crate::shared::Shared;
use crate::table::{self, OptionalFunction};
use crate::trace::{Counters, TraceEntry};

/// All simulated adapters of a process, or of one test of it, and the network between them.
///
/// Clones are cheap and mean the same fabric. It lives as long as anything that belongs to it: a
/// clone, a [`Faults`], [`Fault`](crate::Fault), [`Hca`] or [`HcaPort`](crate::HcaPort), a listed
/// device or an open one, and an object whose destruction has failed. (A [`Library`] does not
/// keep it.) Fabrics never see each other.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
    seed: u64,
    missing: BTreeSet<OptionalFunction>,
}

/// What was made on a fabric and not yet destroyed. For tests that nothing is left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveObjects {
    /// Lists of devices that were not freed. Of the crate `verbs`, every `Device` keeps the list that
    /// it is from, and everything that was opened its `Device`.
    pub device_lists: usize,
    /// Open devices.
    pub contexts: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory regions.
    pub mrs: usize,
    /// Completion channels.
    pub channels: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
}

impl LiveObjects {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Fabric {
    /// Starts the description of a fabric. Without further words it is free-running and has no
    /// devices.
    pub fn builder() -> FabricBuilder {
        FabricBuilder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>, seed: u64, missing: BTreeSet<OptionalFunction>) -> Self {
        Self {
            shared,
            seed,
            missing,
        }
    }

    /// The fabric as a library of verbs functions: this is what the code under test is given.
    ///
    /// It can be called any number of times. A library that outlives the fabric lists no devices.
    pub fn library(&self) -> Library {
        let mut functions = table::functions(self.shared.slot.trampolines());
        for &function in &self.missing {
            table::remove(&mut functions, function);
        }
        // SAFETY: the functions behave as those of libibverbs and may be called from any thread;
        // objects stay valid until they are destroyed, and contexts are laid out as demanded (see
        // `ffi`). The same goes for those of libmlx5.
        unsafe { Library::from_functions(functions).with_mlx5(table::MLX5) }
    }

    /// The seed of a stepped fabric, for messages of failed tests; 0 for a free-running one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes one step in a stepped fabric: a message or a part of it reaches memory, an
    /// acknowledgement arrives, a request is flushed, or a timer is due. If there is nothing to do
    /// before a timer is due, virtual time jumps there. Whether there was anything.
    ///
    /// In a free-running fabric this does what is due. That is never necessary, because posting
    /// and polling do so, too.
    pub fn step(&self) -> bool {
        if self.shared.is_stepped() {
            return self.shared.lock().step(true);
        }
        self.shared.progress();
        false
    }

    /// Takes steps in a stepped fabric until there is nothing to do before a timer is due. Gives
    /// how many there were. Time does not jump: see [`advance`](Self::advance).
    pub fn run_until_idle(&self) -> usize {
        if self.shared.is_stepped() {
            return self.shared.lock().run_until_idle();
        }
        self.shared.progress();
        0
    }

    /// Takes steps until `is_done`, which is asked before each step. False if it was not done after
    /// `limit` steps, or when nothing was left to do: the code under test then waits for something
    /// that never comes, or goes in circles.
    ///
    /// In a free-running fabric it asks again and again, and gives up after as many milliseconds.
    pub fn step_until(&self, limit: usize, mut is_done: impl FnMut() -> bool) -> bool {
        if !self.shared.is_stepped() {
            let end = Instant::now() + Duration::from_millis(limit as u64);
            while !is_done() {
                if Instant::now() >= end {
                    return false;
                }
                self.shared.progress();
                std::thread::yield_now();
            }
            return true;
        }
        for _ in 0..limit {
            if is_done() {
                return true;
            }
            if !self.step() {
                break;
            }
        }
        is_done()
    }

    /// Lets virtual time pass in a stepped fabric, with everything that happens meanwhile. In a
    /// free-running fabric it waits as long.
    pub fn advance(&self, duration: Duration) {
        if self.shared.is_stepped() {
            self.shared.lock().advance(duration);
        } else {
            std::thread::sleep(duration);
            self.shared.progress();
        }
    }

    /// The time since the fabric was made, virtual or real. A step takes 1 µs.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.lock().clock.now())
    }

    /// A device, to pull its cable or change its addresses. None if there is none of that name.
    pub fn hca(&self, name: &str) -> Option<Hca> {
        let state = self.shared.lock();
        let mut devices = state.devices.iter();
        let (id, _) = devices.find(|(_, device)| device.spec.name == name)?;
        Some(Hca::new(Arc::clone(&self.shared), id))
    }

    /// What can be made to go wrong.
    pub fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.shared))
    }

    /// What was made and not yet destroyed.
    pub fn live_objects(&self) -> LiveObjects {
        let state = self.shared.lock();
        LiveObjects {
            device_lists: self.shared.lists.load(Ordering::Relaxed),
            contexts: state.contexts.len(),
            pds: state.pds.len(),
            mrs: state
                .devices
                .iter()
                .map(|(_, device)| device.regions.len())
                .sum(),
            channels: state.channels.len(),
            cqs: state.cqs.len(),
            qps: state.qps.len(),
        }
    }

    /// How often things happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }

    /// The record of what happened since it was taken last. Empty unless
    /// [`FabricBuilder::trace`] asked for one.
    pub fn take_trace(&self) -> Vec<TraceEntry> {
        let mut state = self.shared.lock();
        state.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The directory that plays `/sys`, if [`FabricBuilder::sysfs`] asked for one.
    pub fn sysfs_root(&self) -> Option<&Path> {
        self.shared.sysfs.as_ref().map(|sysfs| sysfs.root())
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric")
            .field("stepped", &self.shared.is_stepped())
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
