//! Posting buffers, and finishing the requests that have them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::Buffer;
use super::connection::Connection;
use super::operation::Attempt;
use super::tickets::{Ticket, ended};
use crate::connection::Side;
use crate::connection::raw::{self, RecvBuffer};
use crate::connection::requests::{CAPACITY, RequestId};
use crate::error::Error;

/// What a side does with buffers.
pub trait Transfer: Side {
    /// Posts a request for `buffers`, each with its tag; `None` if it is not possible now.
    ///
    /// # Safety
    /// The buffers live, and nothing touches them, until the request is done or the connection is gone.
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error>;

    /// Whether `request` is done; then `buffers` are as long as their messages.
    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        buffers: &mut [Buffer],
    ) -> Result<bool, Error>;
}

impl Transfer for raw::Sender {
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error> {
        let [(buffer, tag)] = buffers else {
            return Err(ended());
        };
        let (data, length) = (buffer.mapping.as_ptr(), buffer.length);
        // SAFETY: passed on to the caller.
        let request = unsafe { raw.isend_whole(data, length, *tag, &buffer.region) }?;
        // The holder of a ticket may not ask for it for long.
        raw.post_staged()?;
        Ok(request)
    }

    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        _buffers: &mut [Buffer],
    ) -> Result<bool, Error> {
        Ok(raw.test(request)?.is_some())
    }
}

impl Transfer for raw::Receiver {
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error> {
        let buffers: Vec<RecvBuffer<'_>> = buffers
            .iter()
            .map(|(buffer, tag)| RecvBuffer {
                data: buffer.mapping.as_ptr(),
                capacity: buffer.length,
                tag: *tag,
                region: Some(&buffer.region),
            })
            .collect();
        // SAFETY: passed on to the caller.
        unsafe { raw.irecv(&buffers) }
    }

    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        buffers: &mut [Buffer],
    ) -> Result<bool, Error> {
        raw.test_with(request, |position, size| {
            if let Some(buffer) = buffers.get_mut(position) {
                buffer.set_length(size as usize);
            }
        })
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
