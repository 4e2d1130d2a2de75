//! Being woken when a time has come, by the events thread.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::EventFlags;
use crate::error::Error;

/// The times for which somebody waits, and the system's timer for the first of them.
pub(super) struct Timers {
    timer: TimerFd,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Whom to wake, by when and which alarm it is.
    entries: BTreeMap<Key, Arc<EventFlags>>,
    alarms: u64,
}

type Key = (Instant, u64);

/// Wakes one who waits, at a time that can be moved. Dropped, it does not any more.
pub(crate) struct Timer {
    alarms: Arc<Timers>,
    flags: Arc<EventFlags>,
    number: u64,
    set_to: Option<Instant>,
}

impl Timers {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self {
            // The clock of `Instant`.
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            queue: Mutex::default(),
        })
    }

    /// Wakes everybody whose time has come.
    pub(super) fn ring(&self) {
        for flags in self.due(Instant::now()) {
            flags.wake();
        }
    }

    fn due(&self, now: Instant) -> Vec<Arc<EventFlags>> {
        let mut queue = self.lock();
        let mut due = Vec::new();
        while let Some(first) = queue.entries.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        if let Err(errno) = self.set_timer(&queue) {
            tracing::error!(%errno, "the timer of the events thread cannot be set");
        }
        due
    }

    /// Sets the system's timer to the first entry.
    fn set_timer(&self, queue: &Queue) -> Result<(), Errno> {
        let Some(((first, _), _)) = queue.entries.first_key_value() else {
            return self.timer.unset();
        };
        // Zero would mean never.
        let left = first.saturating_duration_since(Instant::now());
        let left = TimeSpec::from_duration(left.max(Duration::from_nanos(1)));
        self.timer
            .set(Expiration::OneShot(left), TimerSetTimeFlags::empty())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code under this lock leaves the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Timers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl Timer {
    pub(super) fn new(alarms: &Arc<Timers>, flags: &Arc<EventFlags>) -> Self {
        let number = {
            let mut queue = alarms.lock();
            queue.alarms += 1;
            queue.alarms
        };
        Self {
            alarms: Arc::clone(alarms),
            flags: Arc::clone(flags),
            number,
            set_to: None,
        }
    }

    /// Has who waits woken at `time`, or earlier. An alarm that is already set to an earlier time
    /// stays as it is: who waits looks at the clock anyway, and sets it anew.
    pub(crate) fn set(&mut self, time: Instant) -> Result<(), Error> {
        let mut queue = self.alarms.lock();
        if let Some(old) = self.set_to {
            if old <= time && queue.entries.contains_key(&(old, self.number)) {
                return Ok(());
            }
            queue.entries.remove(&(old, self.number));
        }
        let key = (time, self.number);
        queue.entries.insert(key, Arc::clone(&self.flags));
        self.set_to = Some(time);
        if queue.entries.first_key_value().map(|(first, _)| *first) != Some(key) {
            return Ok(());
        }
        self.alarms
            .set_timer(&queue)
            .map_err(|errno| Error::system("setting the timer of the events thread", errno))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // In a forked child the lock may have been held by the thread that is not there.
        if self.flags.is_inherited() {
            return;
        }
        // The timer may go off for nothing.
        if let Some(time) = self.set_to {
            self.alarms.lock().entries.remove(&(time, self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn timer(alarms: &Arc<Timers>) -> Timer {
        Timer::new(alarms, &Arc::new(EventFlags::default()))
    }

    fn expires_in(alarms: &Timers) -> Option<Duration> {
        match alarms.timer.get().unwrap()? {
            Expiration::OneShot(left) => Some(left.into()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_timer_is_that_of_the_first_alarm() {
        const HOUR: Duration = Duration::from_secs(3600);
        let alarms = Arc::new(Timers::new().unwrap());
        let now = Instant::now();
        let (mut late, mut early) = (timer(&alarms), timer(&alarms));
        late.set(now + 4 * HOUR).unwrap();
        assert!(expires_in(&alarms).unwrap() > 3 * HOUR);
        early.set(now + 2 * HOUR).unwrap();
        assert!(expires_in(&alarms).unwrap() < 3 * HOUR);
        // An alarm is moved forward, not back.
        early.set(now + 3 * HOUR).unwrap();
        early.set(now + HOUR).unwrap();
        assert!(expires_in(&alarms).unwrap() < 2 * HOUR);
        assert_eq!(alarms.lock().entries.len(), 2);

        assert!(alarms.due(now).is_empty());
        assert_eq!(alarms.due(now + HOUR).len(), 1);
        assert!(expires_in(&alarms).unwrap() > 3 * HOUR);
        // One that has gone off can be set anew, to a later time, too.
        early.set(now + 2 * HOUR).unwrap();
        drop(early);
        assert_eq!(alarms.lock().entries.len(), 1);
        assert_eq!(alarms.due(now + 5 * HOUR).len(), 1);
        assert_eq!(expires_in(&alarms), None);
    }
}
