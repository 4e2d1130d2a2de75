//! `devices`, `getProperties`, `pciPath`, `ptrSupport`, `makeVDevice`.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::abi::{
    NcclResult, PropertiesV3, PropertiesV5, PropertiesV12, VirtualDeviceV9, VirtualDeviceV12,
};
use crate::device::Device;
use crate::fault::Fault;
use crate::guard::{Out, guard, required};
use crate::lifecycle;

/// `devices`: how many NCCL can ask for.
pub(crate) unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    guard("devices", || {
        let out = Out::new(count, "ndev", 0)?;
        out.set(lifecycle::devices()?.count());
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
