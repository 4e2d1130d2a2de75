//! Making connections.

use std::time::{Duration, Instant};

use super::patience::Patience;
use super::usage;
use crate::net::{Comm, Handle, Listener, Network, Result};

/// A connection, and what it took to make it.
pub(super) struct Made {
    /// The ends that are here: both of a connection to oneself.
    pub(super) ends: Vec<Comm>,
    /// Seconds.
    pub(super) seconds: f64,
    /// Seconds of processor time of this process.
    pub(super) processor: f64,
}

/// Measures while ends appear.
fn made(
    what: &'static str,
    pause: u64,
    mut step: impl FnMut(&mut Vec<Comm>) -> Result<bool>,
) -> Result<Made> {
    let mut patience = Patience::new(what, true);
    let pause = Duration::from_micros(pause);
    let mut ends = Vec::new();
    let (began, processor) = (Instant::now(), usage::processor());
    while !step(&mut ends)? {
        patience.pause(pause)?;
    }
    Ok(Made {
        ends,
        seconds: began.elapsed().as_secs_f64(),
        processor: usage::processor() - processor,
    })
}

/// Waits for the connection that comes to a listener.
pub(super) fn accept(listener: &Listener, pause: u64) -> Result<Made> {
    made("accepting", pause, |ends| {
        ends.extend(listener.accept()?);
        Ok(!ends.is_empty())
    })
}

/// Connects to a peer's listener.
pub(super) fn connect(
    network: &Network,
    device: i32,
    mut handle: Handle,
    pause: u64,
) -> Result<Made> {
    made("connecting", pause, |ends| {
        ends.extend(network.connect(device, &mut handle)?);
        Ok(!ends.is_empty())
    })
}

/// Connects to oneself; gives the sending end, then the receiving one.
pub(super) fn here(network: &Network, devices: [i32; 2], pause: u64) -> Result<Made> {
    let listener = network.listen(devices[1])?;
    let mut handle = listener.handle;
    let (mut send, mut receive) = (None, None);
    made("connecting to oneself", pause, |ends| {
        if send.is_none() {
            send = network.connect(devices[0], &mut handle)?;
        }
        if receive.is_none() {
            receive = listener.accept()?;
        }
        let both = send.is_some() && receive.is_some();
        if both {
            ends.extend(send.take());
            ends.extend(receive.take());
        }
        Ok(both)
    })
}
