//! How a conversation waits: for its socket, for a time, for its turn.
//!
//! Its futures are driven in three ways. Callers that poll give [`polling`]'s waker, and nothing is set up for
//! them; callers that block or await are woken by the events thread.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::channel::Channel;
use crate::error::Error;
use crate::monitor::{Alarm, Attention, Interest, SocketWatch};
use crate::transport::Inner;

/// The waker of callers that poll.
pub(crate) fn polling() -> &'static Waker {
    struct Polls;

    impl Wake for Polls {
        fn wake(self: Arc<Self>) {}
    }

    static WAKER: LazyLock<Waker> = LazyLock::new(|| Waker::from(Arc::new(Polls)));
    &WAKER
}

/// Wakes one conversation.
pub(crate) struct Waits {
    attention: Arc<Attention>,
    alarm: Option<Alarm>,
    inner: Arc<Inner>,
}

impl Waits {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            attention: Arc::default(),
            alarm: None,
            inner: Arc::clone(inner),
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
        self.attention.wake_later(context.waker());
        channel.listen(&self.inner.monitor, &self.attention)?;
        match until {
            Some(until) => self.at(context, until),
            None => Ok(()),
        }
    }

    /// Has the caller woken when a client comes to the listening socket of `watch`.
    pub(crate) fn for_clients(
        &mut self,
        context: &Context<'_>,
        watch: &mut Option<SocketWatch>,
        socket: &Arc<std::net::TcpListener>,
    ) -> Result<(), Error> {
        if context.waker().will_wake(polling()) {
            return Ok(());
        }
        self.attention.wake_later(context.waker());
        if let Some(watch) = watch {
            return watch.arm(Interest::Read);
        }
        let socket = Arc::clone(socket);
        let monitor = &self.inner.monitor;
        *watch = Some(monitor.watch_socket(socket, &self.attention, Interest::Read)?);
        Ok(())
    }

    /// Has the caller woken at `time`.
    pub(crate) fn at(&mut self, context: &Context<'_>, time: Instant) -> Result<(), Error> {
        if context.waker().will_wake(polling()) {
            return Ok(());
        }
        self.attention.wake_later(context.waker());
        let monitor = &self.inner.monitor;
        self.alarm
            .get_or_insert_with(|| monitor.alarm(&self.attention))
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
