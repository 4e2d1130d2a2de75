//! Posting, polling and events.

use std::cell::RefCell;
use std::os::raw::{c_int, c_uint, c_void};
use std::ptr;

use ibnet_verbs::sys::*;

use super::{Received, Sent, enter, fake, or_errno, or_minus_one, set_errno};

pub(super) unsafe extern "C" fn get_async_event(
    _: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    or_minus_one("get_async_event", || {
        let next = fake(|fake| match fake.events.is_empty() {
            true => Err(libc::EAGAIN),
            false => fake.events.remove(0),
        });
        match next {
            Ok(next) => {
                // SAFETY: the caller gives a valid place for the event.
                unsafe { *event = next };
                0
            }
            Err(errno) => {
                set_errno(errno);
                -1
            }
        }
    })
}

pub(super) unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    enter("ack_async_event");
    // SAFETY: the caller gives an event.
    let kind = unsafe { (*event).event_type };
    fake(|fake| fake.acknowledged.push(kind));
}

/// An event of a completion queue that asked for one.
pub(super) unsafe extern "C" fn get_cq_event(
    _: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    or_minus_one("get_cq_event", || {
        let Some(of) = NOTIFIED.with_borrow_mut(Vec::pop) else {
            set_errno(libc::EAGAIN);
            return -1;
        };
        // SAFETY: the caller gives valid places for the results.
        unsafe {
            *cq = of;
            *cq_context = ptr::null_mut();
        }
        0
    })
}

thread_local! {
    /// Completion queues that asked for notification: each gets an event at once.
    static NOTIFIED: RefCell<Vec<*mut ibv_cq>> = const { RefCell::new(Vec::new()) };
}

pub(super) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    enter("ack_cq_events");
    // SAFETY: the caller gives a completion queue that exists.
    unsafe { (*cq).comp_events_completed += number };
}

pub(super) unsafe extern "C" fn poll_cq(_: *mut ibv_cq, capacity: c_int, wc: *mut ibv_wc) -> c_int {
    or_minus_one("poll_cq", || {
        let capacity = usize::try_from(capacity).unwrap();
        let taken: Vec<_> = fake(|fake| {
            let number = capacity.min(fake.completions.len());
            fake.completions.drain(..number).collect()
        });
        // SAFETY: the caller gives room for `capacity` completions, which have this layout.
        unsafe { ptr::copy_nonoverlapping(taken.as_ptr(), wc.cast(), taken.len()) };
        taken.len() as c_int
    })
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, _solicited_only: c_int) -> c_int {
    or_errno("req_notify_cq", || {
        NOTIFIED.with_borrow_mut(|notified| notified.push(cq));
        0
    })
}

/// # Safety
///
/// The list has `number` elements.
unsafe fn element(list: *const ibv_sge, number: c_int) -> Option<(u64, u32, u32)> {
    // SAFETY: passed on to the caller.
    (number != 0).then(|| unsafe { ((*list).addr, (*list).length, (*list).lkey) })
}

/// Takes requests while there is room, and names the first that it does not take.
pub(super) unsafe extern "C" fn post_send(
    _: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    or_errno("post_send", || {
        while !wr.is_null() {
            // SAFETY: the caller gives a chain of valid requests, and a place for the bad one.
            let request = unsafe {
                if !take_room() {
                    *bad = wr;
                    return libc::ENOMEM;
                }
                *wr
            };
            // SAFETY: as above; every bit pattern of the unions is valid in the members read.
            let sent = unsafe {
                Sent {
                    wr_id: request.wr_id,
                    opcode: request.opcode,
                    flags: request.send_flags,
                    sge: element(request.sg_list, request.num_sge),
                    remote: (request.wr.rdma.remote_addr, request.wr.rdma.rkey),
                    immediate: request.__bindgen_anon_1.imm_data.to_ne_bytes(),
                }
            };
            fake(|fake| fake.sent.push(sent));
            wr = request.next;
        }
        0
    })
}

pub(super) unsafe extern "C" fn post_recv(
    _: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    or_errno("post_recv", || {
        while !wr.is_null() {
            // SAFETY: the caller gives a chain of valid requests, and a place for the bad one.
            let (wr_id, sge, next) = unsafe {
                if !take_room() {
                    *bad = wr;
                    return libc::ENOMEM;
                }
                (
                    (*wr).wr_id,
                    element((*wr).sg_list, (*wr).num_sge),
                    (*wr).next,
                )
            };
            fake(|fake| fake.received.push(Received { wr_id, sge }));
            wr = next;
        }
        0
    })
}

fn take_room() -> bool {
    fake(|fake| {
        let taken = fake.room > 0;
        fake.room -= usize::from(taken);
        taken
    })
}
