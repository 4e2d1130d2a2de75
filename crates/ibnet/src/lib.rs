//! The InfiniBand and RoCE transport of NCCL and RCCL, in Rust.
//!
//! A [`Transport`] opens the RDMA devices of a process. One end [listens](Transport::listen) and
//! gives its [`Handle`] to the other by whatever means the application has; the other
//! [connects](Transport::connect) and can then send to it.
//!
//! ```no_run
//! use ibnet::{Config, ConnectOptions, Transport, Wait};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transport = Transport::open(Config::from_env()?)?;
//! let mut listener = transport.listen(0)?;
//! let handle = listener.handle(); // 64 bytes, to be carried to the sender
//!
//! let sender = std::thread::spawn({
//!     let transport = transport.clone();
//!     move || {
//!         let mut sending = transport.connect(0, &handle, ConnectOptions::default())?.wait()?;
//!         let mut buffer = sending.registrar().buffer(5)?;
//!         buffer.copy_from_slice(b"hello");
//!         let ticket = sending.send(buffer, 7).wait()?;
//!         sending.finish(ticket).wait()?;
//!         sending.close()
//!     }
//! });
//!
//! let mut receiving = listener.accept().wait()?;
//! let buffer = receiving.registrar().buffer(4096)?;
//! let ticket = receiving.recv(buffer, 7).wait()?;
//! let message = receiving.finish(ticket).wait()?;
//! assert_eq!(&message[..], b"hello");
//! receiving.close()?;
//! sender.join().expect("the sender does not panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Two layers
//! The *safe* layer above moves a [`Buffer`] into each request and hands it back when the request
//! is done. The *raw* layer ([`Connection::raw`]) takes pointers and is what the NCCL plugin uses; its
//! functions never wait. [`raw`] is its contract.
//!
//! # Waiting
//! Each operation is one value that can be tried, waited for, waited for with a limit, or awaited:
//! see [`Wait`]. None of it needs a runtime. An operation that fails gives its buffers back, in
//! [`OpError`].
//!
//! A connection is made for polling, which has the least latency: then waiting for it polls, too,
//! and lets go of the processor only little by little. One that is made with
//! [`notify`](ConnectOptions::notify) sleeps instead, until its devices have news.
//!
//! # What a connection is
//! One direction, from the end that connected to the end that listened; a [`Duplex`] is one in each.
//! The receiver announces buffers, the sender writes into them, in the order announced; a receive can
//! group up to [`MAX_GROUP`] buffers, told apart by tags. The protocol is described in the module sources:
//! `wire::message`, `wire::cts`, `wire::immediate`.
//!
//! # Threads
//! Connections are `Send`: their data path belongs to one thread at a time. A [`Registrar`] can be
//! used from other threads meanwhile. Each transport has one thread for the events of its devices
//! and control channels, which is joined when the last user of the transport is gone.
//!
//! # When something fails
//! A failed connection keeps its [`Error`], and every later call returns it. A peer that closes,
//! dies or becomes unreachable ends all outstanding requests with an error that names both ends.

#![warn(missing_debug_implementations)]

mod config;
mod connect;
mod connection;
mod device;
mod duplex;
mod error;
mod events;
mod memory;
mod ops;
mod transport;
mod wire;

/// The crates below, as this one uses them.
pub use {ibnet_gid as gid, ibnet_mrcache as mrcache, ibnet_verbs as verbs};

pub use config::{
    Config, ConfigError, DataDirect, Family, HcaFilter, InterfaceFilter, InvalidList, Partition,
    PathPolicy, Placement, RelaxedOrdering,
};
pub use connect::options::{ConnectOptions, ListenOptions};
pub use connection::observer::{Observer, Piece};
pub use connection::raw;
pub use device::{DeviceInfo, NotPciAddress, PciAddress, PortReport};
pub use duplex::{Duplex, DuplexOptions, Establishing, Next};
pub use error::{Error, ErrorKind};
pub use memory::{Region, Registrar};
pub use ops::{
    Buffer, Connection, GroupTicket, OpError, Operation, RecvConnection, RecvTicket,
    SendConnection, SendTicket, Ticket, Wait,
};
pub use transport::{Accept, Connecting, Listener, Transport};
pub use wire::MAX_GROUP;
pub use wire::handle::Handle;

/// What the types of operations are made of.
pub mod operation {
    pub use crate::ops::{Attempt, Batch, Finish, FinishAny, Operation, Post, Transfer};
}

/// The fuzzer's targets: they call what is private here, so they are compiled into this crate, for
/// its tests and for the programs in `fuzz/`.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[path = "../fuzz/src/mod.rs"]
pub mod fuzzing;

/// The example of the README is compiled as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
