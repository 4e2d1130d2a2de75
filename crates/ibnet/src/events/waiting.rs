//! Points in time, and the waker of callers that poll.

use std::task::Waker;
use std::time::{Duration, Instant};

/// The time `duration` after `start`. One that is not on the clock any more is for ever, which is
/// what who asks for it means.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    start + duration.min(FOR_EVER)
}

/// The waker of callers that poll: futures set nothing up to wake them.
pub(crate) fn polling() -> &'static Waker {
    // One place for it: copies would not be known as the same.
    static WAKER: &Waker = Waker::noop();
    WAKER
}
