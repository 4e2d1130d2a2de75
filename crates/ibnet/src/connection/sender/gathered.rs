//! Messages that are one write, as nearly all are: nothing is decided, and the work request is at hand
//! but for what differs. Those of a group are gathered and posted with one call, of which only the
//! last tells that all are done.

use std::mem;
use std::num::NonZeroUsize;

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use super::{Send, SendConnection};
use crate::connection::End;
use crate::connection::cts_queue::Match;
use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::error::Failed;
use crate::memory::region::Region;
use crate::wire::cts::{self, MAX_GROUP};
use crate::wire::immediate::{Immediate, SizeTold, generation};

/// Bytes of the largest message that waits for the others of its group. With larger ones the call of
/// the driver is a small part of the work, and the link would idle.
const LARGEST: u32 = 4096;

/// Writes with immediate that are built and not posted.
pub(super) struct Gathered {
    chain: Box<[SendRequest; MAX_GROUP]>,
    /// What each of them is of.
    messages: [Message; MAX_GROUP],
    count: usize,
    /// The path of all of them.
    path: usize,
}

/// What has to be known of a message once it is posted.
#[derive(Clone, Copy, Default)]
struct Message {
    /// Slot of its request.
    request: u16,
    size: u32,
    parent: Option<NonZeroUsize>,
}

impl Gathered {
    pub(super) fn new() -> Self {
        let request = SendRequest::write_with_immediate(0, None, RemoteAddress::default(), 0);
        Self {
            chain: Box::new([request; MAX_GROUP]),
            messages: [Message::default(); MAX_GROUP],
            count: 0,
            path: 0,
        }
    }

    /// What their completion will say.
    #[inline]
    fn work(&self) -> WrId {
        WrId {
            path: self.path,
            parts: self.count as u8,
            requests: self.count as u32,
        }
    }
}

impl SendConnection {
    /// Sends a message that is one write, at once or together with others of its group.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        data: u64,
        size: u32,
        region: Option<&Region>,
        found: &Match,
        parent: Option<NonZeroUsize>,
    ) -> Result<Option<RequestId>, Failed> {
        let mut number = self.path_of_next();
        if self.requests.is_full() || self.core.paths[number].room() == 0 {
            self.progress()?;
            number = self.path_of_next();
            if self.requests.is_full() || self.core.paths[number].room() == 0 {
                return Ok(None);
            }
        }
        let Some(request) = self.requests.insert(Send {
            outstanding: 1,
            size,
        }) else {
            return Ok(None);
        };
        let path = &mut self.core.paths[number];
        let immediate = Immediate {
            slot: cts::slot(found.id) as u8,
            size_told: SizeTold::BySum,
            parts: 1,
            generation: generation(found.id),
        };
        // No more are ever held than this: see the end.
        let write = &mut self.gathered.chain[self.gathered.count];
        write.set_local((size > 0).then(|| Sge {
            address: data,
            length: size,
            lkey: region.map_or(0, |region| region.lkey(path.device)),
        }));
        write.set_remote(RemoteAddress {
            address: found.entry.address,
            rkey: self.cts.rkey(found.id, path.peer_device),
        });
        write.set_immediate(immediate.encode());
        let can_be_inline = region.is_none_or(Region::can_be_inline);
        write.set_inline(size <= path.max_inline && can_be_inline);
        write.set_signaled(false);
        path.posted(1);
        self.cts.take(found);
        self.gathered.messages[self.gathered.count] = Message {
            request: request.index(),
            size,
            parent,
        };
        self.gathered.path = number;
        self.gathered.count += 1;
        let may_wait = size <= LARGEST && self.cts.is_within_group();
        if !may_wait || self.gathered.count == MAX_GROUP {
            self.post_gathered()?;
        }
        Ok(Some(request))
    }

    /// All that are gathered take the same path.
    #[inline]
    fn path_of_next(&mut self) -> usize {
        if self.gathered.count > 0 {
            self.gathered.path
        } else {
            self.selector.choose_one(&self.core.paths)
        }
    }

    /// Posts what has been gathered, if anything has been.
    #[inline]
    pub(crate) fn post_gathered(&mut self) -> Result<(), Failed> {
        let work = self.gathered.work();
        let Gathered {
            chain,
            messages,
            count,
            ..
        } = &mut self.gathered;
        let Some(last) = count.checked_sub(1) else {
            return Ok(());
        };
        chain[last].set_signaled(true);
        chain[last].set_wr_id(work.encode());
        let path = &self.core.paths[work.path];
        // SAFETY: as in `post_chain`.
        let posted = unsafe { path.queue_pair.post_send(&mut chain[..*count]) };
        // From here on the peer may count them, and no sooner.
        let parts = &mut self.parts[work.path];
        for message in &messages[..*count] {
            parts.push(message.request);
        }
        let count = mem::take(count);
        self.under_way[path.device] += 1;
        self.selector.sent(1);
        if self.watched.is_some() {
            self.tell_observer_of(count, work);
        }
        posted.map_err(|error| self.core.post_failed(error).into())
    }

    /// `count` gathered messages have been posted, which end with the completion of `work`.
    #[cold]
    fn tell_observer_of(&mut self, count: usize, work: WrId) {
        // Who panics while it is told is not told any more: it would be out of step.
        let Some(mut watched) = self.watched.take() else {
            return;
        };
        for message in &self.gathered.messages[..count] {
            let piece = self.piece(work, message.size);
            watched.part_started(work.path, message.parent, &piece);
        }
        self.watched = Some(watched);
    }
}
