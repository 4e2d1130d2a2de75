//! Listing devices.

use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ibnet_verbs::sys::{__be64, IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};

use super::objects::{SimDevice, Zeroed, object};
use super::{pointer, put};
use crate::engine::slab::{DeviceId, Key};
use crate::engine::{Errno, State};
use crate::faults::Verb;
use crate::shared::Shared;

/// A list as it is allocated: the fabric, the devices, and a null. Users hold a pointer to the
/// first device.
type Words = Box<[*mut ibv_device]>;

/// # Safety
///
/// The caller's argument, or null.
pub(crate) unsafe fn get_device_list(
    fabric: Option<Arc<Shared>>,
    number: *mut c_int,
) -> *mut *mut ibv_device {
    let devices = match &fabric {
        Some(shared) => devices(shared),
        // The fabric is gone, and its devices with it.
        None => Ok(Vec::new()),
    };
    pointer(devices.map(|devices| {
        if !number.is_null() {
            // SAFETY: the caller's argument. There are far fewer devices than an int can count.
            unsafe { *number = devices.len() as c_int };
        }
        let owner = fabric.map_or(ptr::null(), |shared| {
            shared.lists.fetch_add(1, Ordering::Relaxed);
            Arc::into_raw(shared)
        });
        let mut words = vec![owner.cast_mut().cast()];
        words.extend(devices);
        words.push(ptr::null_mut());
        let words: *mut [*mut ibv_device] = Box::into_raw(words.into_boxed_slice());
        words.cast::<*mut ibv_device>().wrapping_add(1)
    }))
}

pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    let first = list.wrapping_sub(1);
    let mut length = 0;
    // SAFETY: the caller's list, which ends with null.
    while !unsafe { *list.add(length) }.is_null() {
        length += 1;
    }
    // SAFETY: the list was made by `get_device_list` as a box of this length.
    let words: Words = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, length + 2)) };
    for &device in &words[1..=length] {
        // SAFETY: each device is an `Arc` of which the list owns one count. Open contexts own
        // theirs.
        drop(unsafe { Arc::from_raw(device.cast_const().cast::<SimDevice>()) });
    }
    let owner = words[0].cast_const().cast::<Shared>();
    if !owner.is_null() {
        // SAFETY: the first word is the list's own count of its fabric.
        let shared = unsafe { Arc::from_raw(owner) };
        shared.lists.fetch_sub(1, Ordering::Relaxed);
    }
}

fn devices(shared: &Arc<Shared>) -> Result<Vec<*mut ibv_device>, Errno> {
    let mut state = shared.lock();
    state.admit(Verb::GetDeviceList, Default::default())?;
    let present = state.devices.iter();
    let present = present.filter(|(_, device)| !device.is_removed);
    let make = |(id, _)| {
        let device = Arc::new(SimDevice {
            raw: describe(shared, &state, id),
            shared: Arc::clone(shared),
            id,
        });
        Arc::into_raw(device).cast::<ibv_device>().cast_mut()
    };
    Ok(present.map(make).collect())
}

fn describe(shared: &Shared, state: &State, id: DeviceId) -> ibv_device {
    let spec = &state.devices[id].spec;
    let mut raw = ibv_device::zeroed();
    raw.node_type = IBV_NODE_CA;
    raw.transport_type = IBV_TRANSPORT_IB;
    put(&mut raw.name, spec.name.as_bytes());
    put(
        &mut raw.dev_name,
        format!("uverbs{}", id.index()).as_bytes(),
    );
    let path = match (&spec.sysfs_path, &shared.sysfs) {
        (Some(path), _) => path.clone(),
        (None, Some(sysfs)) => sysfs.device_path(&spec.name),
        // A path that exists nowhere, so that no real device of the same name is looked at.
        (None, None) => PathBuf::from("/nonexistent/simverbs").join(&spec.name),
    };
    put(&mut raw.ibdev_path, path.as_os_str().as_bytes());
    raw
}

pub(crate) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's handle. The name is inside the device, and stays as long as it.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> __be64 {
    let (shared, id) = object!(device => SimDevice { shared, id });
    shared.lock().devices[*id].guid.to_be()
}

pub(crate) unsafe extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    let (id,) = object!(device => SimDevice { id });
    // There are far fewer devices than an int can count.
    id.index() as c_int
}
