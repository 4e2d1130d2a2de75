//! What the controller and its workers say to each other: one JSON value per line.
//!
//! A worker loads one network and does as it is told; the controller decides what is measured, in
//! which order, and where. Between two hosts the lines go over TCP.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::net::Properties;

/// The longest line that is read: replies with samples of registrations are the longest.
const MAX_LINE: u64 = 1 << 20;

/// What a listening program wants to know of a worker that it is to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Which of its networks.
    pub(crate) label: String,
    /// Queue pairs per connection and device.
    pub(crate) paths: u32,
}

/// An order to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Say what the network is. Answered by [`Answer::Network`].
    Describe,
    /// Use this device from now on, or several as one. Answered by [`Answer::Done`].
    Use {
        /// Names of devices; none is the first one.
        devices: Vec<String>,
    },
    /// Start listening. Answered by [`Answer::Handle`].
    Listen,
    /// Accept the connection that comes to the handle given last. Answered by [`Answer::Connected`].
    Accept {
        /// Microseconds to sleep between two tries.
        pause: u64,
    },
    /// Connect. Answered by [`Answer::Connected`].
    Connect {
        /// What the peer's [`Order::Listen`] was answered.
        handle: String,
        /// Microseconds to sleep between two tries.
        pause: u64,
    },
    /// Connect to oneself, so many times. Answered by [`Answer::Connected`].
    ConnectHere {
        /// How many.
        count: usize,
        /// Microseconds to sleep between two tries.
        pause: u64,
    },
    /// Close all connections. Answered by [`Answer::Done`].
    Close,
    /// Answered by [`Answer::Usage`].
    Usage,
    /// Send and receive in one thread over connections to oneself. Answered by [`Answer::Moved`].
    Loop(Flow),
    /// Send. Answered by [`Answer::Moved`].
    Send(Flow),
    /// Receive. Answered by [`Answer::Moved`].
    Receive(Flow),
    /// Send and wait for the answer, so many times. Answered by [`Answer::Latency`].
    Ping(Volley),
    /// Answer so many times. Answered by [`Answer::Done`].
    Pong(Volley),
    /// Register memory. Answered by [`Answer::Registered`].
    Register {
        /// How many registrations there are to be in the end.
        live: usize,
        /// How many of them are measured at that number.
        samples: usize,
        /// By the thread's processor time, which other programs disturb little; else by the clock.
        processor: bool,
    },
    /// End.
    Quit,
}

/// Messages in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flow {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Receives that are outstanding.
    pub(crate) window: usize,
    /// Messages per receive.
    pub(crate) group: usize,
    /// How many of the open connections take part, in turn.
    pub(crate) connections: usize,
    /// Receives before the clock starts, on each connection.
    pub(crate) warm_up: u64,
    /// Receives that are measured, on each connection.
    pub(crate) receives: u64,
    /// Every byte is written and compared.
    pub(crate) verify: bool,
}

/// Messages back and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volley {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Round trips before the clock starts.
    pub(crate) warm_up: u64,
    /// Round trips that are measured.
    pub(crate) rounds: u64,
    /// Every byte is written and compared.
    pub(crate) verify: bool,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// There is nothing to tell.
    Done,
    /// It did not work.
    Failed(String),
    /// What the network is.
    Network {
        /// Its own name.
        name: String,
        /// The version of the interface.
        interface: u32,
        /// The symbol of its table.
        symbol: String,
        /// The version of NCCL, if it is NCCL's.
        nccl: Option<String>,
        /// Its devices.
        devices: Vec<Properties>,
    },
    /// A handle, in hexadecimal digits.
    Handle(String),
    /// Connections stand.
    Connected {
        /// Seconds that each took.
        seconds: Vec<f64>,
        /// Seconds of this process's processor time that each took.
        processor: Vec<f64>,
    },
    /// What the process uses.
    Usage {
        /// Bytes of memory.
        memory: u64,
    },
    /// Messages were moved.
    Moved {
        /// Seconds.
        seconds: f64,
        /// Seconds of the thread's processor time.
        processor: f64,
        /// How many messages.
        messages: u64,
        /// Instructions in user mode of this thread, if the processor's counters can be read.
        instructions: Option<u64>,
    },
    /// Half round trips in nanoseconds.
    Latency {
        /// Shortest.
        min: f64,
        /// Half of them are at most this.
        p50: f64,
        /// 99 in 100 are at most this.
        p99: f64,
    },
    /// Registrations in nanoseconds each.
    Registered {
        /// Of memory that was not registered.
        new: f64,
        /// Of memory that was registered already.
        hit: f64,
        /// Giving back a hit.
        release_hit: f64,
        /// Giving back the last registration of some memory.
        release: f64,
    },
}

/// Writes one line.
pub(crate) fn write(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one line; `None` at the end.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> std::io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut limited = std::io::Read::take(&mut *from, MAX_LINE);
    limited.read_until(b'\n', &mut line)?;
    match line.as_slice() {
        [] => Ok(None),
        [text @ .., b'\n'] => Ok(Some(serde_json::from_slice(text)?)),
        _ => Err(std::io::Error::other("a line without an end")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let flow = Flow {
            size: 8,
            window: 32,
            group: 8,
            connections: 1,
            warm_up: 10,
            receives: 100,
            verify: true,
        };
        let mut bytes = Vec::new();
        for order in [Order::Describe, Order::Loop(flow), Order::Quit] {
            write(&mut bytes, &order).unwrap();
        }
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from).unwrap(), Some(Order::Describe));
        assert_eq!(read(&mut from).unwrap(), Some(Order::Loop(flow)));
        assert_eq!(read(&mut from).unwrap(), Some(Order::Quit));
        assert_eq!(read::<Order>(&mut from).unwrap(), None);
    }

    #[test]
    fn strangers_are_errors() {
        for text in ["GET / HTTP/1.1\n", "{}\n", "\"Describe\"", "\"Other\"\n"] {
            assert!(read::<Order>(&mut text.as_bytes()).is_err(), "{text}");
        }
        let endless = vec![b'x'; 2 << 20];
        assert!(read::<Order>(&mut endless.as_slice()).is_err());
    }
}
