//! [`Operation`]: what a connection was asked to do, and how it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::connection::Connection;
use super::transfer::Transfer;
use crate::error::Error;
use crate::events::waiting::polling;

/// Something that a connection has been asked to do. Nothing happens until it is tried, waited for or
/// awaited: see [`Wait`](crate::Wait).
///
/// # When it is dropped
/// Nothing is lost with an operation that is dropped before its end, as `select!` and time limits do it. What
/// was not posted was not begun; [`into_inner`](Self::into_inner) gives it back. A request that is under
/// way goes on: the connection keeps its buffers until it is done, and frees them then.
///
/// # Many at once
/// An operation has its connection for itself while it lives. Several requests are under way at once if
/// they are posted one after the other and then waited for one after the other, as the tickets
/// allow; several connections are waited for by several tasks.
#[must_use = "nothing happens until an operation is tried, waited for or awaited"]
pub struct Operation<'a, A: Attempt> {
    connection: &'a mut Connection<A::Side>,
    attempt: A,
}

/// A step that is tried until it succeeds.
pub trait Attempt: Unpin {
    /// Of which side the connection is.
    type Side: Transfer;
    /// What it was made of.
    type Given;
    /// What it gives when it is done.
    type Done;
    /// What comes back when it fails.
    type Returned;

    /// Does it if it can be done now.
    fn attempt(
        &mut self,
        connection: &mut Connection<Self::Side>,
    ) -> Result<Option<Self::Done>, Error>;

    /// After it has failed: what can be given back.
    fn returned(
        &mut self,
        connection: &mut Connection<Self::Side>,
        error: &Error,
    ) -> Option<Self::Returned>;

    /// What it was made of, unless it has ended.
    fn given(self) -> Option<Self::Given>;
}

impl<'a, A: Attempt> Operation<'a, A> {
    pub(super) fn new(connection: &'a mut Connection<A::Side>, attempt: A) -> Self {
        Self {
            connection,
            attempt,
        }
    }

    /// What the operation was given, unless it has ended: the buffers to post, or the ticket.
    pub fn into_inner(self) -> Option<A::Given> {
        self.attempt.given()
    }
}

impl<A: Attempt> Future for Operation<'_, A> {
    type Output = Result<A::Done, OpError<A::Returned>>;

    /// On a connection that was made with `notify` the waker is woken when it is worth another try.
    /// On others it is woken at once: such a connection can only be polled.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            connection,
            attempt,
        } = self.get_mut();
        match advance(connection, attempt, context) {
            Ok(Some(done)) => Poll::Ready(Ok(done)),
            Ok(None) => Poll::Pending,
            Err(error) => {
                let returned = attempt.returned(connection, &error);
                Poll::Ready(Err(OpError { error, returned }))
            }
        }
    }
}

/// Tries `attempt`. If it gives nothing, the caller is woken when it is worth another try.
fn advance<A: Attempt>(
    connection: &mut Connection<A::Side>,
    attempt: &mut A,
    context: &Context<'_>,
) -> Result<Option<A::Done>, Error> {
    /// Batches of completions that one poll takes. If more are there, others have their turn first.
    const BATCHES: usize = 16;
    if let Some(done) = attempt.attempt(connection)? {
        return Ok(Some(done));
    }
    if context.waker().will_wake(polling()) {
        return Ok(None);
    }
    if connection.raw.core().notifies() {
        connection.raw.core().listen(context.waker())?;
        // The devices tell of what comes from now on. What came before must be looked at, all of it.
        for _ in 0..BATCHES {
            let completions = connection.raw.progress()?;
            if let Some(done) = attempt.attempt(connection)? {
                return Ok(Some(done));
            }
            if completions == 0 {
                connection.raw.core().listen_to_the_end()?;
                return Ok(None);
            }
        }
    }
    context.waker().wake_by_ref();
    Ok(None)
}

impl<A: Attempt> fmt::Debug for Operation<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("connection", self.connection)
            .finish_non_exhaustive()
    }
}

/// An operation that has failed: why, and what it was given.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct OpError<T> {
    /// Why.
    #[source]
    pub error: Error,
    /// The buffers. None if they are not there to be given back: the operation had ended before, or the
    /// ticket is of another connection.
    pub returned: Option<T>,
}

impl<T> fmt::Debug for OpError<T> {
    /// Without the buffers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> From<OpError<T>> for Error {
    fn from(failed: OpError<T>) -> Self {
        failed.error
    }
}
