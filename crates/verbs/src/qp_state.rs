//! [`QueuePairState`]: the states of a queue pair.

use ibverbs_sys::ibv_qp_state::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
};

use crate::c_enum::open_constants;

open_constants! {
    /// The state of a queue pair (`enum ibv_qp_state`, ibv_modify_qp(3)).
    pub struct QueuePairState(u32) {
        /// New, or reset: nothing is queued and nothing happens.
        RESET = IBV_QPS_RESET,
        /// Receives can be posted.
        INIT = IBV_QPS_INIT,
        /// Messages are received.
        RTR = IBV_QPS_RTR,
        /// Messages are received and sent.
        RTS = IBV_QPS_RTS,
        /// The send queue is being drained.
        SQD = IBV_QPS_SQD,
        /// The send queue failed. Not for reliable connections.
        SQE = IBV_QPS_SQE,
        /// Failed, or moved here: everything queued is flushed.
        ERR = IBV_QPS_ERR,
    }
}
