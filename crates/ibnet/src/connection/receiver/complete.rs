//! Completing: what arrives, and what is known of it.

use ibnet_verbs::{Access, WcOpcode, WorkCompletion};

use super::{Again, Receive, Receiver};
use crate::connection::observer::{Observer, Watched};
use crate::connection::path::Path;
use crate::connection::recv_window::Violation;
use crate::connection::wr_id::WrId;
use crate::connection::{Connection, Side};
use crate::error::Failed;

impl Connection<Receiver> {
    /// A part of a message has arrived.
    fn take_part(&mut self, completion: &WorkCompletion) -> Result<(), Failed> {
        let taken = self.side.window.take(
            completion.immediate(),
            completion.byte_len(),
            // Written before the immediate, which has been seen.
            |slot| self.side.sizes.read_u32(slot * 4),
        );
        match taken {
            Ok(None) => {}
            Ok(Some(arrived)) => {
                if let Some(watched) = &mut self.watched {
                    watched.arrived(usize::from(arrived.slot));
                }
                if let Some(receive) = self.requests.part_done(arrived.request) {
                    receive.sizes[usize::from(arrived.position)] = arrived.size;
                    if let Some(capacity) = arrived.too_long_for {
                        receive.too_long = Some((arrived.size, capacity));
                    }
                }
            }
            Err(Violation(what)) => {
                let error = self.core.protocol_error(what);
                return Err(self.core.fail(error).into());
            }
        }
        Ok(())
    }

    /// A part has come over path `number`, and has used up a receive.
    fn consumed(&mut self, number: usize) -> Result<(), Failed> {
        let Some(path) = self.core.paths.get_mut(number) else {
            return Ok(());
        };
        self.side.taken[number] += 1;
        // Receives are posted with the number of their path.
        let replaced = self.side.receives.used(number, path, number as u64);
        replaced.map_err(|error| self.core.post_failed(error).into())
    }
}

impl Side for Receiver {
    type Request = Receive;

    const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

    fn watch(observer: Box<dyn Observer>, _paths: usize) -> Watched {
        Watched::receiver(observer)
    }

    #[inline]
    fn complete(
        end: &mut Connection<Self>,
        _device: usize,
        completion: &WorkCompletion,
    ) -> Result<(), Failed> {
        match completion.opcode() {
            WcOpcode::RECV_RDMA_WITH_IMM => {
                end.take_part(completion)?;
                end.consumed(completion.wr_id() as usize)
            }
            WcOpcode::RDMA_WRITE => {
                if let Some(work) = WrId::decode(completion.wr_id())
                    && let Some(path) = end.core.paths.get_mut(work.path)
                {
                    path.finished(work.number);
                }
                Ok(())
            }
            WcOpcode::RDMA_READ => {
                end.read_done(completion.wr_id());
                Ok(())
            }
            _ => {
                let what = "something other than a write with immediate";
                let error = end.core.protocol_error(what);
                Err(end.core.fail(error).into())
            }
        }
    }

    fn path_down(end: &mut Connection<Self>, path: usize) -> Result<(), Failed> {
        if end.side.cts_path == path {
            end.next_cts_path();
        }
        Ok(())
    }

    fn settle(end: &mut Connection<Self>, path: usize, _taken: u64) -> Result<(), Failed> {
        end.side.cts_since_signal[path] = 0;
        // Those that went over this path; which they were is not known.
        let landing = end.core.paths.iter().map(Path::last_finished);
        end.side.again = Again::Writing {
            next: end.side.window.oldest(),
            landing: landing.collect(),
        };
        Ok(())
    }

    fn path_up(end: &mut Connection<Self>, path: usize) {
        end.side.receives.renewed(path);
        if !end.core.paths[end.side.cts_path].is_live {
            end.side.cts_path = path;
        }
    }

    fn send_again(end: &mut Connection<Self>) -> Result<bool, Failed> {
        end.announce_lost()
    }

    fn taken(&self, path: usize) -> u64 {
        self.taken[path]
    }

    fn parts_taken(end: &mut Connection<Self>) -> Vec<u64> {
        // What has arrived counts, too.
        if !end.core.has_failed() {
            while matches!(end.progress(), Ok(count) if count > 0) {}
        }
        end.side.taken.clone()
    }
}
