//! What can be awaited: connecting, accepting, sending and receiving.
//!
//! The futures need no runtime of a certain kind, and none has to know of this crate: whoever waits
//! is woken by the one events thread of the transport, which sleeps in the kernel until a device
//! tells of a completion, a peer of its leaving, or the clock of a time. Waiting costs no processor
//! time, however many connections there are.
//!
//! [`Connecting`](crate::Connecting) is a future itself, and [`Accept`] works for every listener.
//! Those of sends and receives need a connection that was made with `notify`
//! ([`ConnectOptions`](crate::ConnectOptions::notify),
//! [`ListenOptions`](crate::ListenOptions::notify)); on others they are an error at once. The two
//! ends are independent in that.
//!
//! # Dropped futures
//! Nothing is lost with a future that is dropped before its end, as `select!` and time limits do it.
//! What was not posted was not begun: [`PostSend::into_buffer`] and [`PostRecv::into_buffers`] give
//! it back. A request that is under way goes on. Whoever still wants its buffers takes the ticket out
//! ([`FinishSend::into_ticket`] and so on); otherwise the connection keeps them until the request is
//! done, and then frees them.
//!
//! # Many at once
//! A future has its connection for itself while it lives. Several requests are under way at once if
//! they are posted one after the other and then waited for one after the other, as the tickets
//! allow; several connections are waited for by several tasks.
//!
//! ```no_run
//! # async fn example(receiving: &mut ibnet::RecvConnection) -> Result<(), ibnet::Error> {
//! let mut tickets = Vec::new();
//! for _ in 0..8 {
//!     let buffer = receiving.registrar().buffer(1 << 20)?;
//!     tickets.push(receiving.recv_async(buffer, 0).await?);
//! }
//! for ticket in tickets {
//!     let message = receiving.wait_async(ticket).await?;
//!     println!("{} bytes", message.len());
//! }
//! # Ok(())
//! # }
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::connection::receiver::RecvConnection;
use crate::connection::sender::SendConnection;
use crate::error::Error;
use crate::ops::{Buffer, RecvTicket, SendTicket, only, poll_for};
use crate::transport::listener::Listener;

/// Accepts a connection: [`Listener::accept_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accept<'a>(&'a mut Listener);

impl<'a> Accept<'a> {
    pub(crate) fn new(listener: &'a mut Listener) -> Self {
        Self(listener)
    }
}

impl Future for Accept<'_> {
    type Output = Result<RecvConnection, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_accept_with(context)
    }
}

/// Waits for an announcement and posts a send: [`SendConnection::send_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct PostSend<'a> {
    connection: &'a mut SendConnection,
    buffer: Option<Buffer>,
    tag: i32,
}

impl<'a> PostSend<'a> {
    pub(crate) fn new(connection: &'a mut SendConnection, buffer: Buffer, tag: i32) -> Self {
        Self {
            connection,
            buffer: Some(buffer),
            tag,
        }
    }

    /// The buffer, unless it was posted.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.buffer
    }
}

impl Future for PostSend<'_> {
    type Output = Result<SendTicket, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            connection,
            buffer,
            tag,
        } = self.get_mut();
        poll_for(*connection, context, |end| end.attempt_send(buffer, *tag))
    }
}

/// Waits until a send is done: [`SendConnection::wait_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct FinishSend<'a> {
    connection: &'a mut SendConnection,
    ticket: Option<SendTicket>,
}

impl<'a> FinishSend<'a> {
    pub(crate) fn new(connection: &'a mut SendConnection, ticket: SendTicket) -> Self {
        Self {
            connection,
            ticket: Some(ticket),
        }
    }

    /// The ticket, unless the wait has ended.
    pub fn into_ticket(mut self) -> Option<SendTicket> {
        self.ticket.take()
    }
}

impl Future for FinishSend<'_> {
    type Output = Result<Buffer, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, ticket } = self.get_mut();
        poll_for(*connection, context, |end| end.attempt_finish(ticket))
    }
}

impl Drop for FinishSend<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.connection.abandon(ticket);
        }
    }
}

/// Waits for room and announces buffers: [`RecvConnection::recv_async`] and
/// [`RecvConnection::recv_group_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct PostRecv<'a> {
    connection: &'a mut RecvConnection,
    buffers: Option<Vec<(Buffer, i32)>>,
}

impl<'a> PostRecv<'a> {
    pub(crate) fn new(connection: &'a mut RecvConnection, buffers: Vec<(Buffer, i32)>) -> Self {
        Self {
            connection,
            buffers: Some(buffers),
        }
    }

    /// The buffers and their tags, unless they were announced.
    pub fn into_buffers(self) -> Option<Vec<(Buffer, i32)>> {
        self.buffers
    }
}

impl Future for PostRecv<'_> {
    type Output = Result<RecvTicket, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            connection,
            buffers,
        } = self.get_mut();
        poll_for(*connection, context, |end| end.attempt_recv(buffers))
    }
}

/// Waits until a receive is done, of any number of buffers: [`RecvConnection::wait_group_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct FinishGroup<'a> {
    connection: &'a mut RecvConnection,
    ticket: Option<RecvTicket>,
}

impl<'a> FinishGroup<'a> {
    pub(crate) fn new(connection: &'a mut RecvConnection, ticket: RecvTicket) -> Self {
        Self {
            connection,
            ticket: Some(ticket),
        }
    }

    /// The ticket, unless the wait has ended.
    pub fn into_ticket(mut self) -> Option<RecvTicket> {
        self.ticket.take()
    }
}

impl Future for FinishGroup<'_> {
    type Output = Result<Vec<Buffer>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, ticket } = self.get_mut();
        poll_for(*connection, context, |end| end.attempt_finish(ticket))
    }
}

impl Drop for FinishGroup<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.connection.abandon(ticket);
        }
    }
}

/// Waits until a receive of one buffer is done: [`RecvConnection::wait_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct FinishRecv<'a>(FinishGroup<'a>);

impl<'a> FinishRecv<'a> {
    pub(crate) fn new(connection: &'a mut RecvConnection, ticket: RecvTicket) -> Self {
        Self(FinishGroup::new(connection, ticket))
    }

    /// The ticket, unless the wait has ended.
    pub fn into_ticket(self) -> Option<RecvTicket> {
        self.0.into_ticket()
    }
}

impl Future for FinishRecv<'_> {
    type Output = Result<Buffer, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0)
            .poll(context)
            .map(|done| done.and_then(only))
    }
}
