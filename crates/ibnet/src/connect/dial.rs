//! Reaching the listener over TCP: tries again for a while when it cannot be reached.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::libc;

use crate::config::Config;
use crate::connect::control::Channel;
use crate::connect::interface::Route;
use crate::connect::random;
use crate::connect::waits::{Patience, Waits};
use crate::error::Error;
use crate::events::waiting::later;

/// An address that does not even refuse is given up after the pauses between all attempts and so much more.
const SILENCE: Duration = Duration::from_secs(60);

/// Connects the device `name` to the listener at the end of `route`, of which `first` is the first attempt. One
/// that refuses is called again, with a pause that grows by its first length each time, as NCCL does it: the
/// listener's process may be about to start.
pub(crate) async fn dial(
    first: io::Result<Channel>,
    route: &Route,
    name: &str,
    config: &Config,
    waits: &mut Waits,
) -> Result<Channel, Error> {
    let doing = || format!("connecting {name} to the listener at {route}");
    let limit = config.connect_timeout.unwrap_or_else(|| patience(config));
    let mut patience = Patience::new(Instant::now(), Some(limit));
    let mut attempt = first;
    let mut retries = 0;
    loop {
        let connected = match attempt {
            Ok(channel) => connected(channel, &doing, &mut patience, waits).await?,
            Err(error) => Err(error),
        };
        let error = match connected {
            Ok(channel) => return Ok(channel),
            Err(error) if may_pass(&error) && retries < config.socket_retries => error,
            Err(error) => return Err(Error::socket(doing(), error)),
        };
        retries += 1;
        let pause = jitter(config.socket_retry_pause.saturating_mul(retries))?;
        tracing::debug!(%error, "{}: next attempt in {} ms", doing(), pause.as_millis());
        let next = later(Instant::now(), pause);
        while Instant::now() < next {
            let until = patience.look(Instant::now(), || format!("{}: {error}", doing()))?;
            waits.sleep_until(until.min(next)).await?;
        }
        attempt = route.call();
    }
}

/// The pauses between all attempts, and [`SILENCE`].
fn patience(config: &Config) -> Duration {
    let retries = config.socket_retries;
    let pauses = u64::from(retries) * (u64::from(retries) + 1) / 2;
    let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
    let all = config.socket_retry_pause.saturating_mul(pauses);
    all.saturating_add(SILENCE)
}

/// Half to three halves of `pause`: ranks that failed together do not come back together.
fn jitter(pause: Duration) -> Result<Duration, Error> {
    let selector = pause.as_millis().min(u128::from(u32::MAX)) as u32;
    let jitter = random::u32()? % selector.max(1);
    Ok(pause / 2 + Duration::from_millis(u64::from(jitter)))
}

/// Waits until the stream is connected, or not.
async fn connected(
    mut channel: Channel,
    doing: &impl Fn() -> String,
    patience: &mut Patience,
    waits: &mut Waits,
) -> Result<io::Result<Channel>, Error> {
    let outcome = poll_fn(|context| {
        match channel.is_connected() {
            Ok(false) => {}
            Ok(true) => return Poll::Ready(Ok(Ok(()))),
            Err(error) => return Poll::Ready(Ok(Err(error))),
        }
        let who = || format!("{}: waiting for a TCP connection", doing());
        let until = patience.look(Instant::now(), who)?;
        waits.for_channel(context, &mut channel, Some(until))?;
        Poll::Pending
    });
    let outcome: Result<io::Result<()>, Error> = outcome.await;
    Ok(outcome?.and_then(|()| {
        channel.stop_listening();
        is_new(&channel)?;
        Ok(channel)
    }))
}

/// Whether the listener has not hung up yet. It has if it took this end for a stranger, because it was not polled
/// for long after the stream was connected.
fn is_new(channel: &Channel) -> io::Result<()> {
    match channel.stream().peek(&mut [0]) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
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
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Context;

    use super::*;
    use crate::Wait;
    use crate::connect::control::listen;
    use crate::connect::shared::Shared;
    use crate::events::waiting::polling;

    fn waits(retries: u32) -> (Arc<Shared>, Waits) {
        let shared = Shared::without_devices(Config {
            socket_retries: retries,
            socket_retry_pause: Duration::from_millis(4),
            ..Config::default()
        });
        let waits = Waits::new(&shared);
        (shared, waits)
    }

    fn route(peer: SocketAddr) -> Route {
        Route {
            peer,
            source: None,
            others: vec!["10.1.3.3".parse().unwrap()],
        }
    }

    fn unused_address() -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        listener.local_addr().unwrap()
    }

    #[test]
    fn a_listener_that_comes_late_is_reached() {
        let address = unused_address();
        let route = route(address);
        let (shared, mut waits) = waits(10_000);
        let mut dialing = pin!(dial(route.call(), &route, "s0", &shared.config, &mut waits));
        let mut polling = Context::from_waker(polling());
        for _ in 0..50 {
            assert!(dialing.as_mut().poll(&mut polling).is_pending());
            std::thread::sleep(Duration::from_millis(1));
        }
        let _listener = listen(address, None).unwrap();
        let channel = dialing.as_mut().wait().unwrap();
        assert_eq!(channel.peer(), address);
    }

    #[test]
    fn a_listener_that_hung_up_before_a_word_was_said_is_called_again() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        listener.set_nonblocking(false).unwrap();
        let route = route(listener.local_addr().unwrap());
        let (shared, mut waits) = waits(10);
        let mut dialing = pin!(dial(route.call(), &route, "s0", &shared.config, &mut waits));
        // It takes the caller for a stranger who says nothing.
        drop(listener.accept().unwrap());
        let channel = dialing.as_mut().wait().unwrap();
        let (_second, caller) = listener.accept().unwrap();
        assert_eq!(channel.stream().local_addr().unwrap(), caller);
    }

    #[test]
    fn the_pauses_between_the_attempts_grow_to_a_minute_in_sum_as_in_nccl() {
        assert_eq!(
            patience(&Config::default()),
            Duration::from_millis(59_500) + SILENCE
        );
        let route = route(unused_address());
        let (shared, mut waits) = waits(10);
        let start = Instant::now();
        let mut dialing = pin!(dial(route.call(), &route, "s0", &shared.config, &mut waits));
        assert!(dialing.as_mut().wait().is_err());
        // 4 + 8 + … + 40 ms, half of that with the worst luck.
        assert!(start.elapsed() >= Duration::from_millis(110));
    }

    #[test]
    fn patience_ends_in_an_error_that_names_the_addresses() {
        let address = unused_address();
        let route = route(address);
        let (shared, mut waits) = waits(3);
        let mut dialing = pin!(dial(route.call(), &route, "s0", &shared.config, &mut waits));
        let outcome = dialing.as_mut().wait();
        let text = outcome.err().unwrap().to_string();
        let says = format!("{address} (its host also has 10.1.3.3");
        assert!(text.contains(&says), "{text}");
    }
}
