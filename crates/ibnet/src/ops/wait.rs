//! [`Wait`]: the ways to drive a future without a runtime.

use std::cell::OnceCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use crate::events::waiting::{later, polling};

/// The four ways to come to the end of an operation: it can be tried, waited for, waited for with a
/// limit, and awaited.
///
/// Every operation of this crate is a future and has these methods. None of them needs a runtime.
pub trait Wait: Future<Output = Result<Self::Done, Self::Error>> + Unpin + Sized {
    /// What the operation gives when it is done.
    type Done;
    /// Why it never will be done.
    type Error;

    /// Goes as far as possible without waiting. `None` if the operation is not done: try again.
    ///
    /// # Errors
    /// The operation has failed. It has ended then, and every later call is an error, too.
    fn try_now(&mut self) -> Result<Option<Self::Done>, Self::Error> {
        match Pin::new(self).poll(&mut Context::from_waker(polling())) {
            Poll::Ready(outcome) => outcome.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits until the operation is done.
    ///
    /// # Errors
    /// The operation has failed.
    fn wait(mut self) -> Result<Self::Done, Self::Error> {
        loop {
            // Without a deadline there is no other end.
            if let Some(outcome) = block(&mut self, None) {
                return outcome;
            }
        }
    }

    /// As [`wait`](Self::wait), but `None` when `time` is over. The operation goes on: it can be waited for
    /// again.
    ///
    /// # Errors
    /// As for [`try_now`](Self::try_now).
    fn wait_for(&mut self, time: Duration) -> Result<Option<Self::Done>, Self::Error> {
        self.wait_until(later(Instant::now(), time))
    }

    /// As [`wait_for`](Self::wait_for), until `deadline`.
    ///
    /// # Errors
    /// As for [`try_now`](Self::try_now).
    fn wait_until(&mut self, deadline: Instant) -> Result<Option<Self::Done>, Self::Error> {
        block(self, Some(deadline)).transpose()
    }
}

impl<F, T, E> Wait for F
where
    F: Future<Output = Result<T, E>> + Unpin,
{
    type Done = T;
    type Error = E;
}

/// Polls `future` until it is ready; sleeps in between. `None` if `deadline` comes first.
fn block<F: Future + Unpin>(future: &mut F, deadline: Option<Instant>) -> Option<F::Output> {
    thread_local! {
        static ALARM: OnceCell<Arc<Alarm>> = const { OnceCell::new() };
    }
    // There is none any more while the thread ends.
    let alarm = ALARM
        .try_with(|alarm| Arc::clone(alarm.get_or_init(Alarm::of_this_thread)))
        .unwrap_or_else(|_| Alarm::of_this_thread());
    let waker = Waker::from(Arc::clone(&alarm));
    let mut pause = Pause::default();
    loop {
        alarm.is_woken.store(false, Ordering::Relaxed);
        if let Poll::Ready(done) = Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        if alarm.is_woken.load(Ordering::Acquire) {
            // It woke itself: it can only be polled.
            pause.once();
            continue;
        }
        pause = Pause::default();
        match left {
            None => thread::park(),
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// Wakes one thread.
struct Alarm {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Alarm {
    fn of_this_thread() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
        })
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Waiting by polling: spins while an answer may come within microseconds, then lets others run,
/// then sleeps.
#[derive(Default)]
struct Pause {
    backoff: Backoff,
    since: Option<Instant>,
}

impl Pause {
    fn once(&mut self) {
        const YIELD_FOR: Duration = Duration::from_millis(20);
        if !self.backoff.is_completed() {
            self.backoff.snooze();
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < YIELD_FOR {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(100));
        }
    }
}
