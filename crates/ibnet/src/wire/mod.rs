//! What the two ends say to each other, as bytes: pure, without sockets and devices.
//!
//! [`handle`] is what a listener gives out, [`message`] what goes over the control channel in [`frame`]s,
//! [`cts`] an entry of the CTS ring, [`immediate`] the 32 bits that come with each part of a message, and
//! [`stripe`] how a message is cut into parts.

pub(crate) mod cts;
pub(crate) mod frame;
pub(crate) mod handle;
pub(crate) mod immediate;
pub(crate) mod message;
pub(crate) mod service;
pub(crate) mod stripe;
#[cfg(test)]
mod tests;

pub use cts::MAX_GROUP;
