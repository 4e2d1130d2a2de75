//! Tickets: what stands for an outstanding request, and what a connection keeps for it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connection::requests::{CAPACITY, RequestId};
use crate::error::Error;

/// What is held for the request in each slot of a connection's table. The table of slots is only
/// made when the safe interface is used.
pub(crate) struct Owned<T> {
    slots: Vec<Option<T>>,
    /// Requests whose tickets nobody has any more: what is held for them is freed when they are
    /// done.
    abandoned: Vec<RequestId>,
    /// Tells this connection from all others of the process.
    connection: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new() -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Self {
            slots: Vec::new(),
            abandoned: Vec::new(),
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(super) fn put(&mut self, request: RequestId, value: T) -> Ticket {
        if self.slots.is_empty() {
            self.slots.resize_with(usize::from(CAPACITY), || None);
        }
        self.slots[usize::from(request.index())] = Some(value);
        Ticket {
            request,
            connection: self.connection,
        }
    }

    /// The request of a ticket, if it is of this connection.
    pub(super) fn check(&self, ticket: &Ticket) -> Result<RequestId, Error> {
        if ticket.connection == self.connection {
            Ok(ticket.request)
        } else {
            Err(Error::InvalidArgument(
                "a ticket of another connection".to_owned(),
            ))
        }
    }

    pub(super) fn take(&mut self, request: RequestId) -> Option<T> {
        self.slots.get_mut(usize::from(request.index()))?.take()
    }

    /// Nobody will ask for the request of `ticket`.
    pub(super) fn abandon(&mut self, ticket: &Ticket) {
        if let Ok(request) = self.check(ticket) {
            self.abandoned.push(request);
        }
    }

    /// Whether there are requests that nobody will ask for.
    pub(super) fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// The requests that nobody will ask for; those that are not done are to be abandoned again.
    pub(super) fn take_abandoned(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.abandoned)
    }

    pub(super) fn abandon_again(&mut self, request: RequestId) {
        self.abandoned.push(request);
    }
}

/// An outstanding send. Give it to [`SendConnection::wait`](crate::SendConnection::wait) to get the
/// buffer back. If it is dropped, the connection keeps the buffer until it is closed.
#[derive(Debug)]
#[must_use = "the buffer comes back through `wait` or `poll`"]
pub struct SendTicket(pub(super) Ticket);

/// An outstanding receive. Give it to [`RecvConnection::wait`](crate::RecvConnection::wait) to get
/// the buffers back. If it is dropped, the connection keeps the buffers until it is closed.
#[derive(Debug)]
#[must_use = "the buffers come back through `wait` or `poll`"]
pub struct RecvTicket(pub(super) Ticket);

/// A request and the connection that it is of: ids repeat from connection to connection.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) request: RequestId,
    connection: u64,
}

/// A request that could not be made, and its buffers.
pub enum Unposted<T> {
    /// Nothing is announced yet, or too much is outstanding: try again.
    NotReady(T),
    /// It will never be possible.
    Failed(Error, T),
}

impl<T> Unposted<T> {
    /// The buffers, whatever the reason.
    pub fn into_buffers(self) -> T {
        match self {
            Self::NotReady(buffers) | Self::Failed(_, buffers) => buffers,
        }
    }
}

impl<T> fmt::Debug for Unposted<T> {
    /// Without the buffers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(_) => f.write_str("NotReady"),
            Self::Failed(error, _) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

/// Finished requests hold their places until their buffers are asked for, which nobody can do any
/// more without the tickets.
pub(super) fn dropped_tickets() -> Error {
    Error::InvalidArgument(format!(
        "all {CAPACITY} requests of the connection are finished and none was waited for; their \
         tickets may have been dropped"
    ))
}

pub(super) fn foreign(request: RequestId) -> Error {
    Error::StaleRequest {
        raw: request.into_raw(),
    }
}

/// What was to be done is done, or has failed.
#[cold]
pub(super) fn ended() -> Error {
    Error::InvalidArgument("this wait has ended already".to_owned())
}
