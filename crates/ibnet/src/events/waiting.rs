//! Blocking the calling thread until a future is ready.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The time `duration` after `start`. One that is not on the clock any more is for ever, which is
/// what who asks for it means.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    start + duration.min(FOR_EVER)
}

/// Polls until there is a result; sleeps in between.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    with_waker(|context| {
        loop {
            if let Poll::Ready(done) = poll(context) {
                return done;
            }
            thread::park();
        }
    })
}

/// As [`block_on`], but gives `None` when `deadline` comes first.
pub(crate) fn block_until<T>(
    deadline: Instant,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    with_waker(|context| {
        loop {
            if let Poll::Ready(done) = poll(context) {
                return Some(done);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    })
}

/// Calls `wait` with what wakes this thread.
fn with_waker<T>(wait: impl FnOnce(&mut Context<'_>) -> T) -> T {
    thread_local! {
        static WAKER: OnceCell<Waker> = const { OnceCell::new() };
    }
    let new = || Waker::from(Arc::new(Unpark(thread::current())));
    // There is none any more while the thread ends.
    let waker = WAKER.try_with(|waker| waker.get_or_init(new).clone());
    let waker = waker.unwrap_or_else(|_| new());
    wait(&mut Context::from_waker(&waker))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
