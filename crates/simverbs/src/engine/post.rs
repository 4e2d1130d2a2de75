//! Taking requests into the queues.

use super::queue::{Element, SendHead};
use super::slab::QpId;
use super::{Errno, State, qp::QpState};
use crate::faults::Verb;

impl State {
    /// Takes a send request into its queue. `data` is what it carries if it is inline.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a request that the queue pair was not made for, or in a state in which it
    /// takes none; `ENOMEM` if the queue is full; `EIO` if the device is gone.
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        id: QpId,
        head: SendHead,
        elements: impl ExactSizeIterator<Item = Element>,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Errno> {
        self.admit_qp_call(Verb::PostSend, id)?;
        let qp = &mut self.qps[id];
        if !matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Error) {
            return Err(libc::EINVAL);
        }
        if elements.len() > qp.capabilities.max_send_sge as usize {
            return Err(libc::EINVAL);
        }
        let limit = u64::from(qp.capabilities.max_inline_data);
        let may_be_inline =
            head.length <= limit && (head.opcode.is_write() || head.opcode.is_send());
        if head.is_inline && !may_be_inline {
            return Err(libc::EINVAL);
        }
        if qp.send.is_full() {
            return Err(libc::ENOMEM);
        }
        let wqe = qp.send.push();
        wqe.head = head;
        wqe.elements.clear();
        wqe.elements.extend(elements);
        wqe.data.clear();
        if head.is_inline {
            data(&mut wqe.data);
        }
        wqe.failure = None;
        wqe.is_read = false;
        wqe.is_seen = false;
        wqe.fails_after = None;
        Ok(())
    }

    /// Takes a receive request into its queue.
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send).
    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        id: QpId,
        wr_id: u64,
        elements: impl ExactSizeIterator<Item = Element>,
    ) -> Result<(), Errno> {
        self.admit_qp_call(Verb::PostRecv, id)?;
        let qp = &mut self.qps[id];
        if qp.state == QpState::Reset || elements.len() > qp.capabilities.max_recv_sge as usize {
            return Err(libc::EINVAL);
        }
        if qp.recv.is_full() {
            return Err(libc::ENOMEM);
        }
        let wqe = qp.recv.push();
        wqe.wr_id = wr_id;
        wqe.elements.clear();
        wqe.elements.extend(elements);
        Ok(())
    }
    /// Whether requests that are posted now are flushed.
    pub(crate) fn is_failed(&self, id: QpId) -> bool {
        self.qps[id].state == QpState::Error
    }
}
