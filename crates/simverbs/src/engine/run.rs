//! The free-running fabric: everything happens as soon as it can, in the thread that made it
//! possible.

use super::State;
use super::lanes::Lane;
use super::place::{CopyJob, Direction};
use super::slab::QpId;

impl State {
    /// Does what can be done now, up to a copy that is to be made outside the lock. To be called
    /// again after that copy.
    pub(crate) fn run(&mut self) -> Option<CopyJob> {
        if self.timers.next().is_some() {
            self.fire_timers();
        }
        while let Some(id) = self.queued.pop_front() {
            let Some(qp) = self.qps.get_mut(id) else {
                continue;
            };
            qp.is_queued = false;
            if let Some(job) = self.run_qp(id) {
                return Some(job);
            }
        }
        None
    }

    fn run_qp(&mut self, id: QpId) -> Option<CopyJob> {
        while let Some(qp) = self.qps.get(id) {
            let lane = Lane::ALL.into_iter().find(|&lane| qp.is_open(lane))?;
            if let Some(job) = self.take(id, lane) {
                return Some(job);
            }
        }
        None
    }

    /// Goes on with a message whose bytes were copied outside the lock.
    pub(crate) fn finish_copy(&mut self, job: &CopyJob) {
        let counts = self.end_copy(job);
        let (id, peer) = (job.qp, job.plan.peer);
        if counts {
            match job.direction {
                Direction::Out => self.finish_message(id, &job.plan),
                Direction::In => self.finish_read(id, job.plan.index),
            }
        }
        // What either has put off because of the copy.
        self.enqueue(id);
        self.enqueue(peer);
    }
}
