//! Waiting: for whom polls, and for whom is woken.

use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::End;
use crate::error::Error;
use crate::events::waiting::{block_on, block_until};

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
