//! Devices as NCCL sees them: how many, what each is, and virtual devices made of several.

use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ibnet::Transport;

use super::description;
use super::numbering::Numbering;
pub(crate) use super::properties::Properties;
use super::properties::to_int;
use crate::abi::MAX_NET_DEVICES;
use crate::fault::Fault;

/// The devices of an open transport, by NCCL's numbers, and what NCCL is told of them. It asks often.
pub(crate) struct Devices {
    transport: Transport,
    // Locked for no longer than it takes to make a virtual device.
    known: RwLock<Numbering<Arc<Properties>>>,
}

impl Devices {
    /// The physical devices of `transport`.
    pub(super) fn of(transport: Transport) -> Result<Self, Fault> {
        let infos = transport.devices();
        let physical = (0..infos.len())
            // NCCL has arrays of so many, and does not check.
            .take(MAX_NET_DEVICES)
            .map(|device| Ok(Arc::new(Properties::of(&infos, device)?)))
            .collect::<Result<_, Fault>>()?;
        Ok(Self {
            transport,
            known: RwLock::new(Numbering::of(physical)),
        })
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// What is known of the device that NCCL calls `number`.
    pub(crate) fn get(&self, number: c_int) -> Result<Arc<Properties>, Fault> {
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
    pub(super) fn begin_anew(&self) {
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
            .map(|member| Ok(self.get(*member)?.device))
            .collect::<Result<Vec<_>, Fault>>()
            .map_err(|fault| Fault::usage(fault.text().to_owned()))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let device = self.transport.merge(&members)?;
        if let Some(number) = known.position(|other| other.device == device) {
            return Ok(to_int(number));
        }
        if known.len() >= MAX_NET_DEVICES {
            return Err(Fault::usage(format!(
                "there are {MAX_NET_DEVICES} devices, and NCCL has room for no more"
            )));
        }
        let infos = self.transport.devices();
        let number = known.add(Arc::new(Properties::of(&infos, device)?));
        description::virtual_device(number, device, &infos[device]);
        Ok(to_int(number))
    }

    /// Tells the log what NCCL will see of the devices.
    pub(super) fn announce(&self) {
        description::devices(&self.transport, self.known().physical());
    }

    /// `devices`: how many NCCL can ask for.
    pub(crate) fn count(&self) -> c_int {
        to_int(self.known().len())
    }

    fn known(&self) -> RwLockReadGuard<'_, Numbering<Arc<Properties>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}
