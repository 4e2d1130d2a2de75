//! Reaching the listener over TCP: tries again for a while when it cannot be reached.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::libc;

use crate::channel::Channel;
use crate::config::Config;
use crate::connect::waits::Waits;
use crate::error::Error;
use crate::random;

/// Connects to the listener at `peer`, of which `first` is the first attempt.
pub(crate) async fn dial(
    first: io::Result<Channel>,
    peer: SocketAddr,
    config: &Config,
    waits: &mut Waits,
) -> Result<Channel, Error> {
    let doing = || format!("connecting to the listener at {peer}");
    let mut retries_left = config.socket_retries;
    let mut attempt = first;
    loop {
        let connected = match attempt {
            Ok(channel) => connected(channel, waits).await,
            Err(error) => Err(error),
        };
        let error = match connected {
            Ok(channel) => return Ok(channel),
            Err(error) if may_pass(&error) && retries_left > 0 => error,
            Err(error) => return Err(Error::socket(doing(), error)),
        };
        retries_left -= 1;
        // Half to three halves of the pause: ranks that failed together do not come back together.
        let spread = config.socket_retry_pause.as_millis();
        let spread = spread.min(u128::from(u32::MAX)) as u32;
        let jitter = random::u32()? % spread.max(1);
        let pause = config.socket_retry_pause / 2 + Duration::from_millis(u64::from(jitter));
        tracing::debug!(%error, "{}: next attempt in {} ms", doing(), pause.as_millis());
        waits.sleep_until(Instant::now() + pause).await?;
        attempt = Channel::connect(peer);
    }
}

/// Waits until the stream is connected.
async fn connected(mut channel: Channel, waits: &mut Waits) -> io::Result<Channel> {
    poll_fn(|context| {
        if let Err(error) = match channel.is_connected() {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => waits.for_channel(context, &mut channel, None),
            Err(error) => return Poll::Ready(Err(error)),
        } {
            return Poll::Ready(Err(io::Error::other(error)));
        }
        Poll::Pending
    })
    .await?;
    channel.stop_listening();
    Ok(channel)
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

    fn unused_address() -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        listener.local_addr().unwrap()
    }

    #[test]
    fn a_listener_that_comes_late_is_reached() {
        let address = unused_address();
        let (inner, mut waits) = waits(10_000);
        let mut dialing = pin!(dial(
            Channel::connect(address),
            address,
            &inner.config,
            &mut waits
        ));
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
    fn patience_ends_in_an_error_that_names_the_address() {
        let address = unused_address();
        let (inner, mut waits) = waits(3);
        let mut dialing = pin!(dial(
            Channel::connect(address),
            address,
            &inner.config,
            &mut waits
        ));
        let outcome = block_on(|context| dialing.as_mut().poll(context));
        let text = outcome.err().unwrap().to_string();
        assert!(text.contains(&address.to_string()), "{text}");
    }
}
