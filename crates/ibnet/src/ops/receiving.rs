//! Receiving into buffers that move into the request.

use std::time::{Duration, Instant};

use super::tickets::{dropped_tickets, ended, foreign};
use super::waiting::wait_for;
use super::{Buffer, RecvTicket, Unposted};
use crate::connection::receiver::{RecvBuffer, RecvConnection, wrong_group};
use crate::error::Error;
use crate::events::waiting::later;
use crate::ops::future::{FinishGroup, FinishRecv, PostRecv};
use crate::wire::cts::MAX_GROUP;

/// Buffers of one receive, each with its tag.
type Group = Vec<(Buffer, i32)>;

impl RecvConnection {
    /// Announces `buffers`, each with its tag, as one receive of 1 to [`MAX_GROUP`].
    ///
    /// # Errors
    /// The buffers, with the reason.
    ///
    /// # Examples
    /// The buffers are the connection's until the receive is done, whatever happens meanwhile:
    ///
    /// ```compile_fail,E0382
    /// fn look_into_it(receiving: &mut ibnet::RecvConnection, buffer: ibnet::Buffer) {
    ///     let ticket = receiving.try_recv(vec![(buffer, 0)]);
    ///     println!("{}", buffer[0]); // moved
    /// }
    /// ```
    pub fn try_recv(&mut self, buffers: Group) -> Result<RecvTicket, Unposted<Group>> {
        if self.owned.has_abandoned() {
            self.free_abandoned();
        }
        if !(1..=MAX_GROUP).contains(&buffers.len()) {
            return Err(Unposted::Failed(*wrong_group(buffers.len()), buffers));
        }
        let raw: Vec<RecvBuffer<'_>> = buffers
            .iter()
            .map(|(buffer, tag)| RecvBuffer {
                data: buffer.mapping.as_ptr(),
                capacity: buffer.length,
                tag: *tag,
                region: Some(&buffer.region),
            })
            .collect();
        // SAFETY: as in `try_send`.
        let posted = unsafe { self.irecv(&raw) };
        match posted {
            Ok(Some(request)) => {
                let buffers = buffers.into_iter().map(|(buffer, _)| buffer).collect();
                Ok(RecvTicket(self.owned.put(request, buffers)))
            }
            Ok(None) if self.is_full_of_finished() => {
                Err(Unposted::Failed(dropped_tickets(), buffers))
            }
            Ok(None) => Err(Unposted::NotReady(buffers)),
            Err(error) => Err(Unposted::Failed(error, buffers)),
        }
    }

    /// Announces `buffers` as one receive, waiting until there is room for it.
    ///
    /// # Errors
    /// The connection has failed or fails while waiting, or there are too many buffers.
    pub fn recv_group(&mut self, buffers: Vec<(Buffer, i32)>) -> Result<RecvTicket, Error> {
        let mut slot = Some(buffers);
        let ticket = wait_for(self, None, |end| end.attempt_recv(&mut slot))?;
        // Without a deadline there is no other end.
        ticket.ok_or_else(ended)
    }

    /// As [`recv_group`](Self::recv_group), but gives the buffers back when `deadline` comes first.
    ///
    /// # Errors
    /// [`Unposted::NotReady`] if the deadline came first, [`Unposted::Failed`] if the connection
    /// has failed or there are too many buffers.
    pub fn recv_group_until(
        &mut self,
        buffers: Vec<(Buffer, i32)>,
        deadline: Instant,
    ) -> Result<RecvTicket, Unposted<Vec<(Buffer, i32)>>> {
        let mut slot = Some(buffers);
        let waited = wait_for(self, Some(deadline), |end| end.attempt_recv(&mut slot));
        match (waited, slot) {
            (Ok(Some(ticket)), _) => Ok(ticket),
            (Ok(None), Some(buffers)) => Err(Unposted::NotReady(buffers)),
            (Err(error), Some(buffers)) => Err(Unposted::Failed(error, buffers)),
            (_, None) => unreachable!("an attempt takes the buffers only with success"),
        }
    }

    /// As [`recv_group_until`](Self::recv_group_until), `time` from now.
    ///
    /// # Errors
    /// As for [`recv_group_until`](Self::recv_group_until).
    pub fn recv_group_timeout(
        &mut self,
        buffers: Vec<(Buffer, i32)>,
        time: Duration,
    ) -> Result<RecvTicket, Unposted<Vec<(Buffer, i32)>>> {
        self.recv_group_until(buffers, later(Instant::now(), time))
    }

    /// As [`recv_group`](Self::recv_group), to be awaited; for connections made with
    /// [`notify`](crate::ListenOptions::notify).
    pub fn recv_group_async(&mut self, buffers: Vec<(Buffer, i32)>) -> PostRecv<'_> {
        PostRecv::new(self, buffers)
    }

    /// Announces one buffer.
    ///
    /// # Errors
    /// As for [`recv_group`](Self::recv_group).
    ///
    /// # Examples
    /// One thread at a time has the connection:
    ///
    /// ```compile_fail,E0499
    /// fn from_two_threads(receiving: &mut ibnet::RecvConnection, a: ibnet::Buffer, b: ibnet::Buffer) {
    ///     std::thread::scope(|scope| {
    ///         scope.spawn(|| receiving.recv(a, 0));
    ///         scope.spawn(|| receiving.recv(b, 0)); // borrowed by the first
    ///     });
    /// }
    /// ```
    pub fn recv(&mut self, buffer: Buffer, tag: i32) -> Result<RecvTicket, Error> {
        self.recv_group(vec![(buffer, tag)])
    }

    /// As [`recv`](Self::recv), to be awaited; for connections made with
    /// [`notify`](crate::ListenOptions::notify).
    pub fn recv_async(&mut self, buffer: Buffer, tag: i32) -> PostRecv<'_> {
        PostRecv::new(self, vec![(buffer, tag)])
    }

    /// Whether the receive is done: its buffers, each as long as its message, or the ticket again.
    ///
    /// # Errors
    /// The connection has failed before the receive was done.
    pub fn poll(&mut self, ticket: RecvTicket) -> Result<Result<Vec<Buffer>, RecvTicket>, Error> {
        let request = self.owned.check(&ticket.0)?;
        let Some(received) = self.test(request)? else {
            return Ok(Err(ticket));
        };
        let mut buffers = self.owned.take(request).ok_or_else(|| foreign(request))?;
        for (buffer, size) in buffers.iter_mut().zip(received.sizes()) {
            buffer.set_length(*size as usize);
        }
        Ok(Ok(buffers))
    }

    /// Waits until the receive is done and gives its buffers back, each as long as its message.
    ///
    /// # Errors
    /// The connection has failed before the receive was done.
    pub fn wait_group(&mut self, ticket: RecvTicket) -> Result<Vec<Buffer>, Error> {
        let mut slot = Some(ticket);
        let buffers = wait_for(self, None, |end| end.attempt_finish(&mut slot))?;
        // Without a deadline there is no other end.
        buffers.ok_or_else(ended)
    }

    /// As [`wait_group`](Self::wait_group), but gives the ticket back when `deadline` comes first.
    ///
    /// # Errors
    /// As for [`wait_group`](Self::wait_group).
    pub fn wait_group_until(
        &mut self,
        ticket: RecvTicket,
        deadline: Instant,
    ) -> Result<Result<Vec<Buffer>, RecvTicket>, Error> {
        let mut slot = Some(ticket);
        let waited = wait_for(self, Some(deadline), |end| end.attempt_finish(&mut slot))?;
        match (waited, slot) {
            (Some(buffers), _) => Ok(Ok(buffers)),
            (None, Some(ticket)) => Ok(Err(ticket)),
            (None, None) => unreachable!("an attempt takes the ticket only with its end"),
        }
    }

    /// As [`wait_group_until`](Self::wait_group_until), `time` from now.
    ///
    /// # Errors
    /// As for [`wait_group`](Self::wait_group).
    pub fn wait_group_timeout(
        &mut self,
        ticket: RecvTicket,
        time: Duration,
    ) -> Result<Result<Vec<Buffer>, RecvTicket>, Error> {
        self.wait_group_until(ticket, later(Instant::now(), time))
    }

    /// As [`wait_group`](Self::wait_group), to be awaited; for connections made with
    /// [`notify`](crate::ListenOptions::notify).
    pub fn wait_group_async(&mut self, ticket: RecvTicket) -> FinishGroup<'_> {
        FinishGroup::new(self, ticket)
    }

    /// Waits for a receive of one buffer.
    ///
    /// # Errors
    /// As for [`wait_group`](Self::wait_group).
    ///
    /// # Examples
    /// A ticket is good for one buffer:
    ///
    /// ```compile_fail,E0382
    /// fn twice(receiving: &mut ibnet::RecvConnection, ticket: ibnet::RecvTicket) {
    ///     let buffer = receiving.wait(ticket);
    ///     let another = receiving.wait(ticket); // used up
    /// }
    /// ```
    pub fn wait(&mut self, ticket: RecvTicket) -> Result<Buffer, Error> {
        self.wait_group(ticket).and_then(only)
    }

    /// As [`wait`](Self::wait), but gives the ticket back when `deadline` comes first.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_until(
        &mut self,
        ticket: RecvTicket,
        deadline: Instant,
    ) -> Result<Result<Buffer, RecvTicket>, Error> {
        match self.wait_group_until(ticket, deadline)? {
            Ok(buffers) => only(buffers).map(Ok),
            Err(ticket) => Ok(Err(ticket)),
        }
    }

    /// As [`wait_until`](Self::wait_until), `time` from now.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(
        &mut self,
        ticket: RecvTicket,
        time: Duration,
    ) -> Result<Result<Buffer, RecvTicket>, Error> {
        self.wait_until(ticket, later(Instant::now(), time))
    }

    /// As [`wait`](Self::wait), to be awaited; for connections made with
    /// [`notify`](crate::ListenOptions::notify).
    pub fn wait_async(&mut self, ticket: RecvTicket) -> FinishRecv<'_> {
        FinishRecv::new(self, ticket)
    }

    /// Tries to announce what is in `slot`, which it stays in otherwise.
    pub(crate) fn attempt_recv(
        &mut self,
        slot: &mut Option<Group>,
    ) -> Result<Option<RecvTicket>, Error> {
        match self.try_recv(slot.take().ok_or_else(ended)?) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(Unposted::NotReady(buffers)) => {
                *slot = Some(buffers);
                Ok(None)
            }
            Err(Unposted::Failed(error, buffers)) => {
                *slot = Some(buffers);
                Err(error)
            }
        }
    }

    /// Takes the ticket out of `slot` if its receive is done, or never will be.
    pub(crate) fn attempt_finish(
        &mut self,
        slot: &mut Option<RecvTicket>,
    ) -> Result<Option<Vec<Buffer>>, Error> {
        match self.poll(slot.take().ok_or_else(ended)?)? {
            Ok(buffers) => Ok(Some(buffers)),
            Err(ticket) => {
                *slot = Some(ticket);
                Ok(None)
            }
        }
    }

    /// Nobody will ask for the buffers of `ticket`: they are freed some time after the receive is
    /// done.
    pub(crate) fn abandon(&mut self, ticket: &RecvTicket) {
        self.owned.abandon(&ticket.0);
    }

    #[cold]
    fn free_abandoned(&mut self) {
        for request in self.owned.take_abandoned() {
            match self.test(request) {
                Ok(None) => self.owned.abandon_again(request),
                Ok(Some(_)) => drop(self.owned.take(request)),
                // The buffers stay until the connection is closed.
                Err(_) => {}
            }
        }
    }
}

/// The buffer of a receive of one.
pub(crate) fn only(mut buffers: Vec<Buffer>) -> Result<Buffer, Error> {
    let last = buffers.pop();
    last.ok_or_else(|| Error::InvalidArgument("a receive without buffers".to_owned()))
}
