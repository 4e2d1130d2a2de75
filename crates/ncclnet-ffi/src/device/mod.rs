//! Devices as NCCL sees them: how many, what each is, and virtual devices made of several.
//!
//! - [`properties`] is what NCCL is told of a device, [`names`] what makes devices distinct to it;
//! - [`numbering`] is by which numbers NCCL calls them;
//! - [`description`] is what the log says of them.

mod description;
mod names;
mod numbering;
mod properties;

use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ibnet::Transport;

use crate::abi::MAX_NET_DEVICES;
use crate::fault::Fault;
use numbering::Numbering;
pub(crate) use properties::Device;
use properties::to_int;

/// The devices of an open transport, by NCCL's numbers, and what NCCL is told of them. It asks often.
pub(crate) struct Devices {
    transport: Transport,
    // Locked for no longer than it takes to make a virtual device.
    known: RwLock<Numbering<Arc<Device>>>,
}

impl Devices {
    /// The physical devices of `transport`.
    pub(crate) fn of(transport: Transport) -> Result<Self, Fault> {
        let infos = transport.devices();
        let physical = (0..infos.len())
            // NCCL has arrays of so many, and does not check.
            .take(MAX_NET_DEVICES)
            .map(|device| Ok(Arc::new(Device::of(&infos, device)?)))
            .collect::<Result<_, Fault>>()?;
        Ok(Self {
            transport,
            known: RwLock::new(Numbering::of(physical)),
        })
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The device that NCCL calls `number`.
    pub(crate) fn get(&self, number: c_int) -> Result<Arc<Device>, Fault> {
        let known = self.known();
        let found = usize::try_from(number)
            .ok()
            .and_then(|number| known.get(number).cloned());
        found.ok_or_else(|| {
            Fault::argument(format!(
                "there is no device {number}; there are {} devices",
                known.len()
            ))
        })
    }

    /// NCCL may count anew: see [`Numbering`].
    pub(crate) fn begin_anew(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.begin_anew();
    }

    /// `makeVDevice`: the number of the device made of `members`. Nothing is changed unless it succeeds.
    ///
    /// A device made of one device is that device, and one made of the same set as another is that other.
    pub(crate) fn merge(&self, members: &[c_int]) -> Result<c_int, Fault> {
        // The members are checked before anything else is done with them.
        let members = members
            .iter()
            .map(|member| Ok(self.get(*member)?.index))
            .collect::<Result<Vec<_>, Fault>>()
            .map_err(|fault| Fault::usage(fault.text().to_owned()))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let device = self.transport.merge(&members)?;
        if let Some(number) = known.position(|other| other.index == device) {
            return Ok(to_int(number));
        }
        if known.len() >= MAX_NET_DEVICES {
            return Err(Fault::usage(format!(
                "there are {MAX_NET_DEVICES} devices, and NCCL has room for no more"
            )));
        }
        let infos = self.transport.devices();
        let number = known.add(Arc::new(Device::of(&infos, device)?));
        description::virtual_device(number, device, &infos[device]);
        Ok(to_int(number))
    }

    /// Tells the log what NCCL will see of the devices.
    pub(crate) fn announce(&self) {
        description::devices(&self.transport, self.known().physical());
    }

    /// How many NCCL can ask for.
    pub(crate) fn count(&self) -> c_int {
        to_int(self.known().len())
    }

    fn known(&self) -> RwLockReadGuard<'_, Numbering<Arc<Device>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}
