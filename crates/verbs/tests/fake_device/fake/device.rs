//! The device itself: listing, opening, and what it answers to queries.

use std::mem::offset_of;
use std::os::raw::{c_char, c_int};
use std::ptr;

use ibnet_verbs::layout::{EXTENDED_ABI, VerbsContext};
use ibnet_verbs::sys::*;

use super::queues::{poll_cq, post_recv, post_send, req_notify_cq};
use super::{
    Extended, close, descriptor, enter, fake, free, new, or_errno, or_minus_one, or_null,
    set_errno, zeroed,
};

pub(super) unsafe extern "C" fn get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    or_null("get_device_list", || {
        let (count, sysfs, transport) =
            fake(|fake| (fake.devices, fake.sysfs.clone(), fake.transport));
        let mut list: Vec<*mut ibv_device> = (0..count)
            .map(|index| {
                // SAFETY: zeros are valid: function pointers are optional, the rest is plain.
                let mut device: ibv_device = unsafe { zeroed() };
                device.transport_type = transport;
                put(&mut device.name[..], &format!("fake_{index}"));
                put(&mut device.ibdev_path[..], sysfs.to_str().unwrap());
                new(device)
            })
            .collect();
        list.push(ptr::null_mut());
        // SAFETY: the caller gives a valid place for the number.
        unsafe { *number = count.try_into().unwrap() };
        Box::leak(list.into_boxed_slice()).as_mut_ptr()
    })
}

pub(super) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    enter("free_device_list");
    let length = fake(|fake| fake.devices) + 1;
    // SAFETY: the list was made by `get_device_list`, with this length, and is freed once.
    unsafe {
        let list = Box::from_raw(ptr::slice_from_raw_parts_mut(list, length));
        list.iter()
            .filter(|device| !device.is_null())
            .for_each(|&device| free(device));
    }
}

pub(super) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller gives a device of the list.
    unsafe { (&raw const (*device).name).cast() }
}

pub(super) unsafe extern "C" fn get_device_guid(_: *mut ibv_device) -> __be64 {
    0x0102_0304_0506_0708_u64.to_be()
}

pub(super) unsafe extern "C" fn get_device_index(_: *mut ibv_device) -> c_int {
    match enter("get_device_index") {
        None => 7,
        Some(_) => -1,
    }
}

pub(super) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    or_null("open_device", || {
        let extended = fake(|fake| fake.extended);
        // SAFETY: zeros are valid: function pointers are optional, the rest is plain.
        let mut whole: VerbsContext = unsafe { zeroed() };
        whole.query_port = (extended != Extended::WithoutQueryPort).then_some(extended_query_port);
        whole.size = match extended {
            Extended::TooShort => size_of::<VerbsContext>() - 8,
            _ => size_of::<VerbsContext>(),
        };
        whole.context.device = device;
        whole.context.async_fd = descriptor();
        whole.context.ops.poll_cq = Some(poll_cq);
        whole.context.ops.req_notify_cq = Some(req_notify_cq);
        whole.context.ops.post_send = Some(post_send);
        whole.context.ops.post_recv = Some(post_recv);
        if extended != Extended::No {
            whole.context.abi_compat = ptr::without_provenance_mut(EXTENDED_ABI);
        }
        // SAFETY: the object was just made. The pointer is to its last field.
        unsafe { &raw mut (*new(whole)).context }
    })
}

pub(super) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    or_errno("close_device", || {
        // SAFETY: the context was made by `open_device`, inside a `VerbsContext`, and is closed
        // once.
        unsafe {
            close((*context).async_fd);
            let offset = offset_of!(VerbsContext, context);
            free(context.byte_sub(offset).cast::<VerbsContext>());
        }
        0
    })
}

pub(super) unsafe extern "C" fn query_device(
    _: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    or_errno("query_device", || {
        // SAFETY: the caller gives a valid place for the attributes.
        unsafe { *attributes = fake(|fake| fake.device) };
        0
    })
}

/// The exported function: fills the attributes only up to `flags`.
pub(super) unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    _port: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    or_errno("query_port", || {
        let port = fake(|fake| fake.port);
        let size = offset_of!(ibv_port_attr, port_cap_flags2);
        // SAFETY: the caller gives room for at least this prefix of the attributes.
        unsafe {
            ptr::copy_nonoverlapping((&raw const port).cast::<u8>(), attributes.cast(), size);
        };
        0
    })
}

/// The operation of the extended context: fills everything, up to the caller's size.
pub(super) unsafe extern "C" fn extended_query_port(
    _: *mut ibv_context,
    _port: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    or_errno("extended query_port", || {
        let port = fake(|fake| fake.port);
        // SAFETY: the caller gives room for `size` bytes; the source has at least as many.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw const port).cast::<u8>(),
                attributes.cast(),
                size.min(size_of::<ibv_port_attr>()),
            );
        };
        0
    })
}

pub(super) unsafe extern "C" fn query_port_speed(
    _: *mut ibv_context,
    _port: u32,
    speed: *mut u64,
) -> c_int {
    or_errno("query_port_speed", || {
        // SAFETY: the caller gives a valid place for the speed.
        unsafe { *speed = fake(|fake| fake.speed) };
        0
    })
}

pub(super) unsafe extern "C" fn query_gid(
    _: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    or_minus_one("query_gid", || {
        match fake(|fake| fake.gids.get(index as usize).copied().flatten()) {
            Some(entry) => {
                // SAFETY: the caller gives a valid place for the GID.
                unsafe { *gid = entry.gid };
                0
            }
            None => {
                set_errno(libc::EINVAL);
                -1
            }
        }
    })
}

pub(super) unsafe extern "C" fn query_gid_ex(
    _: *mut ibv_context,
    _port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    or_errno("query_gid_ex", || {
        assert_eq!((flags, size), (0, size_of::<ibv_gid_entry>()));
        match fake(|fake| fake.gids.get(index as usize).copied().flatten()) {
            // SAFETY: every bit pattern of a GID is valid.
            Some(found) if unsafe { found.gid.raw } == [0; 16] => libc::ENODATA,
            Some(found) => {
                // SAFETY: the caller gives a valid place for the entry.
                unsafe { *entry = found };
                0
            }
            None => libc::EINVAL,
        }
    })
}

/// Like the library on an old kernel: one entry that cannot be read fails the whole.
pub(super) unsafe extern "C" fn query_gid_table(
    _: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    capacity: usize,
    flags: u32,
    size: usize,
) -> isize {
    or_minus_one("query_gid_table", || {
        assert_eq!((flags, size), (0, size_of::<ibv_gid_entry>()));
        let gids = fake(|fake| fake.gids.clone());
        let Some(gids) = gids.into_iter().collect::<Option<Vec<_>>>() else {
            return -libc::EINVAL;
        };
        // SAFETY: every bit pattern of a GID is valid.
        let full = gids
            .into_iter()
            .filter(|entry| unsafe { entry.gid.raw } != [0; 16]);
        let full: Vec<_> = full.collect();
        if full.len() > capacity {
            return -libc::EINVAL;
        }
        // SAFETY: the caller gives room for `capacity` entries.
        unsafe { ptr::copy_nonoverlapping(full.as_ptr(), entries, full.len()) };
        full.len() as c_int
    }) as isize
}

pub(super) unsafe extern "C" fn query_pkey(
    _: *mut ibv_context,
    _port: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    or_minus_one("query_pkey", || {
        match fake(|fake| fake.pkeys.get(index as usize).copied()) {
            Some(found) => {
                // SAFETY: the caller gives a valid place for the P_Key.
                unsafe { *pkey = found.to_be() };
                0
            }
            None => -1,
        }
    })
}

pub(super) unsafe extern "C" fn get_pkey_index(
    _: *mut ibv_context,
    _port: u8,
    pkey: __be16,
) -> c_int {
    or_minus_one("get_pkey_index", || {
        let wanted = u16::from_be(pkey);
        let found = fake(|fake| fake.pkeys.iter().position(|&entry| entry == wanted));
        found.map_or(-1, |index| index as c_int)
    })
}

/// Copies text into a C array, which stays terminated.
fn put(array: &mut [c_char], text: &str) {
    for (to, from) in array[..255.min(text.len())].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
}
