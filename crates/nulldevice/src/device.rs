//! Listing devices.

use std::os::raw::{c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use ibnet_verbs::sys::{__be64, IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};

/// How many devices there are.
const COUNT: &str = "NULLDEVICE_COUNT";
const DEFAULT_COUNT: usize = 2;
const MOST: usize = 8;

/// A device, with room behind it: providers of libibverbs have data of their own there, at which
/// helper libraries (mlx5dv) look to find out whose device it is. They find zeros.
#[repr(C)]
pub(crate) struct NullDevice {
    raw: ibv_device,
    provider: [usize; 64],
    pub(crate) index: usize,
}

/// The pointers inside are null.
struct Devices(Vec<NullDevice>);

// SAFETY: the devices are never changed after they were made.
unsafe impl Send for Devices {}
// SAFETY: as above.
unsafe impl Sync for Devices {}

/// They live as long as the process.
fn devices() -> &'static [NullDevice] {
    static DEVICES: OnceLock<Devices> = OnceLock::new();
    &DEVICES
        .get_or_init(|| Devices((0..count()).map(describe).collect()))
        .0
}

fn count() -> usize {
    let Ok(text) = std::env::var(COUNT) else {
        return DEFAULT_COUNT;
    };
    match text.parse() {
        Ok(count) if (1..=MOST).contains(&count) => count,
        _ => {
            // Going on would measure something else than was asked for.
            eprintln!("{COUNT}={text}: expected a number from 1 to {MOST}");
            std::process::abort();
        }
    }
}

fn describe(index: usize) -> NullDevice {
    // SAFETY: a structure of libibverbs.
    let mut raw: ibv_device = unsafe { crate::zeroed() };
    raw.node_type = IBV_NODE_CA;
    raw.transport_type = IBV_TRANSPORT_IB;
    put(&mut raw.name, &format!("null{index}"));
    put(&mut raw.dev_name, &format!("uverbs{index}"));
    // A path that exists nowhere, so that no real device is looked at.
    put(&mut raw.ibdev_path, &format!("/nonexistent/null{index}"));
    NullDevice {
        raw,
        provider: [0; 64],
        index,
    }
}

/// Copies text into a C array. All texts here are far shorter than their arrays.
fn put(array: &mut [c_char], text: &str) {
    let room = array.len() - 1;
    for (to, from) in array[..room].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
}

/// The node GUID of a device: of no vendor, by the bit for locally administered addresses.
pub(crate) fn guid(index: usize) -> u64 {
    0x0200_0000_6e75_6c00 | index as u64
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    let devices = devices();
    if !number.is_null() {
        // SAFETY: the caller's argument. There are at most a few devices.
        unsafe { *number = devices.len() as c_int };
    }
    let mut list: Vec<*mut ibv_device> = devices
        .iter()
        .map(|device| ptr::from_ref(device).cast_mut().cast())
        .collect();
    list.push(ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let length = devices().len() + 1;
    // SAFETY: the caller's list, which was made above as a box of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, length)) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's handle. The name is inside the device, and stays as long as it.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 {
    // SAFETY: the caller's handle, which points to one of the devices above.
    guid(unsafe { (*device.cast::<NullDevice>()).index }).to_be()
}
