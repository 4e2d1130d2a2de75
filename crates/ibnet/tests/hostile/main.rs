//! The transport against peers that do everything wrong, over real sockets and simulated devices.
//!
//! The peers are written by hand from the description of the protocol ([`wire`], [`rogue`]), not
//! with the crate's own code: they can say what it never would, and a change of the bytes on the
//! wire that was not intended shows here first.
//!
//! Each test ends with [`stage::Stage::end`]: nothing is left of it, on the devices or in the
//! process. Bytes from outside are fuzzed elsewhere (`fuzz/src`); here it is about what
//! becomes of sockets, queue pairs and the listener's other clients.
#![allow(clippy::unwrap_used)]

mod announcements;
mod control;
mod handshake;
mod lengths;
mod lies;
mod parts;
mod relay;
#[path = "../rig/mod.rs"]
mod rig;
mod rogue;
mod stage;
mod timing;
mod wire;
