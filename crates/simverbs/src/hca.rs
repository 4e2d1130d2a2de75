//! [`Hca`] and [`HcaPort`]: devices and ports, as a hand on the hardware sees them.

use std::fmt;
use std::sync::Arc;

use ibnet_verbs::EventType;

use crate::engine::events::Subject;
use crate::engine::slab::DeviceId;
use crate::shared::Shared;
use crate::spec::{GidSlot, check};
use crate::view::{self, QueuePairView, RegionView};

/// A device of a fabric. Made by [`Fabric::hca`](crate::Fabric::hca).
#[derive(Clone)]
pub struct Hca {
    shared: Arc<Shared>,
    id: DeviceId,
}

impl Hca {
    pub(crate) fn new(shared: Arc<Shared>, id: DeviceId) -> Self {
        Self { shared, id }
    }

    /// A port, which count from 1. None if there is none of that number.
    pub fn port(&self, number: u8) -> Option<HcaPort> {
        let is_there = self.shared.lock().devices[self.id].port(number).is_some();
        is_there.then(|| HcaPort {
            hca: self.clone(),
            number,
        })
    }

    /// The device is gone, as if it was pulled out or its driver unbound.
    ///
    /// It is not listed any more. Its queue pairs go to ERR, and everybody who has it open gets
    /// `IBV_EVENT_DEVICE_FATAL`, after which reading events fails with `EIO`. So do all verbs but
    /// polling and destroying.
    pub fn remove(&self) {
        self.fail_device(true);
    }

    /// The device fails: its queue pairs go to ERR, and everybody who has it open gets
    /// `IBV_EVENT_DEVICE_FATAL`. As after a reset by its driver, new objects can be made.
    pub fn fail(&self) {
        self.fail_device(false);
    }

    /// The device finds a queue pair broken: it goes to ERR, and its owner gets
    /// `IBV_EVENT_QP_FATAL`. False if the device has no queue pair of that number.
    pub fn fail_queue_pair(&self, number: u32) -> bool {
        let mut state = self.shared.lock();
        let is_there = state.fail_qp(self.id, number);
        drop(self.shared.run(state));
        is_there
    }

    /// The queue pairs that live, in the order in which they were made, with what was set on them.
    pub fn queue_pairs(&self) -> Vec<QueuePairView> {
        view::queue_pairs(&self.shared.lock(), self.id)
    }

    /// The memory that is registered, in no particular order.
    pub fn regions(&self) -> Vec<RegionView> {
        self.shared.lock().devices[self.id].regions.views()
    }

    fn fail_device(&self, is_removed: bool) {
        let mut state = self.shared.lock();
        state.fail_device(self.id, is_removed);
        drop(self.shared.run(state));
        self.shared.notify();
    }
}

/// A port of a device. Made by [`Hca::port`].
#[derive(Clone)]
pub struct HcaPort {
    hca: Hca,
    number: u8,
}

impl HcaPort {
    /// The link is lost, and everybody who has the device open is told
    /// (`IBV_EVENT_PORT_ERR`). Packets from and to the port are lost; queue pairs stay as they are
    /// until they run out of retries.
    pub fn down(&self) {
        self.set_link(false);
    }

    /// The link is back, and everybody who has the device open is told
    /// (`IBV_EVENT_PORT_ACTIVE`).
    pub fn up(&self) {
        self.set_link(true);
    }

    fn set_link(&self, is_up: bool) {
        let Hca { shared, id } = &self.hca;
        let mut state = shared.lock();
        state.set_link(*id, self.number, is_up);
        drop(shared.run(state));
        self.show();
    }

    /// The GID table, empty entries included.
    pub fn gids(&self) -> Vec<GidSlot> {
        let state = self.hca.shared.lock();
        let port = state.devices[self.hca.id].port(self.number);
        port.map(|port| port.gids.clone()).unwrap_or_default()
    }

    /// Replaces the GID table, from index 0; the rest of it is empty. Everybody who has the device
    /// open is told (`IBV_EVENT_GID_CHANGE`).
    ///
    /// Queue pairs whose own address is no longer at the index that they use have no address to
    /// send from; those whose address is gone altogether are not reached by their peers.
    ///
    /// # Panics
    ///
    /// If there are more than the table has places, or one is refused by
    /// [`FabricBuilder::build`](crate::FabricBuilder::build), too.
    pub fn set_gids(&self, gids: impl IntoIterator<Item = GidSlot>) {
        let new: Vec<_> = gids.into_iter().collect();
        refuse(check::gids(&new, self.gids().len()));
        self.change_gids(|gids| *gids = new);
    }

    /// Changes one place of the GID table, as [`set_gids`](Self::set_gids) does.
    ///
    /// # Panics
    ///
    /// If the table has no such place, or [`FabricBuilder::build`](crate::FabricBuilder::build) would
    /// refuse what it is to hold.
    pub fn set_gid(&self, index: usize, slot: GidSlot) {
        refuse(check::gids(&[slot], 1));
        let length = self.gids().len();
        assert!(
            index < length,
            "the GID table has {length} places, not one {index}"
        );
        self.change_gids(|gids| gids[index] = slot);
    }

    fn change_gids(&self, change: impl FnOnce(&mut Vec<GidSlot>)) {
        let Hca { shared, id } = &self.hca;
        shared.lock().change_gids(*id, self.number, change);
        self.show();
    }

    /// The subnet manager gives the port another LID, and everybody who has the device open is
    /// told (`IBV_EVENT_LID_CHANGE`).
    ///
    /// # Panics
    ///
    /// If [`FabricBuilder::build`](crate::FabricBuilder::build) would refuse the LID: on an Ethernet
    /// port, if it is no unicast LID or has path bits, and if another port of the network has it.
    pub fn set_lid(&self, lid: u16) {
        let Hca { shared, id } = &self.hca;
        let mut state = shared.lock();
        let outcome = state.set_lid(*id, self.number, lid);
        drop(state);
        refuse(outcome.err());
        self.show();
    }

    /// Everybody who has the device open gets an event about the port that has no cause here, such
    /// as [`EventType::SM_CHANGE`] or [`EventType::PKEY_CHANGE`].
    ///
    /// # Panics
    ///
    /// If it is not an event about a port.
    pub fn report(&self, kind: EventType) {
        let is_about_port = [
            EventType::PORT_ACTIVE,
            EventType::PORT_ERR,
            EventType::LID_CHANGE,
            EventType::PKEY_CHANGE,
            EventType::SM_CHANGE,
            EventType::CLIENT_REREGISTER,
            EventType::GID_CHANGE,
        ];
        assert!(
            is_about_port.contains(&kind),
            "{kind} is no event about a port"
        );
        let Hca { shared, id } = &self.hca;
        let mut state = shared.lock();
        state.raise_on_device(*id, kind, Subject::Port(self.number));
    }

    /// Brings the sysfs directory up to date.
    fn show(&self) {
        let Hca { shared, id } = &self.hca;
        let Some(sysfs) = &shared.sysfs else { return };
        let state = shared.lock();
        let device = &state.devices[*id];
        let Some(port) = device.port(self.number) else {
            return;
        };
        let index = usize::from(self.number) - 1;
        if let Err(error) = sysfs.write_port(&device.spec.name, index, port) {
            tracing::warn!(%error, "the simulated sysfs is out of date");
        }
    }
}

/// Panics if there is a problem: the mistake is in the test.
fn refuse(problem: Option<&str>) {
    if let Some(problem) = problem {
        panic!("{problem}");
    }
}

impl fmt::Debug for Hca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_tuple("Hca")
            .field(&state.devices[self.id].spec.name)
            .finish()
    }
}

impl fmt::Debug for HcaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcaPort")
            .field("hca", &self.hca)
            .field("number", &self.number)
            .finish()
    }
}
