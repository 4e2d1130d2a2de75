//! What happens to devices and ports from outside: links, addresses, removal.

use std::ptr;

use ibnet_verbs::EventType;

use super::State;
use super::events::Subject;
use super::slab::{DeviceId, QpId};
use crate::spec::{GidSlot, check};

impl State {
    /// The link of a port comes or goes. Nothing happens if it is so already.
    pub(crate) fn set_link(&mut self, device: DeviceId, number: u8, is_up: bool) {
        let Some(port) = self.devices[device].port_mut(number) else {
            return;
        };
        if port.is_up == is_up {
            return;
        }
        port.is_up = is_up;
        self.network_changed();
        let kind = match is_up {
            true => EventType::PORT_ACTIVE,
            false => EventType::PORT_ERR,
        };
        self.raise_on_device(device, kind, Subject::Port(number));
    }

    /// Changes the GID table of a port, and tells everybody who has the device open.
    pub(crate) fn change_gids(
        &mut self,
        device: DeviceId,
        number: u8,
        change: impl FnOnce(&mut Vec<GidSlot>),
    ) {
        let Some(port) = self.devices[device].port_mut(number) else {
            return;
        };
        let length = port.gids.len();
        change(&mut port.gids);
        port.gids.resize(length, GidSlot::Empty);
        self.network_changed();
        self.raise_on_device(device, EventType::GID_CHANGE, Subject::Port(number));
    }

    /// The subnet manager gives a port another LID.
    ///
    /// # Errors
    ///
    /// Why no subnet manager would.
    pub(crate) fn set_lid(
        &mut self,
        device: DeviceId,
        number: u8,
        lid: u16,
    ) -> Result<(), &'static str> {
        let Some(port) = self.devices[device].port(number) else {
            return Err("the device has no such port");
        };
        if let Some(problem) = check::lid(port.spec.link_layer, lid, port.spec.lmc) {
            return Err(problem);
        }
        let is_taken = self.devices.iter().any(|(_, device)| {
            let mut others = device.ports.iter().filter(|other| !ptr::eq(port, *other));
            others.any(|other| port.would_share_lid(lid, other))
        });
        if is_taken {
            return Err("another port of the network has this LID");
        }
        if let Some(port) = self.devices[device].port_mut(number) {
            port.lid = lid;
        }
        self.network_changed();
        self.raise_on_device(device, EventType::LID_CHANGE, Subject::Port(number));
        Ok(())
    }

    /// A queue pair fails by itself. Whether the device has one of that number.
    pub(crate) fn fail_qp(&mut self, device: DeviceId, number: u32) -> bool {
        let found = self.numbers.get(&number).copied();
        let Some(qp) = found.filter(|&qp| self.qps[qp].device == device) else {
            return false;
        };
        if self.enter_error(qp) {
            self.raise_on_qp(qp, EventType::QP_FATAL);
        }
        true
    }

    /// The device fails: its queue pairs go to ERR. It may be gone for good.
    pub(crate) fn fail_device(&mut self, device: DeviceId, is_removed: bool) {
        if self.devices[device].is_removed {
            return;
        }
        self.devices[device].is_removed = is_removed;
        self.network_changed();
        let of_device = self.qps.iter().filter(|(_, qp)| qp.device == device);
        let qps: Vec<QpId> = of_device.map(|(id, _)| id).collect();
        for qp in qps {
            self.enter_error(qp);
        }
        self.raise_on_device(device, EventType::DEVICE_FATAL, Subject::Device);
        if is_removed {
            // A wait for completions would be for ever.
            let of_device = |context| self.contexts[context].device == device;
            let channels = self.channels.iter();
            let channels = channels.filter(|(_, channel)| of_device(channel.context));
            let channels: Vec<_> = channels.map(|(id, _)| id).collect();
            for channel in channels {
                self.channels[channel].bell.ring();
            }
        }
    }
}
