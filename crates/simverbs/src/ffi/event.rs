//! Asynchronous events.

use std::os::raw::c_int;
use std::sync::Arc;

use ibnet_verbs::EventType;
use ibnet_verbs::sys::{
    ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context, ibv_cq, ibv_qp,
};

use super::minus_one;
use super::objects::{SimContext, SimCq, SimQp, context_of, object};
use crate::engine::bell;
use crate::engine::events::{Pending, Subject};
use crate::engine::{Errno, State};

pub(crate) unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    minus_one(next_event(context).map(|next| {
        // SAFETY: the caller's argument.
        unsafe { event.write(next) };
        0
    }))
}

fn next_event(context: *mut ibv_context) -> Result<ibv_async_event, Errno> {
    let (shared, id) = object!(context_of(context) => SimContext { shared, id });
    loop {
        let mut state = shared.lock();
        if let Some(pending) = state.take_event(*id)? {
            return Ok(describe(&state, pending));
        }
        let fd = state.contexts[*id].bell.fd();
        drop(state);
        // The program says by the descriptor whether it wants to wait.
        if bell::is_non_blocking(fd) {
            return Err(libc::EAGAIN);
        }
        bell::wait(fd)?;
    }
}

fn describe(state: &State, pending: Pending) -> ibv_async_event {
    let element = match pending.subject {
        Subject::Device => ibv_async_event__bindgen_ty_1 { port_num: 0 },
        Subject::Port(number) => ibv_async_event__bindgen_ty_1 {
            port_num: number.into(),
        },
        Subject::Qp(qp) => ibv_async_event__bindgen_ty_1 {
            qp: state.qps[qp].handle.as_ptr(),
        },
        Subject::Cq(cq) => ibv_async_event__bindgen_ty_1 {
            cq: state.cqs[cq].handle.as_ptr(),
        },
    };
    ibv_async_event {
        element,
        event_type: pending.kind.raw(),
    }
}

pub(crate) unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's argument, which `get_async_event` filled.
    let event = unsafe { event.read() };
    match EventType::from_raw(event.event_type) {
        EventType::CQ_ERR => {
            // SAFETY: for this type it is the member that was filled.
            acknowledge_cq(unsafe { event.element.cq });
        }
        EventType::QP_FATAL
        | EventType::QP_REQ_ERR
        | EventType::QP_ACCESS_ERR
        | EventType::COMM_EST
        | EventType::SQ_DRAINED => {
            // SAFETY: for these types it is the member that was filled.
            acknowledge_qp(unsafe { event.element.qp });
        }
        _ => {}
    }
}

/// The queue was not destroyed: that would wait for this acknowledgement.
fn acknowledge_cq(cq: *mut ibv_cq) {
    let (shared, id) = object!(cq => SimCq { shared, id });
    // After the last acknowledgement another thread may free the queue, and all else with it.
    let shared = Arc::clone(shared);
    let mut state = shared.lock();
    let unacknowledged = &mut state.cqs[*id].unacknowledged_events;
    *unacknowledged = unacknowledged.saturating_sub(1);
    shared.notify();
}

/// As for a completion queue.
fn acknowledge_qp(qp: *mut ibv_qp) {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let shared = Arc::clone(shared);
    let mut state = shared.lock();
    let unacknowledged = &mut state.qps[*id].unacknowledged_events;
    *unacknowledged = unacknowledged.saturating_sub(1);
    shared.notify();
}
