//! Tickets: what stands for an outstanding request, and what a connection keeps for it.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Buffer;
use crate::connection::raw::{Receiver, Sender};
use crate::connection::requests::{CAPACITY, RequestId};
use crate::error::Error;

/// The buffers of the request in each slot of a connection's table. The table of slots is only
/// made when the safe interface is used.
#[derive(Default)]
pub(super) struct Owned {
    slots: Vec<Option<Vec<Buffer>>>,
    abandoned: Arc<Abandoned>,
}

/// Requests whose tickets were dropped: their buffers are freed when they are done. It also tells the
/// connection from all others of the process.
#[derive(Default)]
struct Abandoned(Mutex<Vec<RequestId>>);

impl Abandoned {
    fn lock(&self) -> MutexGuard<'_, Vec<RequestId>> {
        // A push is never half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    pub(super) fn put<S, B>(&mut self, request: RequestId, buffers: Vec<Buffer>) -> Ticket<S, B> {
        if self.slots.is_empty() {
            self.slots.resize_with(usize::from(CAPACITY), || None);
        }
        self.slots[usize::from(request.index())] = Some(buffers);
        Ticket {
            request,
            abandoned: Arc::clone(&self.abandoned),
            is_over: false,
            of: PhantomData,
        }
    }

    /// The request of `ticket` and its buffers, if it is outstanding on this connection.
    pub(super) fn find<S, B>(
        &mut self,
        ticket: &Ticket<S, B>,
    ) -> Result<(RequestId, &mut Vec<Buffer>), Error> {
        if !Arc::ptr_eq(&ticket.abandoned, &self.abandoned) {
            let text = "a ticket of another connection".to_owned();
            return Err(Error::InvalidArgument(text));
        }
        let slot = self.slots.get_mut(usize::from(ticket.request.index()));
        match slot.and_then(Option::as_mut) {
            Some(buffers) if !ticket.is_over => Ok((ticket.request, buffers)),
            _ => Err(ended()),
        }
    }

    /// Takes the buffers of `ticket`, whose request is over, if they are here.
    pub(super) fn take<S, B>(&mut self, ticket: &mut Ticket<S, B>) -> Option<Vec<Buffer>> {
        self.find(ticket).ok()?;
        ticket.is_over = true;
        self.free(ticket.request)
    }

    /// Leaks the buffers that there are.
    pub(super) fn leak(self) {
        mem::forget(self.slots);
    }

    pub(super) fn free(&mut self, request: RequestId) -> Option<Vec<Buffer>> {
        self.slots.get_mut(usize::from(request.index()))?.take()
    }

    /// The requests whose tickets were dropped; those that are not over are to be given back.
    pub(super) fn take_abandoned(&self) -> Vec<RequestId> {
        mem::take(&mut *self.abandoned.lock())
    }

    pub(super) fn abandon_again(&self, requests: Vec<RequestId>) {
        self.abandoned.lock().extend(requests);
    }
}

/// An outstanding request. [`Connection::finish`](crate::Connection::finish) gives its buffers back. If it is
/// dropped, the connection frees them when the request is done.
#[must_use = "the buffers come back through `finish`"]
pub struct Ticket<S, B> {
    request: RequestId,
    abandoned: Arc<Abandoned>,
    is_over: bool,
    of: PhantomData<fn() -> (S, B)>,
}

/// An outstanding send. Its end gives the [`Buffer`] back.
pub type SendTicket = Ticket<Sender, Buffer>;

/// An outstanding receive of one buffer. Its end gives the [`Buffer`], as long as the message.
pub type RecvTicket = Ticket<Receiver, Buffer>;

/// An outstanding receive of a group. Its end gives the buffers, each as long as its message.
pub type GroupTicket = Ticket<Receiver, Vec<Buffer>>;

impl<S, B> Drop for Ticket<S, B> {
    fn drop(&mut self) {
        if !self.is_over {
            self.abandoned.lock().push(self.request);
        }
    }
}

impl<S, B> fmt::Debug for Ticket<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.request).finish()
    }
}

/// What was to be done is done, or has failed.
#[cold]
pub(super) fn ended() -> Error {
    Error::InvalidArgument("this operation has ended already".to_owned())
}
