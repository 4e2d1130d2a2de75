//! Reaching the listener over TCP: tries again for a while when it cannot be reached.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::libc;

use crate::channel::Channel;
use crate::config::Config;
use crate::connect::peer::Reports;
use crate::connect::waits::Waits;
use crate::error::Error;
use crate::interface::Route;
use crate::owned::later;
use crate::random;

/// An address that does not even refuse is given up after the pauses between all attempts and so much more.
const SILENCE: Duration = Duration::from_secs(60);

/// Connects the device `name` to the listener at the end of `route`, of which `first` is the first attempt. One that refuses is called again,
/// with a pause that grows by its first length each time, as NCCL does it: the listener's process may be about
/// to start.
pub(crate) async fn dial(
    first: io::Result<Channel>,
    route: &Route,
    name: &str,
    config: &Config,
    waits: &mut Waits,
) -> Result<Channel, Error> {
    let doing = || format!("connecting {name} to the listener at {route}");
    let began = Instant::now();
    let limit = config.connect_timeout.unwrap_or_else(|| patience(config));
    let deadline = later(began, limit);
    let mut reports = Reports::new();
    let mut attempt = first;
    let mut retries = 0;
    loop {
        let connected = match attempt {
            Ok(channel) => connected(channel, deadline, waits).await,
            Err(error) => Err(error),
        };
        let error = match connected {
            Ok(Some(channel)) => return Ok(channel),
            Ok(None) => {
                return Err(Error::Timeout {
                    doing: format!("{}, waiting for a TCP connection", doing()),
                    seconds: limit.as_secs(),
                });
            }
            Err(error) if may_pass(&error) && retries < config.socket_retries => error,
            Err(error) => return Err(Error::socket(doing(), error)),
        };
        retries += 1;
        let pause = jitter(config.socket_retry_pause.saturating_mul(retries))?;
        if reports.is_due(Instant::now()) {
            tracing::info!("{} since {} s: {error}", doing(), began.elapsed().as_secs());
        }
        tracing::debug!(%error, "{}: next attempt in {} ms", doing(), pause.as_millis());
        waits
            .sleep_until(deadline.min(later(Instant::now(), pause)))
            .await?;
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
    let spread = pause.as_millis().min(u128::from(u32::MAX)) as u32;
    let jitter = random::u32()? % spread.max(1);
    Ok(pause / 2 + Duration::from_millis(u64::from(jitter)))
}

/// Waits until the stream is connected; none if that takes until `deadline`.
async fn connected(
    mut channel: Channel,
    deadline: Instant,
    waits: &mut Waits,
) -> io::Result<Option<Channel>> {
    let is_connected = poll_fn(|context| {
        if channel.is_connected()? {
            return Poll::Ready(Ok::<_, io::Error>(true));
        }
        if Instant::now() >= deadline {
            return Poll::Ready(Ok(false));
        }
        let armed = waits.for_channel(context, &mut channel, Some(deadline));
        armed.map_err(io::Error::other)?;
        Poll::Pending
    });
    if !is_connected.await? {
        return Ok(None);
    }
    channel.stop_listening();
    Ok(Some(channel))
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
    use crate::channel::listen;
    use crate::connect::waits::polling;
    use crate::owned::block_on;
    use crate::transport::Inner;

    fn waits(retries: u32) -> (Arc<Inner>, Waits) {
        let inner = Inner::without_devices(Config {
            socket_retries: retries,
            socket_retry_pause: Duration::from_millis(4),
            ..Config::default()
        });
        let waits = Waits::new(&inner);
        (inner, waits)
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
        let (inner, mut waits) = waits(10_000);
        let mut dialing = pin!(dial(route.call(), &route, "s0", &inner.config, &mut waits));
        let mut polling = Context::from_waker(polling());
        for _ in 0..50 {
            assert!(dialing.as_mut().poll(&mut polling).is_pending());
            std::thread::sleep(Duration::from_millis(1));
        }
        let _listener = listen(address, None).unwrap();
        let channel = block_on(|context| dialing.as_mut().poll(context)).unwrap();
        assert_eq!(channel.peer(), address);
    }

    #[test]
    fn patience_ends_in_an_error_that_names_the_addresses() {
        let address = unused_address();
        let route = route(address);
        let (inner, mut waits) = waits(3);
        let mut dialing = pin!(dial(route.call(), &route, "s0", &inner.config, &mut waits));
        let outcome = block_on(|context| dialing.as_mut().poll(context));
        let text = outcome.err().unwrap().to_string();
        let says = format!("{address} (its host also has 10.1.3.3");
        assert!(text.contains(&says), "{text}");
    }
}
