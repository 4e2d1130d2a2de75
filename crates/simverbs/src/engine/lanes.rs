//! The ways in which a queue pair can get ahead at a moment.

use super::State;
use super::cq::Side;
use super::place::CopyJob;
use super::qp::{Qp, QpState};
use super::queue::Opcode;
use super::slab::QpId;

/// One way to get ahead by one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lane {
    /// The next message goes to the peer, or a part of it.
    Deliver,
    /// Data of a read comes back, or a part of it.
    ReadData,
    /// An acknowledgement comes back.
    Acknowledge,
    /// In ERR: a send request is flushed.
    FlushSend,
    /// In ERR: a receive is flushed.
    FlushRecv,
}

impl Lane {
    /// In the order in which a free-running fabric takes them: as many messages as possible go
    /// out before one acknowledgement for all of them comes back.
    pub(crate) const ALL: [Self; 5] = [
        Self::Deliver,
        Self::ReadData,
        Self::Acknowledge,
        Self::FlushSend,
        Self::FlushRecv,
    ];
}

impl Qp {
    /// Whether a lane leads anywhere now.
    pub(crate) fn is_open(&self, lane: Lane) -> bool {
        let requester = &self.requester;
        let waits = requester.is_stalled || requester.is_copying;
        match lane {
            Lane::Deliver => !waits && !requester.is_halted && self.may_begin(),
            Lane::ReadData => !waits && self.state.sends() && !requester.reads.is_empty(),
            Lane::Acknowledge => {
                let is_due = requester.acknowledged < requester.next || requester.refused.is_some();
                !waits && self.state.sends() && is_due
            }
            // Memory must not be given back while a copy to or from it is under way.
            Lane::FlushSend => {
                self.state == QpState::Error && self.copies == 0 && self.has_unfinished_sends()
            }
            Lane::FlushRecv => {
                self.state == QpState::Error && self.copies == 0 && self.has_receive()
            }
        }
    }

    /// Whether the request that is next may be sent now.
    fn may_begin(&self) -> bool {
        let requester = &self.requester;
        if requester.next >= self.send.posted() {
            return false;
        }
        match self.state {
            QpState::Rts => {}
            QpState::Sqd if requester.partial.is_some() => {}
            _ => return false,
        }
        let head = &self.send.get(requester.next).head;
        let under_way = requester.reads.len();
        if head.is_fenced && under_way > 0 {
            return false;
        }
        // A limit of 0 cannot be waited for: the request will fail.
        let limit = usize::from(self.attributes.max_rd_atomic).max(1);
        head.opcode != Opcode::Read || under_way < limit
    }
}

impl State {
    /// Takes a step in an open lane.
    pub(crate) fn take(&mut self, id: QpId, lane: Lane) -> Option<CopyJob> {
        match lane {
            Lane::Deliver => return self.deliver(id),
            Lane::ReadData => return self.take_read_data(id),
            Lane::Acknowledge => self.take_acknowledgement(id),
            Lane::FlushSend => self.flush(id, Side::Send),
            Lane::FlushRecv => self.flush(id, Side::Recv),
        }
        None
    }
}
