//! [`Connection`]: one end of a connection, and the buffers of its requests.

use std::fmt;

use super::Buffer;
use super::operation::Operation;
use super::tickets::{Owned, Ticket};
use super::transfer::{Batch, Finish, FinishAny, Post, Transfer};
use crate::connection::observer::Observer;
use crate::connection::raw;
use crate::error::Error;
use crate::memory::region::Registrar;

/// One end of a connection: [`SendConnection`] or [`RecvConnection`].
///
/// It belongs to one thread at a time; memory may meanwhile be registered on another through a
/// [`Registrar`].
///
/// [`close`](Self::close) tells the peer that this end is done. A connection that is dropped without it is
/// torn down just as completely, but to the peer it looks like a process that died.
pub struct Connection<S: Transfer> {
    // First, so that the queue pairs are gone before the buffers that they reach.
    pub(super) raw: raw::Connection<S>,
    pub(super) owned: Owned,
}

/// The sending end of a connection.
pub type SendConnection = Connection<raw::Sender>;

/// The receiving end of a connection.
pub type RecvConnection = Connection<raw::Receiver>;

impl<S: Transfer> Connection<S> {
    pub(crate) fn new(raw: raw::Connection<S>) -> Self {
        Self {
            raw,
            owned: Owned::default(),
        }
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        self.raw.registrar()
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.raw.description()
    }

    /// Requests that are not done, or whose end has not been asked for.
    pub fn outstanding(&self) -> usize {
        self.raw.outstanding()
    }

    /// Lets `observer` hear of the pieces of messages: see [`raw::Connection::observe`].
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.raw.observe(observer);
    }

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

    /// The raw calls, which take pointers. Requests of both layers can be outstanding at once.
    pub fn raw(&mut self) -> &mut raw::Connection<S> {
        &mut self.raw
    }

    /// The raw calls alone, for callers that never give buffers away. The buffers of requests of the safe
    /// layer that are outstanding are leaked.
    pub fn into_raw(self) -> raw::Connection<S> {
        self.owned.leak();
        self.raw
    }

    /// Closes the connection, whatever is outstanding, and tells the peer; never waits.
    ///
    /// # Errors
    /// The first thing that could not be torn down.
    pub fn close(self) -> Result<(), Error> {
        self.raw.close()
    }
}

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

impl<S: Transfer> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.description())
            .finish()
    }
}
