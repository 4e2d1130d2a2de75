//! Connections that are being made.
//!
//! NCCL calls `connect` with the same handle again and again until it gets a communicator. The state
//! in between lives here and not in NCCL's handle memory: a handle that is copied, reused or garbage
//! does no harm, and an attempt that NCCL gives up (it just stops calling) can be found and dropped.
//!
//! An attempt is known by who asks (context, device, traffic class) and the bytes of the handle, which
//! contain the listener's random cookie. Two attempts to one listener that are equal in all of
//! that are made one after the other; which of the callers gets which connection makes no difference.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, Connecting, Handle, SendConnection, Transport};

use crate::fault::Fault;
use crate::handles::ObjectId;

/// An attempt that nobody has asked for in so long is given up. NCCL asks thousands of times a second.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// What tells attempts apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) context: Option<ObjectId>,
    pub(super) device: usize,
    pub(super) traffic_class: Option<u8>,
    pub(super) handle: [u8; Handle::SIZE],
}

static ATTEMPTS: Attempts<Key, Connecting> = Attempts::new();

/// Makes the connection of `key`, or goes on making it. None: not yet.
pub(super) fn poll(key: &Key, transport: &Transport) -> Result<Option<SendConnection>, Fault> {
    ATTEMPTS.poll(
        key,
        || {
            let handle = Handle::from_bytes(&key.handle)?;
            let options = ConnectOptions {
                traffic_class: key.traffic_class,
                ..ConnectOptions::default()
            };
            Ok(transport.connect(key.device, &handle, options)?)
        },
        |connecting| Ok(connecting.poll()?),
    )
}

/// Gives up the attempts of a context.
pub(super) fn abandon_context(context: ObjectId) {
    ATTEMPTS.abandon(|key| key.context == Some(context));
}

/// Gives up all attempts.
pub(super) fn abandon_all() {
    ATTEMPTS.abandon(|_| true);
}

/// Attempts of type `C`, by key.
struct Attempts<K, C>(Mutex<Inner<K, C>>);

struct Inner<K, C> {
    attempts: BTreeMap<K, Attempt<C>>,
    /// Attempts that were ever begun.
    begun: u64,
}

struct Attempt<C> {
    /// Which attempt of its key this is.
    serial: u64,
    /// None while a thread is polling it.
    state: Option<C>,
    polled: Instant,
}

impl<K: Clone + Ord, C> Attempts<K, C> {
    const fn new() -> Self {
        Self(Mutex::new(Inner {
            attempts: BTreeMap::new(),
            begun: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K, C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the attempt of `key`, which `begin` begins if there is none. The lock is not held
    /// meanwhile. None: not yet, or another thread is polling it at this moment.
    fn poll<R>(
        &self,
        key: &K,
        begin: impl FnOnce() -> Result<C, Fault>,
        poll: impl FnOnce(&mut C) -> Result<Option<R>, Fault>,
    ) -> Result<Option<R>, Fault> {
        let Some((serial, state)) = self.check_out(key) else {
            return Ok(None);
        };
        let mut polling = Polling {
            attempts: self,
            key,
            serial,
            unfinished: None,
        };
        let mut state = match state {
            Some(state) => state,
            None => begin()?,
        };
        let result = poll(&mut state)?;
        if result.is_none() {
            polling.unfinished = Some(state);
        }
        Ok(result)
    }

    /// Takes the attempt of `key` to poll it: its serial number, and its state unless it is new. None
    /// if another thread has it.
    fn check_out(&self, key: &K) -> Option<(u64, Option<C>)> {
        let mut inner = self.lock();
        let now = Instant::now();
        if let Some(attempt) = inner.attempts.get_mut(key) {
            attempt.polled = now;
            let state = attempt.state.take()?;
            return Some((attempt.serial, Some(state)));
        }
        inner.begun += 1;
        let serial = inner.begun;
        inner.attempts.insert(
            key.clone(),
            Attempt {
                serial,
                state: None,
                polled: now,
            },
        );
        let forgotten = inner.remove(|_, attempt| {
            attempt.state.is_some() && now.duration_since(attempt.polled) > ABANDONED_AFTER
        });
        drop(inner);
        report(forgotten);
        Some((serial, None))
    }

    /// Gives up the attempts whose key is `chosen`.
    fn abandon(&self, chosen: impl Fn(&K) -> bool) {
        let given_up = self.lock().remove(|key, _| chosen(key));
        report(given_up);
    }
}

impl<K: Clone + Ord, C> Inner<K, C> {
    fn remove(&mut self, chosen: impl Fn(&K, &Attempt<C>) -> bool) -> Vec<Attempt<C>> {
        let keys: Vec<K> = self
            .attempts
            .iter()
            .filter(|(key, attempt)| chosen(key, attempt))
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter()
            .filter_map(|key| self.attempts.remove(key))
            .collect()
    }
}

/// Drops attempts, which closes sockets and queue pairs, so it is not done under the lock.
fn report<C>(given_up: Vec<Attempt<C>>) {
    if !given_up.is_empty() {
        tracing::info!(
            "{} connection attempts were given up by the caller",
            given_up.len()
        );
    }
}

/// An attempt that this thread is polling: left for the next poll if it is unfinished, else removed
/// (it led to a connection, failed, or the poll panicked).
struct Polling<'a, K: Clone + Ord, C> {
    attempts: &'a Attempts<K, C>,
    key: &'a K,
    serial: u64,
    unfinished: Option<C>,
}

impl<K: Clone + Ord, C> Drop for Polling<'_, K, C> {
    fn drop(&mut self) {
        let mut inner = self.attempts.lock();
        // It may have been given up meanwhile, and begun anew by another thread.
        let same = |attempt: &&mut Attempt<C>| attempt.serial == self.serial;
        if let Some(attempt) = inner.attempts.get_mut(self.key).filter(same) {
            match self.unfinished.take() {
                Some(state) => attempt.state = Some(state),
                None => {
                    inner.attempts.remove(self.key);
                }
            }
        }
        // What is left in `unfinished` is dropped after the lock.
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// An attempt that needs some polls.
    type Countdown = u32;

    fn poll(attempts: &Attempts<&str, Countdown>, key: &'static str) -> Option<&'static str> {
        attempts
            .poll(
                &key,
                || Ok(3),
                |left| {
                    *left -= 1;
                    Ok((*left == 0).then_some("connected"))
                },
            )
            .unwrap()
    }

    fn len(attempts: &Attempts<&str, Countdown>) -> usize {
        attempts.lock().attempts.len()
    }

    #[test]
    fn an_attempt_goes_on_where_it_was() {
        let attempts = Attempts::new();
        assert_eq!(poll(&attempts, "a"), None);
        assert_eq!(poll(&attempts, "b"), None);
        assert_eq!(poll(&attempts, "a"), None);
        assert_eq!(poll(&attempts, "a"), Some("connected"));
        assert_eq!(len(&attempts), 1, "a is done, b is not");
        assert_eq!(poll(&attempts, "a"), None, "the next attempt begins anew");
    }

    #[test]
    fn a_failed_attempt_is_over() {
        let attempts = Attempts::<&str, Countdown>::new();
        let begin = attempts.poll(&"a", || Err(Fault::usage("no")), |_| Ok(Some(())));
        assert!(begin.is_err());
        assert_eq!(poll(&attempts, "a"), None);
        let failed: Result<Option<()>, _> =
            attempts.poll(&"a", || Ok(1), |_| Err(Fault::usage("no")));
        assert!(failed.is_err());
        assert_eq!(len(&attempts), 0);

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = attempts.poll(
                &"a",
                || Ok(1),
                |_| -> Result<Option<()>, Fault> { panic!("part of the test") },
            );
        }));
        assert!(panicked.is_err());
        assert_eq!(len(&attempts), 0);
    }

    #[test]
    fn one_thread_polls_an_attempt_at_a_time() {
        let attempts = Attempts::<&str, Countdown>::new();
        let outer = attempts.poll(
            &"a",
            || Ok(2),
            |_| {
                // As from another thread in the middle of this poll.
                assert_eq!(poll(&attempts, "a"), None);
                Ok(None::<()>)
            },
        );
        assert_eq!(outer, Ok(None));
        assert_eq!(
            attempts.lock().attempts["a"].state,
            Some(2),
            "the inner poll did nothing"
        );
    }

    #[test]
    fn attempts_are_given_up_also_while_they_are_polled() {
        let attempts = Attempts::<&str, Countdown>::new();
        poll(&attempts, "a");
        poll(&attempts, "b");
        attempts.abandon(|key| *key == "a");
        assert_eq!(len(&attempts), 1);

        let outer = attempts.poll(
            &"b",
            || Ok(9),
            |_| {
                attempts.abandon(|_| true);
                assert_eq!(poll(&attempts, "b"), None);
                Ok(None::<()>)
            },
        );
        assert_eq!(outer, Ok(None));
        assert_eq!(
            attempts.lock().attempts["b"].state,
            Some(2),
            "the new attempt stays"
        );
    }

    #[test]
    fn an_attempt_that_nobody_asks_for_is_given_up() {
        let attempts = Attempts::<&str, Countdown>::new();
        poll(&attempts, "old");
        poll(&attempts, "young");
        let long_ago = Instant::now() - ABANDONED_AFTER - Duration::from_secs(1);
        attempts.lock().attempts.get_mut("old").unwrap().polled = long_ago;
        poll(&attempts, "new");
        let left: Vec<_> = attempts.lock().attempts.keys().copied().collect();
        assert_eq!(left, ["new", "young"]);
    }
}
