//! Completing: what work requests, and the receiver's farewell, tell of messages under way.

use ibnet_verbs::WorkCompletion;

use super::{Announcements, SendConnection};
use crate::connect::queue_pair::{CTS_RECEIVE, post_receives};
use crate::connection::in_flight::{ImpossibleCount, credit};
use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::connection::{Core, End};
use crate::error::Failed;
use crate::wire::message::Close;

impl SendConnection {
    /// An announcement has come, which the ring tells more of; replaces the receives in batches.
    /// Out of the way of [`complete`](Self::complete), whose other cases are those that count.
    #[cold]
    fn announced(&mut self, wr_id: u64) {
        let Announcements { batch, to_replace } = &mut self.announcements;
        let path = (wr_id ^ CTS_RECEIVE) as usize;
        let (Some(path), Some(used)) = (self.core.paths.get(path), to_replace.get_mut(path)) else {
            return;
        };
        *used += 1;
        if *used < *batch {
            return;
        }
        *used = 0;
        if let Err(error) = post_receives(&path.queue_pair, wr_id, *batch) {
            // Every later call gets the error.
            self.core.post_failed(error);
        }
    }

    /// The receiver has left, and has told how much of each path it has taken.
    fn apply(&mut self, closing: &Close) -> Result<(), Failed> {
        let (requests, watched) = (&mut self.requests, &mut self.watched);
        let credited = credit(&mut self.parts, closing, |path, request| {
            if let Some(watched) = watched {
                watched.part_finished(path);
            }
            if let Some(send) = requests.at(request) {
                send.outstanding = send.outstanding.saturating_sub(1);
            }
        });
        credited.map_err(|ImpossibleCount| {
            let what = "a farewell that counts parts which were never sent";
            let error = self.core.protocol_error(what);
            self.core.fail(error).into()
        })
    }
}

impl End for SendConnection {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    #[inline]
    fn is_done(&mut self, request: RequestId) -> Result<bool, Failed> {
        Ok(self.requests.find(request)?.outstanding == 0)
    }

    #[inline]
    fn post_waiting(&mut self) -> Result<(), Failed> {
        self.post_gathered()
    }

    #[inline]
    fn expects(&self, device: usize) -> bool {
        self.under_way[device] > 0
    }

    #[inline]
    fn complete(&mut self, device: usize, completion: &WorkCompletion) -> Result<(), Failed> {
        if !completion.is_success() {
            self.core.work_failed(device, completion);
            return Ok(());
        }
        let work = WrId::decode(completion.wr_id());
        let (Some(path), Some(parts)) = (
            self.core.paths.get_mut(work.path),
            self.parts.get_mut(work.path),
        ) else {
            self.announced(completion.wr_id());
            return Ok(());
        };
        path.finished(work.requests);
        self.under_way[path.device] = self.under_way[path.device].saturating_sub(1);
        for _ in 0..work.parts {
            let Some(request) = parts.complete() else {
                // The receiver has told of it before it left.
                continue;
            };
            if let Some(watched) = &mut self.watched {
                watched.part_finished(work.path);
            }
            if let Some(send) = self.requests.at(request) {
                send.outstanding = send.outstanding.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn handle_events(&mut self) -> Result<(), Failed> {
        if let Some(closing) = self.core.handle_events() {
            self.apply(&closing)?;
        }
        Ok(self.core.check()?)
    }
}
