//! Devices as NCCL sees them: how many, what each is, and virtual devices made of several.
//!
//! - [`properties`] is what NCCL is told of a device, [`names`] what makes devices distinct to it;
//! - [`numbering`] is by which numbers NCCL calls them;
//! - [`description`] is what the log says of them.

mod description;
mod names;
mod numbering;
mod properties;

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ibnet::Transport;

use crate::abi::{
    MAX_NET_DEVICES, NcclResult, PropertiesV3, PropertiesV5, PropertiesV12, VirtualDeviceV9,
    VirtualDeviceV12,
};
use crate::fault::Fault;
use crate::guard::{Out, guard, required};
use crate::lifecycle;
use numbering::Numbering;
pub(crate) use properties::Device;
use properties::to_int;

/// `devices`: how many NCCL can ask for.
pub(crate) unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    guard("devices", || {
        let out = Out::new(count, "ndev", 0)?;
        out.set(to_int(lifecycle::devices()?.known().len()));
        Ok(())
    })
}

/// `getProperties` of API version 6 and later.
pub(crate) unsafe extern "C" fn get_properties<P: From<PropertiesV12>>(
    number: c_int,
    properties: *mut P,
) -> NcclResult {
    tell(number, properties, |device| device.properties.into())
}

/// `getProperties` of API version 5.
pub(crate) unsafe extern "C" fn get_properties_v5(
    number: c_int,
    properties: *mut PropertiesV5,
) -> NcclResult {
    tell(number, properties, |device| PropertiesV5 {
        pointer_support: device.pointer_support_without_dmabuf(),
        ..device.properties.into()
    })
}

/// `getProperties` of API versions 3 and 4.
pub(crate) unsafe extern "C" fn get_properties_v3(
    number: c_int,
    properties: *mut PropertiesV3,
) -> NcclResult {
    tell(number, properties, |device| PropertiesV3 {
        pointer_support: device.pointer_support_without_dmabuf(),
        ..device.properties.into()
    })
}

fn tell<P>(number: c_int, properties: *mut P, of: impl FnOnce(&Device) -> P) -> NcclResult {
    guard("getProperties", || {
        let out = required(properties, "props")?;
        let device = lifecycle::devices()?.get(number)?;
        // SAFETY: not null, and the caller's to write: see `guard`. The whole struct is written.
        unsafe { out.write(of(&device)) };
        Ok(())
    })
}

/// `pciPath` of API version 2: a string that the caller frees.
pub(crate) unsafe extern "C" fn pci_path(number: c_int, path: *mut *mut c_char) -> NcclResult {
    guard("pciPath", || {
        let out = Out::new(path, "path", ptr::null_mut())?;
        let path = lifecycle::devices()?.get(number)?.properties.pci_path;
        if !path.is_null() {
            // SAFETY: a C string.
            let copy = unsafe { libc::strdup(path) };
            if copy.is_null() {
                return Err(Fault::internal("no memory for a path"));
            }
            out.set(copy);
        }
        Ok(())
    })
}

/// `ptrSupport` of API version 2.
pub(crate) unsafe extern "C" fn ptr_support(number: c_int, supported: *mut c_int) -> NcclResult {
    guard("ptrSupport", || {
        let out = Out::new(supported, "supportedTypes", 0)?;
        let device = lifecycle::devices()?.get(number)?;
        out.set(device.pointer_support_without_dmabuf());
        Ok(())
    })
}

/// `makeVDevice` of API versions 9 to 11.
pub(crate) unsafe extern "C" fn make_vdevice_v9(
    number: *mut c_int,
    properties: *mut VirtualDeviceV9,
) -> NcclResult {
    make_vdevice(number, properties, |it| (it.count, it.devices))
}

/// `makeVDevice` of API version 12.
pub(crate) unsafe extern "C" fn make_vdevice_v12(
    number: *mut c_int,
    properties: *mut VirtualDeviceV12,
) -> NcclResult {
    make_vdevice(number, properties, |it| (it.count, it.devices))
}

fn make_vdevice<V, const LIMIT: usize>(
    number: *mut c_int,
    properties: *mut V,
    members: impl FnOnce(&V) -> (c_int, [c_int; LIMIT]),
) -> NcclResult {
    guard("makeVDevice", || {
        let properties = required(properties, "props")?;
        let out = required(number, "d")?;
        // SAFETY: not null, and the caller's to read: see `guard`.
        let (count, devices) = members(unsafe { properties.as_ref() });
        let members = usize::try_from(count)
            .ok()
            .and_then(|count| devices.get(..count));
        let members = members.ok_or_else(|| {
            Fault::usage(format!(
                "a virtual device of {count} devices; 1 to {LIMIT} are possible"
            ))
        })?;
        let made = lifecycle::devices()?.merge(members)?;
        // SAFETY: as above, to write.
        unsafe { out.write(made) };
        Ok(())
    })
}

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

    fn known(&self) -> RwLockReadGuard<'_, Numbering<Arc<Device>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}
