//! Reaching the listener over TCP: tries again for a while when it cannot be reached.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;

use crate::channel::Channel;
use crate::config::Config;
use crate::error::Error;
use crate::interface::Route;
use crate::monitor::{Attention, Monitor};
use crate::random;

/// An attempt to connect, and what is left of the patience for further ones.
pub(crate) struct Dial {
    route: Route,
    attempt: Attempt,
    retries_left: u32,
    pause: Duration,
}

enum Attempt {
    Waiting(Channel),
    /// The last one failed: the next is due then.
    Paused(Instant),
}

impl Dial {
    /// Begins to connect.
    pub(crate) fn new(route: Route, config: &Config) -> Result<Self, Error> {
        let mut dial = Self {
            route,
            attempt: Attempt::Paused(Instant::now()),
            retries_left: config.socket_retries,
            pause: config.socket_retry_pause,
        };
        dial.begin(Instant::now())?;
        Ok(dial)
    }

    /// The connected stream, when there is one. Never waits.
    pub(crate) fn poll(&mut self, now: Instant) -> Result<Option<Channel>, Error> {
        match &mut self.attempt {
            Attempt::Paused(until) if now < *until => return Ok(None),
            Attempt::Paused(_) => self.begin(now)?,
            Attempt::Waiting(_) => {}
        }
        let Attempt::Waiting(channel) = &mut self.attempt else {
            return Ok(None);
        };
        match channel.is_connected() {
            Ok(false) => Ok(None),
            Ok(true) => {
                let done = std::mem::replace(&mut self.attempt, Attempt::Paused(now));
                match done {
                    Attempt::Waiting(channel) => Ok(Some(channel)),
                    Attempt::Paused(_) => Ok(None),
                }
            }
            Err(error) => self.failed(error, now).map(|()| None),
        }
    }

    /// Where to, and from where.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// When the next attempt is due, if the last one has failed.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.attempt {
            Attempt::Paused(until) => Some(until),
            Attempt::Waiting(_) => None,
        }
    }

    /// Has `attention` woken when the attempt has ended, if one is under way.
    pub(crate) fn listen(
        &mut self,
        monitor: &Monitor,
        attention: &Arc<Attention>,
    ) -> Result<(), Error> {
        match &mut self.attempt {
            Attempt::Waiting(channel) => channel.listen(monitor, attention),
            Attempt::Paused(_) => Ok(()),
        }
    }

    fn begin(&mut self, now: Instant) -> Result<(), Error> {
        let peer = self.route.peer;
        let source = self.route.source.as_ref().map(|source| source.address);
        let attempt = Channel::connect(peer, source).or_else(|error| {
            if source.is_none() {
                return Err(error);
            }
            // Where the address that was asked for leads nowhere, the system's choice may.
            tracing::debug!(%error, "connecting to {}, tried without it", self.route);
            Channel::connect(peer, None)
        });
        match attempt {
            Ok(channel) => {
                self.attempt = Attempt::Waiting(channel);
                Ok(())
            }
            Err(error) => self.failed(error, now),
        }
    }

    /// Plans another attempt, if the failure may pass and there is patience left.
    fn failed(&mut self, error: io::Error, now: Instant) -> Result<(), Error> {
        let doing = format!("connecting to the listener at {}", self.route);
        if !may_pass(&error) || self.retries_left == 0 {
            return Err(Error::socket(doing, error));
        }
        self.retries_left -= 1;
        // Half to three halves of the pause: ranks that failed together do not come back together.
        let spread = self.pause.as_millis().min(u128::from(u32::MAX)) as u32;
        let jitter = random::u32()? % spread.max(1);
        let pause = self.pause / 2 + Duration::from_millis(u64::from(jitter));
        tracing::debug!(%error, "{doing}: next attempt in {} ms", pause.as_millis());
        self.attempt = Attempt::Paused(now + pause);
        Ok(())
    }
}

/// Whether the next attempt may fare better: a full backlog, a route that is not there yet.
fn may_pass(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::ETIMEDOUT
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ECONNRESET
                | libc::EADDRNOTAVAIL
                | libc::EAGAIN
        )
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::SocketAddr;

    use super::*;
    use crate::channel::listen;

    fn route(peer: SocketAddr) -> Route {
        Route {
            peer,
            source: None,
            others: vec!["10.1.3.3".parse().unwrap()],
        }
    }

    fn config(retries: u32) -> Config {
        Config {
            socket_retries: retries,
            socket_retry_pause: Duration::from_millis(4),
            ..Config::default()
        }
    }

    fn poll(dial: &mut Dial) -> Result<Channel, Error> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(channel) = dial.poll(Instant::now())? {
                return Ok(channel);
            }
            assert!(Instant::now() < deadline, "nothing happened");
        }
    }

    fn unused_address() -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        listener.local_addr().unwrap()
    }

    #[test]
    fn a_listener_that_comes_late_is_reached() {
        let address = unused_address();
        let mut dial = Dial::new(route(address), &config(10_000)).unwrap();
        for _ in 0..50 {
            assert!(dial.poll(Instant::now()).unwrap().is_none());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(dial.retries_left < 10_000, "it was not tried again");
        let _listener = listen(address, None).unwrap();
        assert_eq!(poll(&mut dial).unwrap().peer(), address);
    }

    #[test]
    fn patience_ends_in_an_error_that_names_the_addresses() {
        let address = unused_address();
        let text = Dial::new(route(address), &config(3))
            .and_then(|mut dial| poll(&mut dial).map(drop))
            .unwrap_err()
            .to_string();
        let says = format!("{address} (its host also has 10.1.3.3");
        assert!(text.contains(&says), "{text}");
    }
}
