//! How a conversation waits: for its socket, for a time, for its turn.
//!
//! Its futures are driven in three ways. Callers that poll give [`polling`]'s waker, and nothing is set up for
//! them; callers that block or await are woken by the events thread.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::connect::control::Channel;
use crate::connect::shared::Shared;
use crate::error::Error;
use crate::events::waiting::{later, polling};
use crate::events::{EventFlags, Interest, Timer, Watch};

/// Wakes one conversation.
pub(crate) struct Waits {
    flags: Arc<EventFlags>,
    timer: Option<Timer>,
    shared: Arc<Shared>,
}

impl Waits {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            flags: Arc::default(),
            timer: None,
            shared: Arc::clone(shared),
        }
    }

    /// Has the caller woken when `channel` is ready for what it needs next, or at `until`.
    pub(crate) fn for_channel(
        &mut self,
        context: &Context<'_>,
        channel: &mut Channel,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        if context.waker().will_wake(polling()) {
            return Ok(());
        }
        // Before the socket is armed, which may be ready already.
        self.flags.wake_later(context.waker());
        channel.listen(&self.shared.events, &self.flags)?;
        match until {
            Some(until) => self.at(context, until),
            None => Ok(()),
        }
    }

    /// Has the caller woken when a client comes to the listening socket of `watch`.
    pub(crate) fn for_clients(
        &mut self,
        context: &Context<'_>,
        watch: &mut Option<Watch>,
        socket: &Arc<std::net::TcpListener>,
    ) -> Result<(), Error> {
        if context.waker().will_wake(polling()) {
            return Ok(());
        }
        self.flags.wake_later(context.waker());
        if let Some(watch) = watch {
            return watch.arm(Interest::Read);
        }
        let socket = Arc::clone(socket);
        let events = &self.shared.events;
        *watch = Some(events.watch_socket(socket, &self.flags, Interest::Read)?);
        Ok(())
    }

    /// Has the caller woken at `time`.
    pub(crate) fn at(&mut self, context: &Context<'_>, time: Instant) -> Result<(), Error> {
        if context.waker().will_wake(polling()) {
            return Ok(());
        }
        self.flags.wake_later(context.waker());
        let events = &self.shared.events;
        self.timer
            .get_or_insert_with(|| events.timer(&self.flags))
            .set(time)
    }

    /// Waits until `time`.
    pub(crate) async fn sleep_until(&mut self, time: Instant) -> Result<(), Error> {
        poll_fn(|context| {
            if Instant::now() >= time {
                return Poll::Ready(Ok(()));
            }
            match self.at(context, time) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }
}

/// One thing that is waited for: reported while it does not come, and given up where there is a limit.
pub(crate) struct Patience {
    began: Instant,
    limit: Option<Duration>,
    /// When it is reported next, and how long after that once more.
    report: Instant,
    pause: Duration,
}

impl Patience {
    /// After so long a wait is reported for the first time; each further time after twice as long.
    const FIRST_REPORT: Duration = Duration::from_secs(10);

    /// Begins to wait at `now`.
    pub(crate) fn new(now: Instant, limit: Option<Duration>) -> Self {
        Self {
            began: now,
            limit,
            report: now + Self::FIRST_REPORT,
            pause: 2 * Self::FIRST_REPORT,
        }
    }

    /// It is `now`, and what is waited for is not there. `who` waits for whom, in words. Gives the time for the
    /// next look.
    ///
    /// # Errors
    /// [`Error::Timeout`] at the limit.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        who: impl FnOnce() -> String,
    ) -> Result<Instant, Error> {
        let end = self.limit.map(|limit| (limit, later(self.began, limit)));
        if let Some((limit, end)) = end
            && now >= end
        {
            return Err(Error::Timeout {
                doing: who(),
                seconds: limit.as_secs(),
            });
        }
        if now >= self.report {
            let waited = now.duration_since(self.began).as_secs();
            tracing::info!("{}, for {waited} s now", who());
            self.report = now + self.pause;
            self.pause *= 2;
        }
        Ok(end.map_or(self.report, |(_, end)| end.min(self.report)))
    }
}

/// Queue pairs that may still be created or connected in one poll, which all conversations of a listener share:
/// each takes up to a millisecond on real devices, and a poll must not take long.
#[derive(Clone, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// A new poll begins.
    pub(crate) fn refill(&self) {
        self.0.store(4, Ordering::Relaxed);
    }

    /// Waits for the turn of one more queue pair.
    pub(crate) async fn take(&self) {
        poll_fn(|context| {
            let left = self.0.load(Ordering::Relaxed);
            if left == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.0.store(left - 1, Ordering::Relaxed);
            Poll::Ready(())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The seconds at which a wait is reported, or ends, if it is looked at when it wants to be.
    fn looks(limit: Option<Duration>, until: Duration) -> (Vec<u64>, Option<Error>) {
        let start = Instant::now();
        let mut patience = Patience::new(start, limit);
        let (mut now, mut times) = (start, Vec::new());
        while now < start + until {
            match patience.look(now, || "this waits for that".to_owned()) {
                Ok(next) => now = next,
                Err(error) => return (times, Some(error)),
            }
            times.push(now.duration_since(start).as_secs());
        }
        (times, None)
    }

    #[test]
    fn without_a_limit_a_wait_has_no_end_and_is_reported_less_and_less() {
        let (times, end) = looks(None, DAY);
        assert!(end.is_none());
        assert_eq!(times[..4], [10, 30, 70, 150]);
        assert!(times.len() < 20);
    }

    #[test]
    fn at_its_limit_a_wait_ends() {
        let (times, end) = looks(Some(Duration::from_secs(45)), DAY);
        assert_eq!(times, [10, 30, 45]);
        assert!(matches!(end, Some(Error::Timeout { seconds: 45, .. })));
        let text = end.unwrap().to_string();
        assert!(text.starts_with("this waits for that"), "{text}");
    }

    #[test]
    fn a_wait_that_was_not_looked_at_for_long_goes_on() {
        let start = Instant::now();
        let mut patience = Patience::new(start, None);
        let late = start + DAY;
        assert_eq!(
            patience.look(late, String::new).unwrap(),
            late + 2 * Patience::FIRST_REPORT
        );
    }
}
