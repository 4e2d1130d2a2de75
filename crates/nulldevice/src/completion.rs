//! Completion queues.

use std::os::raw::{c_int, c_void};
use std::ptr;

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};

use crate::query::MAX_COMPLETIONS;
use crate::ring::Ring;
use crate::{owner, set_errno};

/// A completion queue. Its address is the caller's handle.
#[repr(C)]
pub(crate) struct NullCq {
    raw: ibv_cq,
    ring: Ring<RawCompletion>,
}

impl NullCq {
    /// Adds a completion.
    #[inline]
    pub(crate) fn push(&mut self, completion: RawCompletion) {
        if !self.ring.push(completion) {
            overrun(self.raw.cqe);
        }
    }

    /// Forgets the completions of a queue pair that is reset or destroyed.
    pub(crate) fn forget(&mut self, qp_num: u32) {
        self.ring.retain(|completion| completion.qp_num != qp_num);
    }
}

/// On a real device this is the end of the queue and of all that uses it.
#[cold]
fn overrun(depth: c_int) {
    eprintln!("null device: a completion queue of {depth} entries overran");
    std::process::abort();
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    depth: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if !(1..=MAX_COMPLETIONS).contains(&depth) || vector != 0 || !channel.is_null() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: a structure of libibverbs.
    let mut raw: ibv_cq = unsafe { crate::zeroed() };
    raw.context = context;
    raw.cq_context = cq_context;
    raw.cqe = depth;
    let cq = NullCq {
        raw,
        ring: Ring::new(depth as usize),
    };
    Box::into_raw(Box::new(cq)).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's handle, used for the last time.
    drop(unsafe { Box::from_raw(cq.cast::<NullCq>()) });
    0
}

pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    capacity: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    owner::check();
    // SAFETY: the caller's handle. Only the owning thread, which this is, touches the ring.
    let cq = unsafe { &mut *cq.cast::<NullCq>() };
    let mut number = 0;
    while number < capacity {
        let Some(completion) = cq.ring.pop() else {
            break;
        };
        // SAFETY: the caller's argument has room for `capacity` completions, which are laid out
        // like this; `number` is smaller and not negative.
        unsafe {
            wc.cast::<RawCompletion>()
                .add(number as usize)
                .write(completion)
        };
        number += 1;
    }
    number
}
