//! Completion channels and completion queues.

use std::os::raw::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};

use super::objects::{SimChannel, SimContext, SimCq, Zeroed, context_of, object};
use super::{minus_one, pointer, returned};
use crate::engine::bell;
use crate::engine::events::Subject;
use crate::engine::slab::Key;
use crate::engine::{Errno, Handle, State};
use crate::faults::Verb;
use crate::ticker;

pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let object = context_of(context);
    let (shared, id, device) = object!(object => SimContext { shared, id, device });
    let create = || {
        let mut state = shared.lock();
        state.admit_call(Verb::CreateChannel, device.id)?;
        if !shared.is_stepped() && state.ticker.is_none() {
            // From now on a thread may sleep until a completion comes.
            let started = ticker::start(shared);
            let failed = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EAGAIN);
            state.ticker = Some(started.map_err(failed)?);
        }
        let id = state.create_channel(*id)?;
        let channel = Box::new(SimChannel {
            raw: ibv_comp_channel {
                context,
                fd: state.channels[id].bell.fd(),
                refcnt: 0,
            },
            shared: Arc::clone(shared),
            id,
        });
        Ok(Box::into_raw(channel).cast())
    };
    pointer(create())
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let (shared, id) = object!(channel => SimChannel { shared, id });
    let result = shared.lock().destroy_channel(*id);
    if result.is_ok() {
        // SAFETY: the caller's handle, used for the last time.
        drop(unsafe { Box::from_raw(channel.cast::<SimChannel>()) });
    }
    returned(result)
}

pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    minus_one(next_event(channel).map(|of| {
        // SAFETY: the queue exists: destroying it waits until this event is acknowledged. The
        // places for the results are the caller's arguments.
        unsafe {
            cq.write(of);
            cq_context.write((*of).cq_context);
        }
        0
    }))
}

fn next_event(channel: *mut ibv_comp_channel) -> Result<*mut ibv_cq, Errno> {
    let (shared, id) = object!(channel => SimChannel { shared, id });
    loop {
        let mut state = shared.lock();
        if let Some(cq) = state.take_completion_event(*id)? {
            return Ok(state.cqs[cq].handle.as_ptr());
        }
        let fd = state.channels[*id].bell.fd();
        drop(state);
        // The program says by the descriptor whether it wants to wait.
        if bell::is_non_blocking(fd) {
            return Err(libc::EAGAIN);
        }
        bell::wait(fd)?;
    }
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    let (shared, id) = object!(cq => SimCq { shared, id });
    // After the last acknowledgement another thread may free the queue, and all else with it.
    let shared = Arc::clone(shared);
    let mut state = shared.lock();
    let unacknowledged = &mut state.cqs[*id].unacknowledged_completion_events;
    *unacknowledged = unacknowledged.saturating_sub(number);
    shared.notify();
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    depth: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let object = context_of(context);
    let (shared, id, device) = object!(object => SimContext { shared, id, device });
    let channel_id = match channel.is_null() {
        true => None,
        false => Some(*object!(channel => SimChannel { id }).0),
    };
    let create = || {
        let mut state = shared.lock();
        state.admit_call(Verb::CreateCq, device.id)?;
        // The object needs the number, and the engine the address of the object.
        let place = Box::<SimCq>::new_uninit();
        let place: *mut SimCq = Box::into_raw(place).cast();
        let made = state.create_cq(Handle::new(place.cast()), *id, channel_id, depth, vector);
        let id = made.inspect_err(|_| {
            // SAFETY: the box was made above, and nothing was put into it.
            drop(unsafe { Box::from_raw(place.cast::<std::mem::MaybeUninit<SimCq>>()) });
        })?;
        let mut raw = ibv_cq::zeroed();
        raw.context = context;
        raw.channel = channel;
        raw.cq_context = cq_context;
        raw.handle = id.index() as u32;
        raw.cqe = depth;
        // SAFETY: the box was made above for such an object.
        unsafe {
            place.write(SimCq {
                raw,
                shared: Arc::clone(shared),
                id,
                available: Arc::clone(&state.cqs[id].available),
            });
        }
        Ok(place.cast())
    };
    pointer(create())
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    let (shared, id) = object!(cq => SimCq { shared, id });
    let id = *id;
    let destroy = || {
        let mut state = shared.lock();
        let (context, users) = (state.cqs[id].context, state.cqs[id].users);
        let device = state.contexts[context].device;
        if !state.devices[device].is_removed {
            state.admit_call(Verb::DestroyCq, device)?;
        }
        if users > 0 {
            return Err(libc::EBUSY);
        }
        state.forget_events(context, Subject::Cq(id));
        state.forget_completion_events(id);
        let is_acknowledged = |state: &State| {
            let cq = &state.cqs[id];
            cq.unacknowledged_events == 0 && cq.unacknowledged_completion_events == 0
        };
        let mut state = shared.wait_until(state, is_acknowledged);
        state.remove_cq(id);
        Ok(())
    };
    let result = destroy();
    if result.is_ok() {
        // SAFETY: the caller's handle, used for the last time.
        drop(unsafe { Box::from_raw(cq.cast::<SimCq>()) });
    }
    returned(result)
}

pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    capacity: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let (shared, id, available) = object!(cq => SimCq { shared, id, available });
    let needs_attention = shared.needs_attention();
    // Programs poll empty queues all the time; that should not slow down the others.
    if available.load(Ordering::Acquire) == 0 && !needs_attention {
        return 0;
    }
    let Ok(capacity) = usize::try_from(capacity) else {
        return minus_one(Err(libc::EINVAL));
    };
    let mut state = shared.lock();
    if needs_attention {
        state = shared.run(state);
        let device = state.contexts[state.cqs[*id].context].device;
        // Completions of a device that is gone can still be polled.
        if !state.devices[device].is_removed
            && let Err(errno) = state.admit_call(Verb::PollCq, device)
        {
            return minus_one(Err(errno));
        }
    }
    let mut place = wc.cast::<RawCompletion>();
    let number = state.poll(*id, capacity, |completion| {
        // SAFETY: the caller's argument has room for `capacity` completions, which are laid out
        // like this.
        unsafe {
            place.write(completion);
            place = place.add(1);
        }
    });
    // It is at most `capacity`, which is an int.
    number as c_int
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let (shared, id) = object!(cq => SimCq { shared, id });
    let mut state = shared.lock();
    let device = state.contexts[state.cqs[*id].context].device;
    returned(
        state
            .admit_call(Verb::RequestNotification, device)
            .map(|()| state.arm(*id, solicited_only != 0)),
    )
}
