//! Waiting: for whom polls, and for whom is woken.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::connection::End;
use crate::error::Error;

/// The time `duration` after `start`. One that is not on the clock any more is for ever, which is
/// what who asks for it means.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    start + duration.min(FOR_EVER)
}

/// Tries `attempt` on `end` until it gives something. `None` if `deadline` comes first.
pub(super) fn wait_for<E: End, T>(
    end: &mut E,
    deadline: Option<Instant>,
    mut attempt: impl FnMut(&mut E) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    if end.core().notifies() {
        let poll = |context: &mut Context<'_>| poll_for(end, context, &mut attempt);
        return match deadline {
            None => block_on(poll).map(Some),
            Some(deadline) => block_until(deadline, poll).transpose(),
        };
    }
    let mut pause = Pause::default();
    loop {
        if let Some(done) = attempt(end)? {
            return Ok(Some(done));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        pause.once();
    }
}

/// Tries `attempt` on `end`. If it gives nothing, whoever `context` is of is woken when it is worth
/// another try.
pub(crate) fn poll_for<E: End, T>(
    end: &mut E,
    context: &mut Context<'_>,
    mut attempt: impl FnMut(&mut E) -> Result<Option<T>, Error>,
) -> Poll<Result<T, Error>> {
    /// Batches of completions that one poll takes. If more are there, others have their turn first.
    const BATCHES: usize = 16;
    if !end.core().notifies() {
        return Poll::Ready(Err(silent(end)));
    }
    if let Some(done) = attempt(end)? {
        return Poll::Ready(Ok(done));
    }
    end.core().listen(context.waker())?;
    // The devices tell of what comes from now on. What came before must be looked at, all of it.
    for _ in 0..BATCHES {
        let completions = end.progress()?;
        if let Some(done) = attempt(end)? {
            return Poll::Ready(Ok(done));
        }
        if completions == 0 {
            end.core().listen_to_the_end()?;
            return Poll::Pending;
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

#[cold]
fn silent<E: End>(end: &mut E) -> Error {
    Error::InvalidArgument(format!(
        "{} was made for polling and would never be woken; to await something on it set `notify` \
         in its ConnectOptions or ListenOptions",
        end.core().names()
    ))
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

/// Waiting by polling: spins while an answer may come within microseconds, then lets others run,
/// then sleeps.
#[derive(Default)]
struct Pause {
    rounds: u32,
    since: Option<Instant>,
}

impl Pause {
    fn once(&mut self) {
        const SPINS: u32 = 200;
        const YIELD_FOR: Duration = Duration::from_millis(20);
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPINS {
            std::hint::spin_loop();
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
