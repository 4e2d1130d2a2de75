//! What the plugin does, once for all API versions.
//!
//! `versions` and `entry` turn C arguments into calls of the functions here
//! and their results back; nothing in here knows a version. The transport itself is `ibnet`: what
//! is added is what NCCL's interface needs beside it.
//!
//! - [`lifecycle`] has the shared transport, contexts, initialisation and teardown; [`settings`] says what
//!   the environment has changed;
//! - [`device`] has properties and virtual devices;
//! - [`connect`] listens, connects, accepts and closes; [`pending`] has connections in the making,
//!   [`listening`] the listeners;
//! - [`memory`] registers and deregisters memory;
//! - [`data`] sends, receives, tests and flushes;
//! - [`abilities`] knows what the transport offers, and refuses the rest.

mod abilities;
pub(crate) mod connect;
pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod lifecycle;
mod listening;
pub(crate) mod memory;
mod names;
mod objects;
mod pending;
mod settings;
