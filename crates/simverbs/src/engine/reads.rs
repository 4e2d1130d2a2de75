//! The data of RDMA reads, on its way back.

use super::State;
use super::message::{Plan, Stop};
use super::place::{CopyJob, Direction, Placed};
use super::qp::Partial;
use super::regions::REMOTE_READ;
use super::slab::QpId;
use ibnet_verbs::WcStatus;

impl State {
    /// Gets ahead with the oldest read that the peer serves.
    pub(crate) fn take_read_data(&mut self, id: QpId) -> Option<CopyJob> {
        let index = self.qps[id].requester.reads.front()?.index;
        let plan = match self.admit_data(id, index) {
            Ok(plan) => plan,
            Err(Stop::Lost(reason)) => {
                self.lose(id, reason);
                return None;
            }
            Err(Stop::Failed(status) | Stop::Refused { status, .. }) => {
                self.fail(id, index, status);
                return None;
            }
            Err(Stop::NotReady) => return None,
        };
        let read = self.qps[id].requester.reads.front_mut();
        let partial = read.and_then(|read| read.partial.take());
        match self.place(id, Direction::In, &plan, partial) {
            Placed::All => self.finish_read(id, index),
            Placed::Part(partial) => self.keep_part(id, &plan, partial),
            Placed::Aside => return Some(self.begin_copy(id, Direction::In, plan)),
        }
        None
    }

    fn keep_part(&mut self, id: QpId, plan: &Plan, partial: Partial) {
        self.record_part(id, plan.head.wr_id, &partial);
        if let Some(read) = self.qps[id].requester.reads.front_mut() {
            read.partial = Some(partial);
        }
    }

    /// Checks both ends' memory anew: it may have been deregistered since the peer accepted.
    fn admit_data(&mut self, id: QpId, index: u64) -> Result<Plan, Stop> {
        let peer = self.route(id).map_err(Stop::Lost)?;
        let head = self.qps[id].send.get(index).head;
        if !self.find_local(id, index) {
            return Err(Stop::Failed(WcStatus::LOC_PROT_ERR));
        }
        self.remote.clear();
        self.find_remote(peer, &head, REMOTE_READ)?;
        Ok(Plan {
            index,
            head,
            peer,
            packets: 0,
        })
    }

    /// The data of a read is here. It acknowledges the read and all before it.
    pub(crate) fn finish_read(&mut self, id: QpId, index: u64) {
        let qp = &mut self.qps[id];
        qp.requester.reads.pop_front();
        qp.send.get_mut(index).is_read = true;
        self.acknowledge(id, index + 1);
    }
}
