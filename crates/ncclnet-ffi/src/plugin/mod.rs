//! What the plugin does, once for all API versions.
//!
//! `versions` and `entry` turn C arguments into calls of the functions here
//! and their results back; nothing in here knows a version. The transport itself is `ibnet`: what
//! is added is what NCCL's interface needs beside it.
//!
//! - [`lifecycle`] has the shared transport, contexts, initialisation and teardown; [`settings`] says what
//!   the environment has changed;
//! - [`device`] has the devices by NCCL's [`numbering`], with their [`properties`] and [`names`], and makes
//!   virtual ones; [`description`] says what they are in the log;
//! - [`connect`] listens, connects, accepts and closes; [`pending`] has connections in the making,
//!   [`listening`] the listeners;
//! - [`memory`] registers and deregisters memory;
//! - [`data`] sends, receives and tests; [`flush`] makes what was received into GPU memory visible.

pub(crate) mod connect;
pub(crate) mod data;
mod description;
pub(crate) mod device;
pub(crate) mod flush;
pub(crate) mod lifecycle;
mod listening;
pub(crate) mod memory;
mod names;
mod numbering;
mod objects;
mod pending;
mod properties;
mod settings;
