//! Waiting without polling, blocking or awaited, on the simulator: a wait ends by what is
//! waited for and by whatever makes that impossible, and by next to nothing else.
#![allow(clippy::unwrap_used)]

mod deadlines;
mod dropped;
mod duplex;
mod handshakes;
mod news;
#[path = "../rig/mod.rs"]
mod rig;
mod traffic;
mod types;
