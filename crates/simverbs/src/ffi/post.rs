//! Posting requests.

use std::os::raw::c_int;
use std::slice;

use ibnet_verbs::sys::{ibv_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};

use super::objects::{SimQp, object};
use crate::engine::queue::{Element, Opcode, SendHead};
use crate::engine::slab::QpId;
use crate::engine::{Errno, State};

/// The elements of a request.
///
/// # Safety
///
/// The list has `number` elements.
unsafe fn elements<'a>(list: *const ibv_sge, number: c_int) -> Result<&'a [ibv_sge], Errno> {
    match usize::try_from(number) {
        Ok(0) => Ok(&[]),
        // SAFETY: passed on to the caller.
        Ok(number) => Ok(unsafe { slice::from_raw_parts(list, number) }),
        Err(_) => Err(libc::EINVAL),
    }
}

fn element(sge: &ibv_sge) -> Element {
    Element {
        address: sge.addr,
        length: sge.length,
        lkey: sge.lkey,
    }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let mut state = shared.lock();
    let mut request = first;
    let mut result = 0;
    while !request.is_null() {
        // SAFETY: the caller's chain.
        let posted = unsafe { post_one(&mut state, *id, &*request) };
        if let Err(errno) = posted {
            // SAFETY: the caller's argument.
            unsafe { bad.write(request) };
            result = errno;
            break;
        }
        // SAFETY: the caller's chain.
        request = unsafe { (*request).next };
    }
    if !shared.is_stepped() {
        state.enqueue(*id);
        drop(shared.run(state));
    }
    result
}

/// # Safety
///
/// The request is valid, and its inline data readable.
#[inline]
unsafe fn post_one(state: &mut State, id: QpId, request: &ibv_send_wr) -> Result<(), Errno> {
    let flag = |flag: ibv_send_flags| request.send_flags & flag.0 != 0;
    // SAFETY: passed on to the caller.
    let list = unsafe { elements(request.sg_list, request.num_sge) }?;
    // SAFETY: any bits are valid in these members.
    let (immediate, rdma) = unsafe { (request.__bindgen_anon_1.imm_data, request.wr.rdma) };
    let head = SendHead {
        wr_id: request.wr_id,
        opcode: match request.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => Opcode::Write,
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => Opcode::WriteWithImmediate,
            ibv_wr_opcode::IBV_WR_SEND => Opcode::Send,
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => Opcode::SendWithImmediate,
            ibv_wr_opcode::IBV_WR_RDMA_READ => Opcode::Read,
            // Atomics, memory windows and others are not simulated.
            _ => return Err(libc::EINVAL),
        },
        is_signaled: flag(ibv_send_flags::IBV_SEND_SIGNALED),
        is_solicited: flag(ibv_send_flags::IBV_SEND_SOLICITED),
        is_fenced: flag(ibv_send_flags::IBV_SEND_FENCE),
        is_inline: flag(ibv_send_flags::IBV_SEND_INLINE),
        immediate,
        length: list.iter().map(|sge| u64::from(sge.length)).sum(),
        remote: rdma.remote_addr,
        rkey: rdma.rkey,
    };
    state.post_send(id, head, list.iter().map(element), |data| {
        for sge in list.iter().filter(|sge| sge.length != 0) {
            // SAFETY: passed on to the caller.
            data.extend_from_slice(unsafe {
                slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
            });
        }
    })
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let mut state = shared.lock();
    let mut request = first;
    let mut result = 0;
    while !request.is_null() {
        // SAFETY: the caller's chain.
        let (wr_id, list, next) = unsafe {
            let list = elements((*request).sg_list, (*request).num_sge);
            ((*request).wr_id, list, (*request).next)
        };
        let posted = list.and_then(|list| state.post_recv(*id, wr_id, list.iter().map(element)));
        if let Err(errno) = posted {
            // SAFETY: the caller's argument.
            unsafe { bad.write(request) };
            result = errno;
            break;
        }
        request = next;
    }
    // Only in ERR has a receive anything to do by itself.
    if !shared.is_stepped() && state.is_failed(*id) {
        state.enqueue(*id);
        drop(shared.run(state));
    }
    result
}
