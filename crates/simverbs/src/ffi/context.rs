//! Opening and closing devices, and protection domains.

use std::os::raw::c_int;
use std::ptr;
use std::sync::Arc;

use ibnet_verbs::layout::{EXTENDED_ABI, VerbsContext};
use ibnet_verbs::sys::{ibv_context, ibv_device, ibv_pd};

use super::objects::{SimContext, SimDevice, SimPd, Zeroed, context_of, object};
use super::{cq, pointer, post, query, returned};
use crate::engine::Errno;
use crate::engine::slab::Key;
use crate::faults::Verb;
use crate::spec::ContextKind;

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's handle, which is an `Arc` that its list keeps alive; the context gets
    // a count of its own.
    let device = unsafe {
        let device = device.cast_const().cast::<SimDevice>();
        Arc::increment_strong_count(device);
        Arc::from_raw(device)
    };
    pointer(open(device))
}

fn open(device: Arc<SimDevice>) -> Result<*mut ibv_context, Errno> {
    let shared = Arc::clone(&device.shared);
    let mut state = shared.lock();
    state.admit_call(Verb::OpenDevice, device.id)?;
    let id = state.open_context(device.id)?;
    let spec = &state.devices[device.id].spec;

    let mut raw = VerbsContext::zeroed();
    let context = &mut raw.context;
    context.device = Arc::as_ptr(&device).cast::<ibv_device>().cast_mut();
    context.cmd_fd = -1;
    context.async_fd = state.contexts[id].bell.fd();
    // There are far fewer vectors than an int can count.
    context.num_comp_vectors = spec.limits.completion_vectors as c_int;
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    if spec.context == ContextKind::Extended {
        context.abi_compat = ptr::without_provenance_mut(EXTENDED_ABI);
        raw.size = size_of::<VerbsContext>();
        raw.query_port = Some(query::query_port_extended);
    }
    drop(state);
    let context = Box::into_raw(Box::new(SimContext {
        raw,
        shared,
        id,
        device,
    }));
    // SAFETY: the context was just made. The pointer keeps the permission for all of it.
    Ok(unsafe { &raw mut (*context).raw.context })
}

pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    let context = context_of(context);
    let (shared, id) = object!(context => SimContext { shared, id });
    let result = shared.lock().close_context(*id);
    if let Err(errno) = result {
        tracing::warn!("a simulated device was closed while something that it made is in use");
        return errno;
    }
    // SAFETY: the caller's handle, used for the last time.
    drop(unsafe { Box::from_raw(context) });
    0
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let object = context_of(context);
    let (shared, id, device) = object!(object => SimContext { shared, id, device });
    let allocate = || {
        let mut state = shared.lock();
        state.admit_call(Verb::AllocatePd, device.id)?;
        state.allocate_pd(*id)
    };
    pointer(allocate().map(|id| {
        let pd = Box::new(SimPd {
            raw: ibv_pd {
                context,
                handle: id.index() as u32,
            },
            shared: Arc::clone(shared),
            id,
        });
        Box::into_raw(pd).cast()
    }))
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let (shared, id) = object!(pd => SimPd { shared, id });
    let result = shared.lock().deallocate_pd(*id);
    if result.is_ok() {
        // SAFETY: the caller's handle, used for the last time.
        drop(unsafe { Box::from_raw(pd.cast::<SimPd>()) });
    }
    returned(result)
}
