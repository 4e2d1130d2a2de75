//! What work requests, and the receiver's last message, tell of messages in flight.

use ibnet_verbs::{Access, WorkCompletion};

use super::{Sender, Sent};
use crate::connect::queue_pair::CTS_RECEIVE;
use crate::connection::in_flight::{ImpossibleCount, credit};
use crate::connection::observer::{Observer, Watched};
use crate::connection::wr_id::WrId;
use crate::connection::{Connection, Side};
use crate::error::Failed;
use crate::wire::message::Close;

impl Side for Sender {
    type Request = Sent;

    const ACCESS: Access = Access::empty();

    fn watch(observer: Box<dyn Observer>, paths: usize) -> Watched {
        Watched::sender(observer, paths)
    }

    #[inline]
    fn post_staged(end: &mut Connection<Self>) -> Result<(), Failed> {
        end.post_staged()
    }

    #[inline]
    fn expects(&self, device: usize) -> bool {
        self.under_way[device] > 0
    }

    #[inline]
    fn complete(
        end: &mut Connection<Self>,
        _device: usize,
        completion: &WorkCompletion,
    ) -> Result<(), Failed> {
        let Some(work) = WrId::decode(completion.wr_id()) else {
            end.noticed(completion.wr_id());
            return Ok(());
        };
        let (Some(path), Some(parts)) = (
            end.core.paths.get_mut(work.path),
            end.side.parts.get_mut(work.path),
        ) else {
            return Ok(());
        };
        path.finished(work.number);
        path.completions = path.completions.saturating_sub(1);
        let under_way = &mut end.side.under_way[path.device];
        *under_way = under_way.saturating_sub(1);
        for _ in 0..work.parts {
            let Some(part) = parts.complete() else {
                // The receiver has told of it before it left.
                continue;
            };
            if let Some(watched) = &mut end.watched {
                watched.part_finished(work.path);
            }
            end.requests.part_done(part.request);
        }
        Ok(())
    }

    fn path_down(end: &mut Connection<Self>, path: usize) -> Result<(), Failed> {
        // What is staged comes back with the rest.
        end.post_staged()?;
        end.side.selector.remove(path);
        // What comes back is polled for whatever is expected.
        end.side.under_way[end.core.paths[path].device] += 1;
        Ok(())
    }

    fn settle(end: &mut Connection<Self>, path: usize, taken: u64) -> Result<(), Failed> {
        let (requests, watched, lost) = (&mut end.requests, &mut end.watched, &mut end.side.lost);
        let ended = |watched: &mut Option<Watched>| {
            if let Some(watched) = watched {
                watched.part_finished(path);
            }
        };
        let mut arrived = Vec::new();
        let before = lost.len();
        let settled = end.side.parts[path].settle(
            taken,
            |part| arrived.push(part),
            |part| lost.push_back(part),
        );
        if let Err(ImpossibleCount) = settled {
            let what = "a count of parts that were never sent";
            let error = end.core.protocol_error(what);
            return Err(end.core.fail(error).into());
        }
        for part in &arrived {
            ended(watched);
            requests.part_done(part.request);
        }
        // To an observer they have ended, too: every start has its stop.
        lost.iter().skip(before).for_each(|_| ended(watched));
        let path = &mut end.core.paths[path];
        let under_way = &mut end.side.under_way[path.device];
        *under_way = under_way.saturating_sub(path.completions + 1);
        Ok(())
    }

    fn path_up(end: &mut Connection<Self>, path: usize) {
        end.side.selector.add(path);
        end.side.notices.renewed(path);
    }

    fn send_again(end: &mut Connection<Self>) -> Result<bool, Failed> {
        end.send_lost()
    }

    /// The receiver has told how much of each path it has taken.
    fn peer_closed(end: &mut Connection<Self>, closing: &Close) -> Result<(), Failed> {
        let (requests, watched) = (&mut end.requests, &mut end.watched);
        let credited = credit(&mut end.side.parts, closing, |path, part| {
            if let Some(watched) = watched {
                watched.part_finished(path);
            }
            requests.part_done(part.request);
        });
        credited.map_err(|ImpossibleCount| {
            let what = "a last message that counts parts which were never sent";
            let error = end.core.protocol_error(what);
            end.core.fail(error).into()
        })
    }
}

impl Connection<Sender> {
    /// A notice of an announcement has come: the ring has the rest.
    /// Out of the way of [`complete`](Side::complete), whose other cases are those that count.
    #[cold]
    fn noticed(&mut self, wr_id: u64) {
        let number = (wr_id ^ CTS_RECEIVE) as usize;
        let Some(path) = self.core.paths.get_mut(number) else {
            return;
        };
        if let Err(error) = self.side.notices.used(number, path, wr_id) {
            // Every later call gets the error.
            self.core.post_failed(error);
        }
    }
}
