//! Posting buffers, and finishing the requests that have them: the operations of a connection.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::Buffer;
use super::connection::{Connection, RecvConnection, SendConnection};
use super::operation::{Attempt, Operation};
use super::tickets::{Ticket, ended};
use super::transfer::Transfer;
use crate::connection::raw;
use crate::connection::requests::CAPACITY;
use crate::error::Error;

impl SendConnection {
    /// Sends the bytes of `buffer` to the receiver's buffer with tag `tag`, once one is announced.
    ///
    /// # Examples
    /// The buffer is the connection's until the send is done:
    ///
    /// ```compile_fail,E0382
    /// fn touch_it(sending: &mut ibnet::SendConnection, mut buffer: ibnet::Buffer) {
    ///     let ticket = ibnet::Wait::wait(sending.send(buffer, 0));
    ///     buffer[0] = 1; // moved
    /// }
    /// ```
    ///
    /// A connection does one thing at a time; what is under way does not keep it from the next:
    ///
    /// ```compile_fail,E0499
    /// fn two_at_once(sending: &mut ibnet::SendConnection, a: ibnet::Buffer, b: ibnet::Buffer) {
    ///     let first = sending.send(a, 0);
    ///     let second = sending.send(b, 0); // `first` has the connection
    ///     drop((first, second));
    /// }
    /// ```
    pub fn send(&mut self, buffer: Buffer, tag: i32) -> Operation<'_, Post<raw::Sender, Buffer>> {
        Operation::new(self, Post::new(vec![(buffer, tag)]))
    }
}

impl RecvConnection {
    /// Announces `buffer` for the sender's next message with tag `tag`.
    ///
    /// # Examples
    /// The buffer is the connection's until the receive is done, whatever happens meanwhile:
    ///
    /// ```compile_fail,E0382
    /// fn look_into_it(receiving: &mut ibnet::RecvConnection, buffer: ibnet::Buffer) {
    ///     let ticket = ibnet::Wait::wait(receiving.recv(buffer, 0));
    ///     println!("{}", buffer[0]); // moved
    /// }
    /// ```
    ///
    /// One thread at a time has the connection:
    ///
    /// ```compile_fail,E0499
    /// fn from_two_threads(receiving: &mut ibnet::RecvConnection, a: ibnet::Buffer, b: ibnet::Buffer) {
    ///     std::thread::scope(|scope| {
    ///         scope.spawn(|| ibnet::Wait::wait(receiving.recv(a, 0)));
    ///         scope.spawn(|| ibnet::Wait::wait(receiving.recv(b, 0))); // borrowed by the first
    ///     });
    /// }
    /// ```
    pub fn recv(&mut self, buffer: Buffer, tag: i32) -> Operation<'_, Post<raw::Receiver, Buffer>> {
        Operation::new(self, Post::new(vec![(buffer, tag)]))
    }

    /// Announces 1 to [`MAX_GROUP`](crate::MAX_GROUP) buffers as one receive, each with the tag of the
    /// message that belongs in it.
    pub fn recv_group(
        &mut self,
        buffers: Vec<(Buffer, i32)>,
    ) -> Operation<'_, Post<raw::Receiver, Vec<Buffer>>> {
        Operation::new(self, Post::new(buffers))
    }
}

/// How the buffers of a request are given and come back: one, or those of a group.
pub trait Batch: Unpin {
    /// What is given to post them.
    type Given;

    /// What was given, as it is kept.
    fn given(buffers: Vec<(Buffer, i32)>) -> Option<Self::Given>;

    /// What comes back when the request is done.
    fn finished(buffers: Vec<Buffer>) -> Option<Self>
    where
        Self: Sized;
}

impl Batch for Buffer {
    type Given = Self;

    fn given(mut buffers: Vec<(Buffer, i32)>) -> Option<Self> {
        buffers.pop().map(|(buffer, _)| buffer)
    }

    fn finished(mut buffers: Vec<Buffer>) -> Option<Self> {
        buffers.pop()
    }
}

impl Batch for Vec<Buffer> {
    type Given = Vec<(Buffer, i32)>;

    fn given(buffers: Vec<(Buffer, i32)>) -> Option<Vec<(Buffer, i32)>> {
        Some(buffers)
    }

    fn finished(buffers: Vec<Buffer>) -> Option<Self> {
        Some(buffers)
    }
}

/// Posting buffers. Gives a ticket.
#[derive(Debug)]
pub struct Post<S, B> {
    buffers: Option<Vec<(Buffer, i32)>>,
    of: PhantomData<fn() -> (S, B)>,
}

impl<S, B> Post<S, B> {
    pub(super) fn new(buffers: Vec<(Buffer, i32)>) -> Self {
        Self {
            buffers: Some(buffers),
            of: PhantomData,
        }
    }
}

impl<S: Transfer, B: Batch> Attempt for Post<S, B> {
    type Side = S;
    type Given = B::Given;
    type Done = Ticket<S, B>;
    type Returned = B::Given;

    fn attempt(&mut self, connection: &mut Connection<S>) -> Result<Option<Self::Done>, Error> {
        connection.free_abandoned();
        // Should an observer panic in between, the buffers may be posted: then they are leaked.
        let buffers = ManuallyDrop::new(self.buffers.take().ok_or_else(ended)?);
        // SAFETY: if there is a request, the buffers move into the connection, where nothing can touch them,
        // and are freed after the queue pairs or given back when the request is done. Without one they are
        // not posted, or the connection has failed: then they stay, too.
        let posted = unsafe { S::post(&mut connection.raw, &buffers) };
        let buffers = ManuallyDrop::into_inner(buffers);
        if let Ok(Some(request)) = posted {
            let buffers = buffers.into_iter().map(|(buffer, _)| buffer).collect();
            return Ok(Some(connection.owned.put(request, buffers)));
        }
        self.buffers = Some(buffers);
        posted?;
        if connection.raw.is_full_of_finished() {
            return Err(Error::InvalidArgument(format!(
                "all {CAPACITY} requests of the connection are finished, and their buffers wait to be \
                 asked for"
            )));
        }
        Ok(None)
    }

    fn returned(&mut self, connection: &mut Connection<S>, _: &Error) -> Option<B::Given> {
        // What was posted in part can still be reached.
        connection.raw.stop_if_failed();
        B::given(self.buffers.take()?)
    }

    fn given(self) -> Option<B::Given> {
        B::given(self.buffers?)
    }
}

/// Waiting until the request of a ticket is done. Gives its buffers.
#[derive(Debug)]
pub struct Finish<S, B> {
    ticket: Option<Ticket<S, B>>,
}

impl<S, B> Finish<S, B> {
    pub(super) fn new(ticket: Ticket<S, B>) -> Self {
        Self {
            ticket: Some(ticket),
        }
    }
}

impl<S: Transfer, B: Batch> Attempt for Finish<S, B> {
    type Side = S;
    type Given = Ticket<S, B>;
    type Done = B;
    type Returned = B;

    fn attempt(&mut self, connection: &mut Connection<S>) -> Result<Option<B>, Error> {
        let ticket = self.ticket.as_mut().ok_or_else(ended)?;
        let done = connection.finish_now(ticket)?;
        if done.is_some() {
            self.ticket = None;
        }
        Ok(done)
    }

    fn returned(&mut self, connection: &mut Connection<S>, error: &Error) -> Option<B> {
        connection.take_failed(&mut self.ticket.take()?, error)
    }

    fn given(self) -> Option<Ticket<S, B>> {
        self.ticket
    }
}

/// Waiting until the request of any of some tickets is done. Gives which it was, and its buffers.
#[derive(Debug)]
pub struct FinishAny<'t, S, B> {
    tickets: &'t mut Vec<Ticket<S, B>>,
    failed: Option<usize>,
}

impl<'t, S, B> FinishAny<'t, S, B> {
    pub(super) fn new(tickets: &'t mut Vec<Ticket<S, B>>) -> Self {
        Self {
            tickets,
            failed: None,
        }
    }
}

impl<'t, S: Transfer, B: Batch> Attempt for FinishAny<'t, S, B> {
    type Side = S;
    type Given = &'t mut Vec<Ticket<S, B>>;
    type Done = (usize, B);
    type Returned = (usize, B);

    fn attempt(&mut self, connection: &mut Connection<S>) -> Result<Option<(usize, B)>, Error> {
        if self.tickets.is_empty() {
            let text = "there is no ticket to wait for".to_owned();
            return Err(Error::InvalidArgument(text));
        }
        for (index, ticket) in self.tickets.iter_mut().enumerate() {
            match connection.finish_now(ticket) {
                Ok(None) => {}
                Ok(Some(buffers)) => {
                    drop(self.tickets.remove(index));
                    return Ok(Some((index, buffers)));
                }
                Err(error) => {
                    self.failed = Some(index);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn returned(&mut self, connection: &mut Connection<S>, error: &Error) -> Option<(usize, B)> {
        let index = self.failed.take()?;
        let buffers = connection.take_failed(&mut self.tickets.remove(index), error);
        Some((index, buffers?))
    }

    fn given(self) -> Option<Self::Given> {
        Some(self.tickets)
    }
}

impl<S: Transfer> Connection<S> {
    /// The end of the request of `ticket`: gives its buffers back, those of a receive as long as
    /// their messages. If it fails, so does the connection, but for
    /// [`MessageTooLong`](Error::MessageTooLong).
    ///
    /// # Examples
    /// A ticket is good for one buffer:
    ///
    /// ```compile_fail,E0382
    /// fn twice(sending: &mut ibnet::SendConnection, ticket: ibnet::SendTicket) {
    ///     let buffer = ibnet::Wait::wait(sending.finish(ticket));
    ///     let another = sending.finish(ticket); // used up
    /// }
    /// ```
    ///
    /// and only where it is from; tickets of receives are another type:
    ///
    /// ```compile_fail,E0308
    /// fn confused(sending: &mut ibnet::SendConnection, ticket: ibnet::RecvTicket) {
    ///     let buffer = sending.finish(ticket);
    /// }
    /// ```
    pub fn finish<B: Batch>(&mut self, ticket: Ticket<S, B>) -> Operation<'_, Finish<S, B>> {
        Operation::new(self, Finish::new(ticket))
    }

    /// As [`finish`](Self::finish), of whichever of `tickets` comes first: gives its index, and its
    /// buffers. The ticket is removed from them.
    pub fn finish_any<'a, B: Batch>(
        &'a mut self,
        tickets: &'a mut Vec<Ticket<S, B>>,
    ) -> Operation<'a, FinishAny<'a, S, B>> {
        Operation::new(self, FinishAny::new(tickets))
    }

    /// The buffers of `ticket` if its request is done, each as long as its message.
    fn finish_now<B: Batch>(&mut self, ticket: &mut Ticket<S, B>) -> Result<Option<B>, Error> {
        let (request, buffers) = self.owned.find(ticket)?;
        if !S::test(&mut self.raw, request, buffers)? {
            return Ok(None);
        }
        Ok(self.owned.take(ticket).and_then(B::finished))
    }

    /// The buffers of `ticket`, which has failed with `error`, if nothing can reach them any more.
    fn take_failed<B: Batch>(&mut self, ticket: &mut Ticket<S, B>, error: &Error) -> Option<B> {
        if !self.raw.stop_if_failed() && !is_end_of_request(error) {
            return None;
        }
        self.owned.take(ticket).and_then(B::finished)
    }

    /// Frees what the requests of dropped tickets had, if they are over.
    fn free_abandoned(&mut self) {
        let mut requests = self.owned.take_abandoned();
        if requests.is_empty() {
            return;
        }
        requests.retain(|request| {
            match S::test(&mut self.raw, *request, &mut []) {
                Ok(false) => return true,
                Err(error) if !is_end_of_request(&error) => {
                    // The buffers stay until the connection is closed.
                }
                _ => drop(self.owned.free(*request)),
            }
            false
        });
        self.owned.abandon_again(requests);
    }
}

/// Whether it is an error of the one request, which is over, and not of the connection.
fn is_end_of_request(error: &Error) -> bool {
    matches!(error, Error::MessageTooLong { .. })
}
