//! Queue pairs: their making, their states, their end.

use std::collections::VecDeque;
use std::os::raw::c_int;
use std::ptr;

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::{
    ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state,
    ibv_qp_type, ibv_wc_status,
};

use crate::completion::NullCq;
use crate::post::{Stalled, resume};
use crate::query::{MAX_INLINE, MAX_PIECES, MAX_WORK_REQUESTS};
use crate::ring::Ring;
use crate::{fabric, set_errno};

/// A queue pair. Its address is the caller's handle.
#[repr(C)]
pub(crate) struct NullQp {
    pub(crate) raw: ibv_qp,
    /// Where the writes go. Null until it was found.
    pub(crate) peer: *mut Self,
    /// The receives that are posted, by identifier: what arrives has no need of their buffers.
    pub(crate) receives: Ring<u64>,
    /// What waits for the peer: to be connected, or to post a receive.
    pub(crate) stalled: VecDeque<Stalled>,
    /// The queue pair that waits for this one, or null.
    pub(crate) waiting: *mut Self,
    pub(crate) signal_all: bool,
    pub(crate) cap: ibv_qp_cap,
    attributes: ibv_qp_attr,
}

impl NullQp {
    /// The queue of completed sends.
    #[inline]
    pub(crate) fn send_cq(&self) -> *mut NullCq {
        self.raw.send_cq.cast()
    }

    /// The queue of completed receives.
    #[inline]
    pub(crate) fn recv_cq(&self) -> *mut NullCq {
        self.raw.recv_cq.cast()
    }

    /// The number that the peer was said to have.
    pub(crate) fn peer_number(&self) -> u32 {
        self.attributes.dest_qp_num
    }

    /// Whether writes from the peer are taken.
    pub(crate) fn can_receive(&self) -> bool {
        matches!(
            self.raw.state,
            ibv_qp_state::IBV_QPS_RTR | ibv_qp_state::IBV_QPS_RTS
        )
    }

    /// Goes to the state ERR: all that was posted completes as flushed.
    pub(crate) fn fail(&mut self) {
        self.raw.state = ibv_qp_state::IBV_QPS_ERR;
        while let Some(stalled) = self.stalled.pop_front() {
            self.flush_send(stalled.wr_id());
        }
        while let Some(wr_id) = self.receives.pop() {
            self.flush_receive(wr_id);
        }
    }

    pub(crate) fn flush_send(&mut self, wr_id: u64) {
        let completion = self.failed(wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
        // SAFETY: a completion queue lives longer than its queue pairs, by libibverbs' rules.
        unsafe { (*self.send_cq()).push(completion) };
    }

    pub(crate) fn flush_receive(&mut self, wr_id: u64) {
        let completion = self.failed(wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
        // SAFETY: as above.
        unsafe { (*self.recv_cq()).push(completion) };
    }

    pub(crate) fn failed(&self, wr_id: u64, status: u32) -> RawCompletion {
        RawCompletion {
            wr_id,
            status,
            qp_num: self.raw.qp_num,
            ..Default::default()
        }
    }

    fn reset(&mut self) {
        self.raw.state = ibv_qp_state::IBV_QPS_RESET;
        self.stalled.clear();
        self.receives.retain(|_| false);
        self.peer = ptr::null_mut();
        for cq in [self.send_cq(), self.recv_cq()] {
            // SAFETY: a completion queue lives longer than its queue pairs.
            unsafe { (*cq).forget(self.raw.qp_num) };
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's argument.
    let wanted = unsafe { attributes.read() };
    let cap = wanted.cap;
    let fits = cap.max_send_wr <= MAX_WORK_REQUESTS
        && cap.max_recv_wr <= MAX_WORK_REQUESTS
        && cap.max_send_sge <= MAX_PIECES
        && cap.max_recv_sge <= MAX_PIECES
        && cap.max_inline_data <= MAX_INLINE;
    let is_known = wanted.qp_type == ibv_qp_type::IBV_QPT_RC && wanted.srq.is_null();
    if !fits || !is_known || wanted.send_cq.is_null() || wanted.recv_cq.is_null() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: a structure of libibverbs.
    let mut raw: ibv_qp = unsafe { crate::zeroed() };
    // SAFETY: the caller's handle.
    raw.context = unsafe { (*pd).context };
    raw.qp_context = wanted.qp_context;
    raw.pd = pd;
    raw.send_cq = wanted.send_cq;
    raw.recv_cq = wanted.recv_cq;
    raw.qp_type = wanted.qp_type;
    raw.state = ibv_qp_state::IBV_QPS_RESET;
    let qp = Box::into_raw(Box::new(NullQp {
        raw,
        peer: ptr::null_mut(),
        receives: Ring::new(cap.max_recv_wr as usize),
        stalled: VecDeque::new(),
        waiting: ptr::null_mut(),
        signal_all: wanted.sq_sig_all != 0,
        cap,
        attributes: ibv_qp_attr::default(),
    }));
    match fabric::add(qp) {
        Some(number) => {
            // SAFETY: the box was just made, and nothing else knows of it.
            unsafe { (*qp).raw.qp_num = number };
            qp.cast()
        }
        None => {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(qp) });
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    use ibv_qp_state::{
        IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
    };
    let has = |bit: ibv_qp_attr_mask| mask as u32 & bit.0 != 0;
    let qp = qp.cast::<NullQp>();
    // SAFETY: the caller's handle and argument. Changing a queue pair's state while another thread
    // posts to it is against the rules of libibverbs, too.
    let (this, wanted) = unsafe { (&mut *qp, attributes.read()) };
    if has(ibv_qp_attr_mask::IBV_QP_DEST_QPN) && fabric::find(wanted.dest_qp_num).is_null() {
        eprintln!(
            "null device: queue pair {:#x} is none of this process: both ends of a connection must be",
            wanted.dest_qp_num
        );
        return libc::EINVAL;
    }
    if has(ibv_qp_attr_mask::IBV_QP_STATE) {
        match (this.raw.state, wanted.qp_state) {
            (_, IBV_QPS_RESET) => this.reset(),
            (_, IBV_QPS_ERR) => this.fail(),
            (IBV_QPS_RESET | IBV_QPS_INIT, IBV_QPS_INIT)
            | (IBV_QPS_INIT, IBV_QPS_RTR)
            | (IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD, IBV_QPS_RTS) => {
                this.raw.state = wanted.qp_state;
            }
            _ => return libc::EINVAL,
        }
    }
    remember(&mut this.attributes, &wanted, mask as u32);
    if this.can_receive() && !this.waiting.is_null() {
        // SAFETY: what waits takes itself off before it is destroyed.
        unsafe { resume(std::mem::replace(&mut this.waiting, ptr::null_mut())) };
    }
    0
}

/// Takes over the attributes that are told back by a query.
fn remember(known: &mut ibv_qp_attr, wanted: &ibv_qp_attr, mask: u32) {
    let has = |bit: ibv_qp_attr_mask| mask & bit.0 != 0;
    if has(ibv_qp_attr_mask::IBV_QP_DEST_QPN) {
        known.dest_qp_num = wanted.dest_qp_num;
    }
    if has(ibv_qp_attr_mask::IBV_QP_PATH_MTU) {
        known.path_mtu = wanted.path_mtu;
    }
    if has(ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS) {
        known.qp_access_flags = wanted.qp_access_flags;
    }
    if has(ibv_qp_attr_mask::IBV_QP_PORT) {
        known.port_num = wanted.port_num;
    }
    if has(ibv_qp_attr_mask::IBV_QP_AV) {
        known.ah_attr = wanted.ah_attr;
    }
    if has(ibv_qp_attr_mask::IBV_QP_RQ_PSN) {
        known.rq_psn = wanted.rq_psn;
    }
    if has(ibv_qp_attr_mask::IBV_QP_SQ_PSN) {
        known.sq_psn = wanted.sq_psn;
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's handle and arguments. All that is known is told, whatever the mask: it
    // only says what is needed.
    unsafe {
        let this = &*qp.cast::<NullQp>();
        let mut answer = this.attributes;
        answer.qp_state = this.raw.state;
        answer.cur_qp_state = this.raw.state;
        answer.cap = this.cap;
        attributes.write(answer);
        init.write(ibv_qp_init_attr {
            qp_context: this.raw.qp_context,
            send_cq: this.raw.send_cq,
            recv_cq: this.raw.recv_cq,
            srq: ptr::null_mut(),
            cap: this.cap,
            qp_type: this.raw.qp_type,
            sq_sig_all: this.signal_all.into(),
        });
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let qp = qp.cast::<NullQp>();
    // SAFETY: the caller's handle, used for the last time. Its peer, if there is one, is another
    // live queue pair, because each takes itself off its peer here.
    unsafe {
        let this = &mut *qp;
        this.reset();
        let peer = fabric::find(this.peer_number());
        if !peer.is_null() && peer != qp {
            if (*peer).peer == qp {
                (*peer).peer = ptr::null_mut();
            }
            if (*peer).waiting == qp {
                (*peer).waiting = ptr::null_mut();
            }
        }
        fabric::remove(this.raw.qp_num);
        drop(Box::from_raw(qp));
    }
    0
}
