//! An executor that counts how often it polls.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::PATIENCE;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread: what it gave, and how often it was polled.
pub(crate) fn run<F: Future>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let deadline = Instant::now() + PATIENCE;
    for polls in 1.. {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, polls),
            Poll::Pending => {
                thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                assert!(Instant::now() < deadline, "the future was not woken");
            }
        }
    }
    unreachable!("the numbers do not end")
}

/// Polls a future once, which must not be done.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut context).is_pending());
}

/// Both at once, on one thread.
pub(crate) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    std::future::poll_fn(move |context| {
        if a_done.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(context)
        {
            a_done = Some(done);
        }
        if b_done.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(context)
        {
            b_done = Some(done);
        }
        match (a_done.take(), b_done.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (a_done, b_done) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
