//! Opening and closing devices, and their events, of which there are none.

use std::os::raw::c_int;
use std::ptr;

use ibnet_verbs::layout::{EXTENDED_ABI, VerbsContext};
use ibnet_verbs::sys::{ibv_async_event, ibv_context, ibv_device};

use crate::device::NullDevice;
use crate::{completion, post, query, set_errno, unsupported};

/// An open device. Users hold a pointer to the last field of `raw`, which is the first field here.
#[repr(C)]
struct NullContext {
    raw: VerbsContext,
}

/// The index of the device that a context belongs to.
pub(crate) fn device_index(context: *mut ibv_context) -> usize {
    // SAFETY: the caller's handle, whose device is one of this library.
    unsafe { (*(*context).device.cast::<NullDevice>()).index }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: eventfd takes no pointers.
    let async_fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if async_fd < 0 {
        return ptr::null_mut();
    }
    // SAFETY: a structure of libibverbs: pointers, optional functions, integers.
    let mut raw: VerbsContext = unsafe { crate::zeroed() };
    raw.size = size_of::<VerbsContext>();
    raw.query_port = Some(query::query_port_extended);
    let context = &mut raw.context;
    context.device = device;
    context.abi_compat = ptr::without_provenance_mut(EXTENDED_ABI);
    context.cmd_fd = -1;
    context.async_fd = async_fd;
    context.num_comp_vectors = 1;
    context.ops.poll_cq = Some(completion::poll_cq);
    context.ops.req_notify_cq = Some(unsupported::req_notify_cq);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    let context = Box::into_raw(Box::new(NullContext { raw }));
    // SAFETY: the context was just made. The pointer keeps the permission for all of it.
    unsafe { &raw mut (*context).raw.context }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's handle, used for the last time. It points into a box of `NullContext`,
    // whose beginning is found from the field's offset.
    let whole = unsafe {
        libc::close((*context).async_fd);
        let offset = std::mem::offset_of!(VerbsContext, context);
        context.byte_sub(offset).cast::<NullContext>()
    };
    // SAFETY: as above; the box was made by `ibv_open_device`.
    drop(unsafe { Box::from_raw(whole) });
    0
}

/// Nothing ever happens: waits for ever, or fails with `EAGAIN` if the descriptor does not block.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    _event: *mut ibv_async_event,
) -> c_int {
    let mut count = 0_u64;
    // SAFETY: the caller's handle, and a place for the eight bytes that an eventfd gives. Nothing
    // writes to the descriptor, so that the call can only wait or fail, which sets `errno`.
    let read = unsafe {
        libc::read(
            (*context).async_fd,
            (&raw mut count).cast(),
            size_of::<u64>(),
        )
    };
    if read >= 0 {
        set_errno(libc::EIO);
    }
    -1
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}
