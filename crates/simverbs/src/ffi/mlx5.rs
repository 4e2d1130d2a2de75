//! What libmlx5 tells of Data Direct. Registering for it is in [`super::memory`].

use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use ibnet_verbs::sys::{ibv_context, ibv_device};

use super::objects::{SimContext, SimDevice, context_of, object};
use super::returned;
use crate::sysfs::pci_directory;

pub(crate) unsafe extern "C" fn is_supported(device: *mut ibv_device) -> bool {
    let (shared, id) = object!(device => SimDevice { shared, id });
    shared.lock().devices[*id].spec.data_direct.is_some()
}

/// The path is told as libmlx5 tells it: without `/sys`.
pub(crate) unsafe extern "C" fn get_data_direct_sysfs_path(
    context: *mut ibv_context,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    let context = context_of(context);
    let (shared, device) = object!(context => SimContext { shared, device });
    let tell = || {
        let state = shared.lock();
        let address = state.devices[device.id].spec.data_direct.as_ref();
        let path = Path::new("/").join(pci_directory(address.ok_or(libc::ENODEV)?));
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= length {
            return Err(libc::ENOBUFS);
        }
        // SAFETY: the caller's buffer has room for `length` bytes, which are more than these and a
        // null.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
            buffer.add(bytes.len()).write(0);
        }
        Ok(())
    };
    returned(tell())
}
