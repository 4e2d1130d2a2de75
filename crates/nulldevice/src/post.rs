//! Posting, which is where everything happens.

use std::os::raw::{c_int, c_uint};
use std::{ptr, slice};

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::{
    ibv_access_flags, ibv_qp, ibv_qp_state, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};

use crate::queue_pair::NullQp;
use crate::{fabric, memory, owner};

const SIGNALED: c_uint = ibv_send_flags::IBV_SEND_SIGNALED.0;
const INLINE: c_uint = ibv_send_flags::IBV_SEND_INLINE.0;
const WITH_IMMEDIATE: u32 = ibv_wc_flags::IBV_WC_WITH_IMM.0;
const LOCAL_WRITE: c_uint = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const REMOTE_WRITE: c_uint = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const REMOTE_READ: c_uint = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;

/// A request that could not be carried out yet, with all that it needs later.
pub(crate) struct Stalled {
    request: ibv_send_wr,
    pieces: Vec<ibv_sge>,
    /// The bytes of an inline request, to which `pieces` then points.
    bytes: Vec<u8>,
}

impl Stalled {
    /// The identifier of the request.
    pub(crate) fn wr_id(&self) -> u64 {
        self.request.wr_id
    }
}

/// How carrying out a request went.
enum Outcome {
    Done,
    /// It needs a receive of the peer, or a peer.
    Stalled,
    /// It failed with this `IBV_WC_*`.
    Failed(u32),
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    request: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    owner::check();
    let qp = qp.cast::<NullQp>();
    let mut next = request;
    while !next.is_null() {
        // SAFETY: the caller's handle and argument: a chain of requests. Only the owning thread,
        // which this is, uses queue pairs.
        let errno = unsafe { post_one(qp, &*next) };
        if errno != 0 {
            // SAFETY: the caller's argument.
            unsafe { bad.write(next) };
            return errno;
        }
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
    0
}

/// # Safety
///
/// The caller's handle and argument.
#[inline]
unsafe fn post_one(qp: *mut NullQp, request: &ibv_send_wr) -> c_int {
    // SAFETY: the caller's handle; the reference ends before the peer's is made, which may be the
    // same queue pair.
    let (state, is_behind, cap) = unsafe {
        let this = &*qp;
        (this.raw.state, !this.stalled.is_empty(), this.cap)
    };
    match state {
        ibv_qp_state::IBV_QPS_RTS => {}
        ibv_qp_state::IBV_QPS_ERR | ibv_qp_state::IBV_QPS_SQE => {
            // SAFETY: the caller's handle.
            unsafe { (*qp).flush_send(request.wr_id) };
            return 0;
        }
        _ => return libc::EINVAL,
    }
    let pieces = pieces_of(request);
    if pieces.len() > cap.max_send_sge as usize || !is_known(request.opcode) {
        return libc::EINVAL;
    }
    if request.send_flags & INLINE != 0 && length_of(pieces) > cap.max_inline_data {
        return libc::EINVAL;
    }
    if is_behind {
        // SAFETY: the caller's handle and argument.
        return unsafe { stall(qp, request, pieces) };
    }
    // SAFETY: the caller's handle and argument.
    match unsafe { carry_out(qp, request, pieces) } {
        Outcome::Done => 0,
        // SAFETY: the caller's handle and argument.
        Outcome::Stalled => unsafe { stall(qp, request, pieces) },
        Outcome::Failed(status) => {
            // SAFETY: the caller's handle.
            unsafe { break_down(qp, request.wr_id, status) };
            0
        }
    }
}

fn is_known(opcode: ibv_wr_opcode::Type) -> bool {
    matches!(
        opcode,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE
            | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
            | ibv_wr_opcode::IBV_WR_RDMA_READ
    )
}

#[inline]
fn pieces_of(request: &ibv_send_wr) -> &[ibv_sge] {
    match usize::try_from(request.num_sge) {
        // SAFETY: the caller's argument: so many pieces are there.
        Ok(number @ 1..) => unsafe { slice::from_raw_parts(request.sg_list, number) },
        _ => &[],
    }
}

fn length_of(pieces: &[ibv_sge]) -> u32 {
    pieces.iter().map(|piece| piece.length).sum()
}

/// # Safety
///
/// The caller's handle; pieces are memory that may be read (or written, for an RDMA read) now.
#[inline]
unsafe fn carry_out(qp: *mut NullQp, request: &ibv_send_wr, pieces: &[ibv_sge]) -> Outcome {
    // SAFETY: the caller's handle. Of a peer only single fields are used, one after the other,
    // because it may be this queue pair itself.
    unsafe {
        let peer = match (*qp).peer {
            known if !known.is_null() => known,
            _ => match find_peer(qp) {
                Ok(peer) => peer,
                Err(outcome) => return outcome,
            },
        };
        let (remote, key) = (request.wr.rdma.remote_addr, request.wr.rdma.rkey);
        if request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ {
            return read(qp, request, pieces, remote, key);
        }
        let with_immediate = request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
        let receive = match with_immediate.then(|| (*peer).receives.pop()) {
            Some(None) => {
                (*peer).waiting = qp;
                return Outcome::Stalled;
            }
            Some(receive) => receive,
            None => None,
        };
        let mut to = remote;
        for piece in pieces {
            let is_inline = request.send_flags & INLINE != 0;
            if !is_inline && !memory::allows(piece.lkey, piece.addr, piece.length, 0) {
                return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
            }
            if !memory::allows(key, to, piece.length, REMOTE_WRITE) {
                return Outcome::Failed(ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
            }
            copy(piece.addr, to, piece.length);
            to += u64::from(piece.length);
        }
        if let Some(wr_id) = receive {
            (*(*peer).recv_cq()).push(RawCompletion {
                wr_id,
                status: ibv_wc_status::IBV_WC_SUCCESS,
                opcode: ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
                // What was written is at most 2 GiB.
                byte_len: (to - remote) as u32,
                imm_data: request.__bindgen_anon_1.imm_data,
                qp_num: (*peer).raw.qp_num,
                wc_flags: WITH_IMMEDIATE,
                ..Default::default()
            });
        }
        complete(qp, request, ibv_wc_opcode::IBV_WC_RDMA_WRITE, 0);
        Outcome::Done
    }
}

/// # Safety
///
/// As for [`carry_out`].
unsafe fn read(
    qp: *mut NullQp,
    request: &ibv_send_wr,
    pieces: &[ibv_sge],
    remote: u64,
    key: u32,
) -> Outcome {
    let mut from = remote;
    for piece in pieces {
        if !memory::allows(piece.lkey, piece.addr, piece.length, LOCAL_WRITE) {
            return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
        }
        if !memory::allows(key, from, piece.length, REMOTE_READ) {
            return Outcome::Failed(ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
        }
        // SAFETY: as for `carry_out`.
        unsafe { copy(from, piece.addr, piece.length) };
        from += u64::from(piece.length);
    }
    // SAFETY: the caller's handle. What was read is at most 2 GiB.
    unsafe {
        complete(
            qp,
            request,
            ibv_wc_opcode::IBV_WC_RDMA_READ,
            (from - remote) as u32,
        )
    };
    Outcome::Done
}

/// # Safety
///
/// Both are ranges of this process's memory that were registered, as far as the transport does
/// right; debug builds have checked it.
#[inline]
unsafe fn copy(from: u64, to: u64, length: u32) {
    let from = ptr::with_exposed_provenance::<u8>(from as usize);
    let to = ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: promised by the caller. They may overlap: a buffer may be sent to itself.
    unsafe { ptr::copy(from, to, length as usize) };
}

/// # Safety
///
/// The caller's handle.
#[inline]
unsafe fn complete(qp: *mut NullQp, request: &ibv_send_wr, opcode: u32, byte_len: u32) {
    // SAFETY: the caller's handle, and its completion queue, which lives longer.
    unsafe {
        if request.send_flags & SIGNALED != 0 || (*qp).signal_all {
            (*(*qp).send_cq()).push(RawCompletion {
                wr_id: request.wr_id,
                status: ibv_wc_status::IBV_WC_SUCCESS,
                opcode,
                byte_len,
                qp_num: (*qp).raw.qp_num,
                ..Default::default()
            });
        }
    }
}

/// Finds the peer for the first request.
///
/// # Safety
///
/// The caller's handle.
#[cold]
unsafe fn find_peer(qp: *mut NullQp) -> Result<*mut NullQp, Outcome> {
    // SAFETY: the caller's handle; what is in the table is alive.
    unsafe {
        let peer = fabric::find((*qp).peer_number());
        if peer.is_null() {
            return Err(Outcome::Failed(ibv_wc_status::IBV_WC_RETRY_EXC_ERR));
        }
        if !(*peer).can_receive() {
            (*peer).waiting = qp;
            return Err(Outcome::Stalled);
        }
        (*qp).peer = peer;
        Ok(peer)
    }
}

/// Keeps a request for later.
///
/// # Safety
///
/// The caller's handle and argument.
#[cold]
unsafe fn stall(qp: *mut NullQp, request: &ibv_send_wr, pieces: &[ibv_sge]) -> c_int {
    // SAFETY: the caller's handle.
    let this = unsafe { &mut *qp };
    if this.stalled.len() >= this.cap.max_send_wr as usize {
        return libc::ENOMEM;
    }
    let mut kept = Stalled {
        request: *request,
        pieces: pieces.to_vec(),
        bytes: Vec::new(),
    };
    if request.send_flags & INLINE != 0 {
        for piece in pieces {
            let from = ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: the caller's argument: memory that may be read until the call returns.
            let bytes = unsafe { slice::from_raw_parts(from, piece.length as usize) };
            kept.bytes.extend_from_slice(bytes);
        }
        kept.pieces = vec![ibv_sge {
            addr: kept.bytes.as_ptr().expose_provenance() as u64,
            // Inline data is at most a few hundred bytes.
            length: kept.bytes.len() as u32,
            lkey: 0,
        }];
    }
    this.stalled.push_back(kept);
    0
}

/// Carries out what had to wait, as far as it goes now.
///
/// # Safety
///
/// A live queue pair.
pub(crate) unsafe fn resume(qp: *mut NullQp) {
    // SAFETY: the caller's queue pair. The request is out of the queue while it is carried out.
    unsafe {
        while let Some(stalled) = (*qp).stalled.pop_front() {
            match carry_out(qp, &stalled.request, &stalled.pieces) {
                Outcome::Done => {}
                Outcome::Stalled => {
                    (*qp).stalled.push_front(stalled);
                    return;
                }
                Outcome::Failed(status) => {
                    break_down(qp, stalled.wr_id(), status);
                    return;
                }
            }
        }
    }
}

/// # Safety
///
/// The caller's handle.
#[cold]
unsafe fn break_down(qp: *mut NullQp, wr_id: u64, status: u32) {
    // SAFETY: the caller's handle, and its completion queue, which lives longer.
    unsafe {
        let completion = (*qp).failed(wr_id, status);
        (*(*qp).send_cq()).push(completion);
        (*qp).fail();
    }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    request: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    owner::check();
    let qp = qp.cast::<NullQp>();
    let mut next = request;
    while !next.is_null() {
        // SAFETY: the caller's handle and argument: a chain of requests.
        unsafe {
            let wr_id = (*next).wr_id;
            let errno = match (*qp).raw.state {
                ibv_qp_state::IBV_QPS_RESET => libc::EINVAL,
                ibv_qp_state::IBV_QPS_ERR => {
                    (*qp).flush_receive(wr_id);
                    0
                }
                _ if (*qp).receives.push(wr_id) => 0,
                _ => libc::ENOMEM,
            };
            if errno != 0 {
                bad.write(next);
                return errno;
            }
            next = (*next).next;
        }
    }
    // SAFETY: the caller's handle. What waits takes itself off before it is destroyed.
    unsafe {
        let waiting = (*qp).waiting;
        if !waiting.is_null() {
            (*qp).waiting = ptr::null_mut();
            resume(waiting);
        }
    }
    0
}
