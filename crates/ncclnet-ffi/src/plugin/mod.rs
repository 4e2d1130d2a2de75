//! What the plugin does, once for all API versions.
//!
//! The files `v8.rs` to `v12.rs` and `entry.rs` turn C arguments into calls of the functions here
//! and their results back; nothing in here knows a version. The transport itself is `ibnet`: what
//! is added is what NCCL's interface needs beside it.
//!
//! - [`lifecycle`] has the shared transport, contexts, initialisation and teardown;
//! - [`device`] has properties and virtual devices;
//! - [`connect`] listens, connects, accepts and closes; [`pending`] has connections in the making;
//! - [`memory`] registers and deregisters memory;
//! - [`data`] sends, receives, tests and flushes.

pub(crate) mod connect;
pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod lifecycle;
pub(crate) mod memory;
mod names;
mod objects;
mod pending;
