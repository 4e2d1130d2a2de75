//! `devices`, `getProperties`, `makeVDevice`.

use std::ffi::c_int;

use crate::abi::NcclResult;
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::plugin::device::Properties;
use crate::plugin::lifecycle;

/// `devices`.
pub(crate) unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    guard("devices", || {
        let count = required(count, "ndev")?;
        // SAFETY: not null, and the caller's to write: see the module.
        unsafe { count.write(0) };
        let number = lifecycle::devices()?.count();
        // SAFETY: as above.
        unsafe { count.write(number) };
        Ok(())
    })
}

/// `getProperties`, with the version's struct made by `convert`.
///
/// # Safety
/// `properties` is null or can be written.
pub(crate) unsafe fn get_properties<P>(
    index: c_int,
    properties: *mut P,
    convert: impl FnOnce(&Properties) -> Result<P, Fault>,
) -> NcclResult {
    guard("getProperties", || {
        let out = required(properties, "props")?;
        let properties = convert(&*lifecycle::devices()?.get(index)?)?;
        // SAFETY: not null, and the caller's to write. The whole struct is written, so no field keeps
        // what was there.
        unsafe { out.write(properties) };
        Ok(())
    })
}

/// `makeVDevice`, with the members that the version's struct holds.
///
/// # Safety
/// `index` is null or can be written.
pub(crate) unsafe fn make_vdevice<const LIMIT: usize>(
    index: *mut c_int,
    count: c_int,
    devices: &[c_int; LIMIT],
) -> Result<(), Fault> {
    let index = required(index, "d")?;
    let members = usize::try_from(count)
        .ok()
        .and_then(|count| devices.get(..count));
    let members = members.ok_or_else(|| {
        Fault::usage(format!(
            "a virtual device of {count} devices; 1 to {LIMIT} are possible"
        ))
    })?;
    let made = lifecycle::devices()?.merge(members)?;
    // SAFETY: not null, and the caller's to write.
    unsafe { index.write(made) };
    Ok(())
}
