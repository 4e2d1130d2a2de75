//! Sending buffers that move into the request.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use super::tickets::{dropped_tickets, ended, foreign};
use super::waiting::wait_for;
use super::{Buffer, SendTicket, Unposted};
use crate::connection::sender::SendConnection;
use crate::error::Error;
use crate::events::waiting::later;
use crate::ops::future::{FinishSend, PostSend};

impl SendConnection {
    /// Sends the bytes of `buffer` to the receiver's buffer with tag `tag`, if one is announced.
    ///
    /// # Errors
    /// The buffer, with the reason.
    ///
    /// # Examples
    /// The buffer is the connection's until the send is done:
    ///
    /// ```compile_fail,E0382
    /// fn touch_it(sending: &mut ibnet::SendConnection, mut buffer: ibnet::Buffer) {
    ///     let ticket = sending.try_send(buffer, 0);
    ///     buffer[0] = 1; // moved
    /// }
    /// ```
    pub fn try_send(&mut self, buffer: Buffer, tag: i32) -> Result<SendTicket, Unposted<Buffer>> {
        if self.owned.has_abandoned() {
            self.free_abandoned();
        }
        // Should an observer panic in between, the write of this buffer may be posted: then it is
        // leaked.
        let buffer = ManuallyDrop::new(buffer);
        let (data, length) = (buffer.mapping.as_ptr(), buffer.length);
        // SAFETY: the buffer moves into this connection, where nobody can touch it, and is freed
        // after the queue pairs or handed back when the request is done.
        let posted = unsafe { self.isend(data, length, tag, Some(&buffer.region)) };
        let posted = posted.and_then(|request| {
            // Who has a ticket may not ask for it for long.
            self.post_gathered()?;
            Ok(request)
        });
        let buffer = ManuallyDrop::into_inner(buffer);
        match posted {
            Ok(Some(request)) => Ok(SendTicket(self.owned.put(request, buffer))),
            Ok(None) if self.is_full_of_finished() => {
                Err(Unposted::Failed(dropped_tickets(), buffer))
            }
            Ok(None) => Err(Unposted::NotReady(buffer)),
            Err(error) => Err(Unposted::Failed(error, buffer)),
        }
    }

    /// Sends the bytes of `buffer`, waiting until the receiver has announced a buffer with tag
    /// `tag`.
    ///
    /// # Errors
    /// The connection has failed or fails while waiting.
    pub fn send(&mut self, buffer: Buffer, tag: i32) -> Result<SendTicket, Error> {
        let mut slot = Some(buffer);
        let ticket = wait_for(self, None, |end| end.attempt_send(&mut slot, tag))?;
        // Without a deadline there is no other end.
        ticket.ok_or_else(ended)
    }

    /// As [`send`](Self::send), but gives the buffer back when `deadline` comes first.
    ///
    /// # Errors
    /// [`Unposted::NotReady`] if the deadline came first, [`Unposted::Failed`] if the connection
    /// has failed.
    pub fn send_until(
        &mut self,
        buffer: Buffer,
        tag: i32,
        deadline: Instant,
    ) -> Result<SendTicket, Unposted<Buffer>> {
        let mut slot = Some(buffer);
        let waited = wait_for(self, Some(deadline), |end| end.attempt_send(&mut slot, tag));
        match (waited, slot) {
            (Ok(Some(ticket)), _) => Ok(ticket),
            (Ok(None), Some(buffer)) => Err(Unposted::NotReady(buffer)),
            (Err(error), Some(buffer)) => Err(Unposted::Failed(error, buffer)),
            (_, None) => unreachable!("an attempt takes the buffer only with success"),
        }
    }

    /// As [`send_until`](Self::send_until), `time` from now.
    ///
    /// # Errors
    /// As for [`send_until`](Self::send_until).
    pub fn send_timeout(
        &mut self,
        buffer: Buffer,
        tag: i32,
        time: Duration,
    ) -> Result<SendTicket, Unposted<Buffer>> {
        self.send_until(buffer, tag, later(Instant::now(), time))
    }

    /// As [`send`](Self::send), to be awaited; for connections made with
    /// [`notify`](crate::ConnectOptions::notify).
    ///
    /// # Examples
    /// A connection does one thing at a time; what is under way does not keep it from the next:
    ///
    /// ```compile_fail,E0499
    /// fn two_at_once(sending: &mut ibnet::SendConnection, a: ibnet::Buffer, b: ibnet::Buffer) {
    ///     let first = sending.send_async(a, 0);
    ///     let second = sending.send_async(b, 0); // `first` has the connection
    ///     drop((first, second));
    /// }
    /// ```
    pub fn send_async(&mut self, buffer: Buffer, tag: i32) -> PostSend<'_> {
        PostSend::new(self, buffer, tag)
    }

    /// Whether the send is done: its buffer, or the ticket again.
    ///
    /// # Errors
    /// The connection has failed before the send was done.
    pub fn poll(&mut self, ticket: SendTicket) -> Result<Result<Buffer, SendTicket>, Error> {
        let request = self.owned.check(&ticket.0)?;
        if self.test(request)?.is_none() {
            return Ok(Err(ticket));
        }
        let buffer = self.owned.take(request);
        buffer.map(Ok).ok_or_else(|| foreign(request))
    }

    /// Waits until the send is done and gives its buffer back.
    ///
    /// # Errors
    /// The connection has failed before the send was done.
    ///
    /// # Examples
    /// A ticket is good for one buffer:
    ///
    /// ```compile_fail,E0382
    /// fn twice(sending: &mut ibnet::SendConnection, ticket: ibnet::SendTicket) {
    ///     let buffer = sending.wait(ticket);
    ///     let another = sending.wait(ticket); // used up
    /// }
    /// ```
    ///
    /// and only where it is from; tickets of receives are another type:
    ///
    /// ```compile_fail,E0308
    /// fn confused(sending: &mut ibnet::SendConnection, ticket: ibnet::RecvTicket) {
    ///     let buffer = sending.wait(ticket);
    /// }
    /// ```
    pub fn wait(&mut self, ticket: SendTicket) -> Result<Buffer, Error> {
        let mut slot = Some(ticket);
        let buffer = wait_for(self, None, |end| end.attempt_finish(&mut slot))?;
        // Without a deadline there is no other end.
        buffer.ok_or_else(ended)
    }

    /// As [`wait`](Self::wait), but gives the ticket back when `deadline` comes first.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_until(
        &mut self,
        ticket: SendTicket,
        deadline: Instant,
    ) -> Result<Result<Buffer, SendTicket>, Error> {
        let mut slot = Some(ticket);
        let waited = wait_for(self, Some(deadline), |end| end.attempt_finish(&mut slot))?;
        match (waited, slot) {
            (Some(buffer), _) => Ok(Ok(buffer)),
            (None, Some(ticket)) => Ok(Err(ticket)),
            (None, None) => unreachable!("an attempt takes the ticket only with its end"),
        }
    }

    /// As [`wait_until`](Self::wait_until), `time` from now.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(
        &mut self,
        ticket: SendTicket,
        time: Duration,
    ) -> Result<Result<Buffer, SendTicket>, Error> {
        self.wait_until(ticket, later(Instant::now(), time))
    }

    /// As [`wait`](Self::wait), to be awaited; for connections made with
    /// [`notify`](crate::ConnectOptions::notify).
    pub fn wait_async(&mut self, ticket: SendTicket) -> FinishSend<'_> {
        FinishSend::new(self, ticket)
    }

    /// Tries to send what is in `slot`, which it stays in otherwise.
    pub(crate) fn attempt_send(
        &mut self,
        slot: &mut Option<Buffer>,
        tag: i32,
    ) -> Result<Option<SendTicket>, Error> {
        match self.try_send(slot.take().ok_or_else(ended)?, tag) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(Unposted::NotReady(buffer)) => {
                *slot = Some(buffer);
                Ok(None)
            }
            Err(Unposted::Failed(error, buffer)) => {
                *slot = Some(buffer);
                Err(error)
            }
        }
    }

    /// Takes the ticket out of `slot` if its send is done, or never will be.
    pub(crate) fn attempt_finish(
        &mut self,
        slot: &mut Option<SendTicket>,
    ) -> Result<Option<Buffer>, Error> {
        match self.poll(slot.take().ok_or_else(ended)?)? {
            Ok(buffer) => Ok(Some(buffer)),
            Err(ticket) => {
                *slot = Some(ticket);
                Ok(None)
            }
        }
    }

    /// Nobody will ask for the buffer of `ticket`: it is freed some time after the send is done.
    pub(crate) fn abandon(&mut self, ticket: &SendTicket) {
        self.owned.abandon(&ticket.0);
    }

    #[cold]
    fn free_abandoned(&mut self) {
        for request in self.owned.take_abandoned() {
            match self.test(request) {
                Ok(None) => self.owned.abandon_again(request),
                Ok(Some(_)) => drop(self.owned.take(request)),
                // The buffer stays until the connection is closed.
                Err(_) => {}
            }
        }
    }
}
