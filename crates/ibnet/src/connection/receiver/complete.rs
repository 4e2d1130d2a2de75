//! Completing: what arrives, and what is known of it.

use ibnet_verbs::{RecvRequest, WcOpcode, WorkCompletion};

use super::RecvConnection;
use crate::connection::flush;
use crate::connection::recv_window::Violation;
use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::connection::{Core, End};
use crate::error::Failed;

impl RecvConnection {
    /// A part of a message has arrived.
    fn take_part(&mut self, completion: &WorkCompletion) -> Result<(), Failed> {
        let taken = self.window.take(
            completion.immediate(),
            completion.byte_len(),
            // Written before the immediate, which has been seen.
            |slot| self.sizes.read_u32(slot * 4),
        );
        match taken {
            Ok(None) => {}
            Ok(Some(arrived)) => {
                if let Some(watched) = &mut self.watched {
                    watched.arrived(usize::from(arrived.slot));
                }
                if let Some(receive) = self.requests.at(arrived.request) {
                    receive.sizes[usize::from(arrived.position)] = arrived.size;
                    receive.outstanding = receive.outstanding.saturating_sub(1);
                }
            }
            Err(Violation(what)) => {
                let error = self.core.protocol_error(what);
                return Err(self.core.fail(error).into());
            }
        }
        Ok(())
    }

    /// A receive of `path` was used up; replaces them in batches.
    fn consumed(&mut self, path: usize) -> Result<(), Failed> {
        let Some(receives) = self.receives.get_mut(path) else {
            return Ok(());
        };
        receives.taken += 1;
        receives.to_replace += 1;
        if receives.to_replace < self.batch {
            return Ok(());
        }
        receives.to_replace = 0;
        let chain = &mut self.replacements[..self.batch];
        chain.fill(RecvRequest::new(path as u64));
        // SAFETY: these receives name no memory.
        let posted = unsafe { self.core.paths[path].queue_pair.post_recv(chain) };
        posted.map_err(|error| self.core.post_failed(error).into())
    }
}

impl End for RecvConnection {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    #[inline]
    fn is_done(&mut self, request: RequestId) -> Result<bool, Failed> {
        Ok(self.requests.find(request)?.outstanding == 0)
    }

    #[inline]
    fn complete(&mut self, device: usize, completion: &WorkCompletion) -> Result<(), Failed> {
        if !completion.is_success() {
            self.core.work_failed(device, completion);
            return Ok(());
        }
        let opcode = completion.opcode();
        if opcode == WcOpcode::RECV_RDMA_WITH_IMM {
            self.take_part(completion)?;
            // Receives are posted with the number of their path.
            return self.consumed(completion.wr_id() as usize);
        }
        if opcode == WcOpcode::RDMA_WRITE {
            let work = WrId::decode(completion.wr_id());
            if let Some(path) = self.core.paths.get_mut(work.path) {
                path.finished(work.requests);
            }
            return Ok(());
        }
        if opcode == WcOpcode::RDMA_READ {
            let request = flush::finished(&mut self.core.loops, completion.wr_id());
            if let Some(flush) = self.requests.at(request) {
                flush.outstanding = flush.outstanding.saturating_sub(1);
            }
            return Ok(());
        }
        let error = self
            .core
            .protocol_error("something other than a write with immediate");
        Err(self.core.fail(error).into())
    }

    fn handle_events(&mut self) -> Result<(), Failed> {
        self.core.handle_events();
        Ok(self.core.check()?)
    }
}
