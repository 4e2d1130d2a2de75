//! What a handshake that cannot go on waits for, so that nobody has to poll it meanwhile.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::error::Error;
use crate::monitor::{Alarm, Attention, Monitor};

/// What something that could not go on needs for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Its socket to be ready.
    pub(crate) socket: bool,
    /// At the latest this time, which may have come already.
    pub(crate) until: Instant,
}

/// Who waits for handshakes.
pub(crate) struct Waiter {
    attention: Arc<Attention>,
    alarm: Alarm,
}

impl Waiter {
    pub(crate) fn new(monitor: &Monitor) -> Self {
        let attention = Arc::new(Attention::default());
        Self {
            alarm: monitor.alarm(&attention),
            attention,
        }
    }

    /// Whom to wake when a socket is ready. `waker` is what is woken: say so before the sockets
    /// are armed.
    pub(crate) fn begin(&self, waker: &Waker) -> &Arc<Attention> {
        self.attention.wake_later(waker);
        &self.attention
    }

    /// Has `waker` woken at `time` at the latest.
    pub(crate) fn until(&mut self, time: Instant, waker: &Waker) -> Result<(), Error> {
        if time <= Instant::now() {
            // There is more to do than one poll does.
            waker.wake_by_ref();
            return Ok(());
        }
        self.alarm.set(time)
    }
}
