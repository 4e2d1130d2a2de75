//! Where the engine asks whether a fault strikes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ibnet_verbs::{EventType, WcStatus};

use super::armed::{Action, Kind, Scene};
use super::{Stage, Verb};
use crate::engine::device::Cut;
use crate::engine::events::Subject;
use crate::engine::slab::{CqId, DeviceId, QpId};
use crate::engine::timers::{Nanos, Timer};
use crate::engine::{Errno, State};

/// What happens to a send request that comes up to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkFault {
    Fail(WcStatus, Stage),
    Hang,
    FlipRkey,
}

impl State {
    fn scene(&self, qp: QpId) -> Scene {
        let qp = &self.qps[qp];
        Scene {
            device: Some(qp.device),
            qp: Some(qp.number),
        }
    }

    /// Whether a call is to fail by a fault, or must because its device is gone.
    pub(crate) fn admit_call(&mut self, verb: Verb, device: DeviceId) -> Result<(), Errno> {
        let scene = Scene {
            device: Some(device),
            qp: None,
        };
        self.admit(verb, scene)?;
        match self.devices[device].is_removed {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }

    /// The same, for a call about a queue pair.
    #[inline]
    pub(crate) fn admit_qp_call(&mut self, verb: Verb, qp: QpId) -> Result<(), Errno> {
        if self.faults.is_armed(Kind::Call) {
            self.admit(verb, self.scene(qp))?;
        }
        match self.devices[self.qps[qp].device].is_removed {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }

    /// The same, for a call about no device.
    pub(crate) fn admit(&mut self, verb: Verb, scene: Scene) -> Result<(), Errno> {
        let concerns = |action: &Action| match (action, verb) {
            (
                Action::Call {
                    verb: Verb::ModifyQp,
                    ..
                },
                Verb::ModifyQpTo(_),
            ) => true,
            (
                Action::Call {
                    verb: waits_for, ..
                },
                verb,
            ) => *waits_for == verb,
            _ => false,
        };
        match self.faults.strike(Kind::Call, scene, concerns) {
            Some(Action::Call { errno, .. }) => {
                tracing::debug!(?verb, errno, "injected failure");
                Err(errno)
            }
            _ => Ok(()),
        }
    }

    /// What happens to a request that comes up to be sent.
    pub(crate) fn fault_of_work(&mut self, qp: QpId, has_rkey: bool) -> Option<WorkFault> {
        let scene = self.scene(qp);
        if self.faults.strike(Kind::Hang, scene, |_| true).is_some() {
            return Some(WorkFault::Hang);
        }
        if let Some(Action::Work { status, stage }) =
            self.faults.strike(Kind::Work, scene, |_| true)
        {
            return Some(WorkFault::Fail(status, stage));
        }
        let flips = has_rkey
            && self
                .faults
                .strike(Kind::FlipRkey, scene, |_| true)
                .is_some();
        flips.then_some(WorkFault::FlipRkey)
    }

    /// Whether a message that can lie in more than one line is placed line by line. It is torn, and
    /// that counted, if it does lie in more than one.
    pub(crate) fn tears(&mut self, qp: QpId, is_torn: bool) -> bool {
        let scene = self.scene(qp);
        let strike = self.faults.strike_if(Kind::Tear, scene, |_| true, is_torn);
        strike.is_some()
    }

    pub(crate) fn overruns_by_fault(&mut self, qp: QpId) -> bool {
        let scene = self.scene(qp);
        let strike = self.faults.strike(Kind::OverrunCq, scene, |_| true);
        strike.is_some()
    }

    pub(crate) fn delay_by_fault(&mut self, qp: QpId) -> Option<Nanos> {
        let scene = self.scene(qp);
        match self.faults.strike(Kind::DelayCompletions, scene, |_| true) {
            Some(Action::DelayCompletions { shortest, longest }) => {
                Some(self.random.range(shortest..longest.saturating_add(1)))
            }
            _ => None,
        }
    }

    pub(crate) fn loses_notification(&mut self, qp: QpId) -> bool {
        let scene = self.scene(qp);
        let strike = self.faults.strike(Kind::LoseNotifications, scene, |_| true);
        strike.is_some()
    }

    /// How many of `number` completions a poll is to give.
    pub(crate) fn limit_poll(&mut self, cq: CqId, number: usize) -> usize {
        let device = self.contexts[self.cqs[cq].context].device;
        let scene = Scene {
            device: Some(device),
            qp: None,
        };
        // A completion that is alone comes in half of the cases, or it would never come.
        let is_spared = number == 0 || (number == 1 && self.random.chance(2));
        if is_spared
            || self
                .faults
                .strike(Kind::PartialPolls, scene, |_| true)
                .is_none()
        {
            return number;
        }
        self.random.index(number)
    }

    /// The device of that name, which must exist.
    pub(crate) fn device_named(&self, name: &str) -> DeviceId {
        let found = self
            .devices
            .iter()
            .find(|(_, device)| device.spec.name == name);
        match found {
            Some((id, _)) => id,
            None => panic!("the fabric has no device {name:?}"),
        }
    }

    pub(crate) fn has_qp(&self, number: u32) -> bool {
        self.qps.iter().any(|(_, qp)| qp.number == number)
    }

    pub(crate) fn cut_link(
        &mut self,
        device: DeviceId,
        number: u8,
        duration: Duration,
    ) -> (u64, Arc<AtomicU64>) {
        let token = self.faults.new_id();
        let lost = Arc::new(AtomicU64::new(0));
        let Some(port) = self.devices[device].port_mut(number) else {
            panic!("the device has no port {number}");
        };
        port.cut = Some(Cut {
            token,
            lost: Arc::clone(&lost),
        });
        let duration = Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX);
        let end = self.clock.now().saturating_add(duration);
        self.set_timer(end, Timer::LinkRestored(device, number, token));
        self.network_changed();
        (token, lost)
    }

    /// Restores the links whose cut is one of these.
    pub(crate) fn restore_links(&mut self, is_over: impl Fn(&Cut) -> bool) {
        for device in self.devices.values_mut() {
            for port in &mut device.ports {
                if port.cut.as_ref().is_some_and(&is_over) {
                    port.cut = None;
                }
            }
        }
        self.network_changed();
    }

    /// Raises events that mean nothing. Gives how many were handed out.
    pub(crate) fn storm(&mut self, device: DeviceId, events: u64) -> u64 {
        const KINDS: [EventType; 6] = [
            EventType::PORT_ERR,
            EventType::PORT_ACTIVE,
            EventType::GID_CHANGE,
            EventType::LID_CHANGE,
            EventType::SM_CHANGE,
            EventType::CLIENT_REREGISTER,
        ];
        let before = self.counters.events;
        let ports = self.devices[device].ports.len();
        for _ in 0..events {
            let kind = KINDS[self.random.index(KINDS.len())];
            // There are at most 255 ports.
            let port = self.random.index(ports) as u8 + 1;
            self.raise_on_device(device, kind, Subject::Port(port));
        }
        self.counters.events - before
    }
}
