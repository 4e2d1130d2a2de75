//! [`WorkCompletion`]: how a work request ended.

use std::fmt;

use ibverbs_sys::ibv_wc;
use ibverbs_sys::ibv_wc_opcode::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND,
};
use ibverbs_sys::ibv_wc_status::{
    IBV_WC_BAD_RESP_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR, IBV_WC_LOC_ACCESS_ERR,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ABORT_ERR,
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RESP_TIMEOUT_ERR,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR,
};

use crate::c_enum::open_constants;

/// The completion of a work request (`struct ibv_wc`, ibv_poll_cq(3)).
///
/// Made in batches by [`Default`] and filled by
/// [`CompletionQueue::poll`](crate::CompletionQueue::poll).
///
/// After an error only [`wr_id`](Self::wr_id), [`status`](Self::status),
/// [`qp_num`](Self::qp_num) and [`vendor_error`](Self::vendor_error) mean anything: opcode and
/// length are whatever the driver left there. `Debug` prints accordingly.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct WorkCompletion(ibv_wc);

const _: () = {
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(align_of::<WorkCompletion>() == 8);
    assert!(size_of::<WorkCompletion>() == size_of::<ibv_wc>());
};

impl WorkCompletion {
    /// The identifier that the work request was given.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id()
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> WcStatus {
        WcStatus::from_raw(self.0.error().map_or(IBV_WC_SUCCESS, |(status, _)| status))
    }

    /// Whether the request succeeded.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.is_valid()
    }

    /// What kind of request it was. Undefined after an error.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode::from_raw(self.0.opcode())
    }

    /// How many bytes were received (or read, for an RDMA read). Undefined after an error, and
    /// for writes and sends.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        // The field has 32 bits; the accessor widens it.
        self.0.len() as u32
    }

    /// The immediate value that came with the message, in host byte order. None if there was
    /// none, or after an error.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.0.imm_data().map(u32::from_be)
    }

    /// The number of the local queue pair that the request was posted to.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// The vendor's code for the error, 0 after a success.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        self.0.error().map_or(0, |(_, vendor_error)| vendor_error)
    }
}

impl fmt::Debug for WorkCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("WorkCompletion");
        fields
            .field("wr_id", &format_args!("{:#x}", self.wr_id()))
            .field("qp_num", &format_args!("{:#x}", self.qp_num()))
            .field("status", &self.status());
        if self.is_success() {
            fields
                .field("opcode", &self.opcode())
                .field("byte_len", &self.byte_len())
                .field("immediate", &self.immediate());
        } else {
            fields.field("vendor_error", &format_args!("{:#x}", self.vendor_error()));
        }
        fields.finish()
    }
}

open_constants! {
    /// How a work request ended (`enum ibv_wc_status`, ibv_poll_cq(3)), as far as reliable
    /// connections know it.
    pub struct WcStatus(u32) {
        /// It succeeded.
        SUCCESS = IBV_WC_SUCCESS,
        /// The message was longer than the receive buffer, or than the port allows.
        LOC_LEN_ERR = IBV_WC_LOC_LEN_ERR,
        /// The request is inconsistent with its queue pair.
        LOC_QP_OP_ERR = IBV_WC_LOC_QP_OP_ERR,
        /// A local buffer is not covered by the memory region of its key.
        LOC_PROT_ERR = IBV_WC_LOC_PROT_ERR,
        /// It was still queued when the queue pair entered the error state.
        WR_FLUSH_ERR = IBV_WC_WR_FLUSH_ERR,
        /// The peer answered with an unexpected packet.
        BAD_RESP_ERR = IBV_WC_BAD_RESP_ERR,
        /// A write with immediate from the peer was not allowed here.
        LOC_ACCESS_ERR = IBV_WC_LOC_ACCESS_ERR,
        /// The peer found the request invalid: not supported there, or too long.
        REM_INV_REQ_ERR = IBV_WC_REM_INV_REQ_ERR,
        /// The peer does not allow access to that memory: wrong key, range or permission.
        REM_ACCESS_ERR = IBV_WC_REM_ACCESS_ERR,
        /// The peer failed while it carried the request out.
        REM_OP_ERR = IBV_WC_REM_OP_ERR,
        /// The peer did not acknowledge in time, however often it was tried.
        RETRY_EXC_ERR = IBV_WC_RETRY_EXC_ERR,
        /// The peer had no receive posted, however often it was tried.
        RNR_RETRY_EXC_ERR = IBV_WC_RNR_RETRY_EXC_ERR,
        /// The peer aborted the operation.
        REM_ABORT_ERR = IBV_WC_REM_ABORT_ERR,
        /// The device failed.
        FATAL_ERR = IBV_WC_FATAL_ERR,
        /// The peer did not respond in time.
        RESP_TIMEOUT_ERR = IBV_WC_RESP_TIMEOUT_ERR,
        /// Any other error.
        GENERAL_ERR = IBV_WC_GENERAL_ERR,
    }
}

impl WcStatus {
    /// What usually causes it. None for a success, and where the name says all there is.
    pub fn usual_cause(self) -> Option<&'static str> {
        match self {
            Self::LOC_PROT_ERR => Some(
                "the region of a local buffer lacks LOCAL_WRITE, which receives and reads need, or \
                 was deregistered, or the buffer exceeds it",
            ),
            Self::REM_ACCESS_ERR => Some(
                "the peer's region lacks REMOTE_WRITE with LOCAL_WRITE (for a read REMOTE_READ), or \
                 its queue pair does; or the region was deregistered, or the range exceeds it",
            ),
            Self::RETRY_EXC_ERR => Some(
                "the peer did not answer: its process died, a link is down, or the two GIDs cannot \
                 reach each other",
            ),
            Self::RNR_RETRY_EXC_ERR => Some("the peer had no receive posted"),
            Self::WR_FLUSH_ERR => {
                Some("the queue pair was stopped, by an earlier error or its owner")
            }
            Self::LOC_LEN_ERR => Some("the message is longer than the receive buffer"),
            _ => None,
        }
    }
}

open_constants! {
    /// What kind of work request completed (`enum ibv_wc_opcode`, ibv_poll_cq(3)), as far as this
    /// crate can post it.
    pub struct WcOpcode(u32) {
        /// A send.
        SEND = IBV_WC_SEND,
        /// An RDMA write, with or without immediate.
        RDMA_WRITE = IBV_WC_RDMA_WRITE,
        /// An RDMA read.
        RDMA_READ = IBV_WC_RDMA_READ,
        /// An atomic compare and swap.
        COMP_SWAP = IBV_WC_COMP_SWAP,
        /// An atomic fetch and add.
        FETCH_ADD = IBV_WC_FETCH_ADD,
        /// A receive, consumed by a send of the peer.
        RECV = IBV_WC_RECV,
        /// A receive, consumed by an RDMA write with immediate of the peer.
        RECV_RDMA_WITH_IMM = IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::RawCompletion;

    fn completion(raw: RawCompletion) -> WorkCompletion {
        // SAFETY: both have the layout of `struct ibv_wc` (asserted where they are defined).
        unsafe { std::mem::transmute(raw) }
    }

    #[test]
    fn what_a_driver_writes_is_what_is_read() {
        let wc = completion(RawCompletion {
            wr_id: 0x0102_0304_0506_0708,
            status: IBV_WC_SUCCESS,
            opcode: IBV_WC_RECV_RDMA_WITH_IMM,
            byte_len: u32::MAX,
            imm_data: 0xdead_beef_u32.to_be(),
            qp_num: 0x1234,
            wc_flags: 2,
            ..Default::default()
        });
        assert_eq!(wc.wr_id(), 0x0102_0304_0506_0708);
        assert!(wc.is_success());
        assert_eq!(wc.status(), WcStatus::SUCCESS);
        assert_eq!(wc.opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
        assert_eq!(wc.byte_len(), u32::MAX);
        assert_eq!(wc.immediate(), Some(0xdead_beef));
        assert_eq!(wc.qp_num(), 0x1234);
        assert_eq!(wc.vendor_error(), 0);
    }

    #[test]
    fn an_immediate_needs_its_flag_and_success() {
        let with = RawCompletion {
            imm_data: 7,
            wc_flags: 2,
            ..Default::default()
        };
        assert_eq!(completion(with).immediate(), Some(7_u32.swap_bytes()));
        let without = RawCompletion {
            wc_flags: 1,
            ..with
        };
        assert_eq!(completion(without).immediate(), None);
        let failed = RawCompletion {
            status: IBV_WC_WR_FLUSH_ERR,
            ..with
        };
        assert_eq!(completion(failed).immediate(), None);
    }

    #[test]
    fn errors_are_printed_without_their_undefined_fields() {
        let wc = completion(RawCompletion {
            status: IBV_WC_RETRY_EXC_ERR,
            vendor_err: 0x81,
            opcode: 99,
            ..Default::default()
        });
        assert_eq!(wc.vendor_error(), 0x81);
        let text = format!("{wc:?}");
        assert!(
            text.contains("IBV_WC_RETRY_EXC_ERR") && text.contains("0x81"),
            "{text}"
        );
        assert!(
            !text.contains("opcode") && !text.contains("byte_len"),
            "{text}"
        );
    }

    #[test]
    fn values_that_a_newer_driver_invents_are_kept() {
        let wc = completion(RawCompletion {
            status: 77,
            opcode: 1000,
            ..Default::default()
        });
        assert_eq!(wc.status(), WcStatus::from_raw(77));
        assert_eq!(wc.status().raw(), 77);
        assert_eq!(wc.status().to_string(), "WcStatus(77)");
        assert_eq!(wc.opcode(), WcOpcode::from_raw(1000));
    }

    #[test]
    fn an_unfilled_completion_is_no_success() {
        assert_eq!(WorkCompletion::default().status(), WcStatus::GENERAL_ERR);
    }
}
