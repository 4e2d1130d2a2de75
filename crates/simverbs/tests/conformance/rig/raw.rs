//! What the safe interface does not let one say: any attributes with any mask, and requests with
//! several elements.

use std::ptr;

use ibnet_verbs::sys::{
    ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wr_opcode,
};
use ibnet_verbs::{Destination, QueuePair, QueuePairState, ReadyToReceive, ReadyToSend, Sge};

use super::end::PORT;
use crate::behaviour::{Outcome, returned};

/// Modifies a queue pair by the bare function. Nothing is checked before.
pub(crate) fn modify(qp: &QueuePair, attributes: &mut ibv_qp_attr, mask: bits) -> Outcome {
    let modify_qp = qp.pd().context().library().functions().modify_qp;
    // SAFETY: the queue pair exists, and the argument is valid.
    returned(unsafe { modify_qp(qp.as_raw(), attributes, mask.0.cast_signed()) })
}

/// All attributes that are needed on the way to RTS, and the masks of the three steps: to INIT, to
/// RTR and to RTS.
pub(crate) fn attributes(
    access: ibnet_verbs::Access,
    rtr: &ReadyToReceive,
    rts: &ReadyToSend,
) -> (ibv_qp_attr, [bits; 3]) {
    let mut raw = ibv_qp_attr {
        port_num: PORT,
        qp_access_flags: access.bits(),
        path_mtu: rtr.mtu.raw(),
        dest_qp_num: rtr.remote_qp,
        rq_psn: rtr.remote_psn,
        max_dest_rd_atomic: rtr.max_dest_rd_atomic,
        min_rnr_timer: rtr.min_rnr_timer,
        sq_psn: rts.psn,
        timeout: rts.timeout,
        retry_cnt: rts.retry_count,
        rnr_retry: rts.rnr_retry,
        max_rd_atomic: rts.max_rd_atomic,
        ..Default::default()
    };
    raw.ah_attr.port_num = rtr.address.port;
    let Destination { lid, route } = rtr.address.destination;
    raw.ah_attr.dlid = lid;
    if let Some(route) = route {
        raw.ah_attr.is_global = 1;
        raw.ah_attr.grh.dgid.raw = route.dgid.0;
        raw.ah_attr.grh.sgid_index = route.sgid_index;
        raw.ah_attr.grh.hop_limit = route.hop_limit;
    }
    let to_init = bits::IBV_QP_STATE
        | bits::IBV_QP_PORT
        | bits::IBV_QP_PKEY_INDEX
        | bits::IBV_QP_ACCESS_FLAGS;
    let to_rtr = bits::IBV_QP_STATE
        | bits::IBV_QP_AV
        | bits::IBV_QP_PATH_MTU
        | bits::IBV_QP_DEST_QPN
        | bits::IBV_QP_RQ_PSN
        | bits::IBV_QP_MAX_DEST_RD_ATOMIC
        | bits::IBV_QP_MIN_RNR_TIMER;
    let to_rts = bits::IBV_QP_STATE
        | bits::IBV_QP_SQ_PSN
        | bits::IBV_QP_TIMEOUT
        | bits::IBV_QP_RETRY_CNT
        | bits::IBV_QP_RNR_RETRY
        | bits::IBV_QP_MAX_QP_RD_ATOMIC;
    raw.qp_state = QueuePairState::INIT.raw();
    (raw, [to_init, to_rtr, to_rts])
}

/// Posts a chain of signalled sends, each with these elements, numbered from 1. Gives how the call
/// ended and how many requests it accepted.
pub(crate) fn post_elements(qp: &QueuePair, chain: &[Vec<Sge>]) -> (Outcome, u64) {
    let mut elements = raw_elements(chain);
    let mut requests: Vec<_> = (1..)
        .zip(&mut elements)
        .map(|(wr_id, list)| ibv_send_wr {
            wr_id,
            sg_list: list.as_mut_ptr(),
            num_sge: list.len() as i32,
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            send_flags: ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        })
        .collect();
    let first = requests.as_mut_ptr();
    for index in 1..requests.len() {
        // SAFETY: both are within the list.
        unsafe { (*first.add(index - 1)).next = first.add(index) };
    }
    let mut bad = ptr::null_mut();
    // SAFETY: the context is open as long as the queue pair exists.
    let operation = unsafe { (*qp.pd().context().as_raw()).ops.post_send };
    let Some(operation) = operation else {
        return (Outcome::Failed, 0);
    };
    // SAFETY: the queue pair exists, the chain is valid, and the elements are of memory that the
    // ends keep.
    let outcome = returned(unsafe { operation(qp.as_raw(), first, &raw mut bad) });
    let accepted = match bad.is_null() {
        true => requests.len() as u64,
        // SAFETY: the function points to a request of the chain.
        false => (unsafe { (*bad).wr_id }) - 1,
    };
    (outcome, accepted)
}

/// Posts one receive with these elements.
pub(crate) fn receive_elements(qp: &QueuePair, wr_id: u64, elements: &[Sge]) -> Outcome {
    let mut elements = raw_elements(&[elements.to_vec()]).remove(0);
    let mut request = ibv_recv_wr {
        wr_id,
        sg_list: elements.as_mut_ptr(),
        num_sge: elements.len() as i32,
        ..Default::default()
    };
    let mut bad = ptr::null_mut();
    // SAFETY: the context is open as long as the queue pair exists.
    let operation = unsafe { (*qp.pd().context().as_raw()).ops.post_recv };
    let Some(operation) = operation else {
        return Outcome::Failed;
    };
    // SAFETY: as for `post_elements`.
    returned(unsafe { operation(qp.as_raw(), &raw mut request, &raw mut bad) })
}

fn raw_elements(chain: &[Vec<Sge>]) -> Vec<Vec<ibv_sge>> {
    let lists = chain.iter();
    lists
        .map(|list| list.iter().map(|&sge| sge.into()).collect())
        .collect()
}
