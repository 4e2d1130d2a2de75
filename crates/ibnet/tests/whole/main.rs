//! The whole transport on the simulator, where devices do what real ones cannot be made to do:
//! limits, refusals, faults at every step, devices that fail and vanish.
//!
//! What also works on real devices is in the scenarios (`crates/scenarios`), and random schedules
//! are in `tests/schedules`. Tests that show that a fault of other implementations cannot happen
//! here name its number ("Pitfall 79"): `docs/pitfalls.md` lists them all.
#![allow(clippy::unwrap_used)]

mod applied;
mod arguments;
mod closing;
mod dmabufs;
#[path = "../exported/mod.rs"]
mod exported;
mod fatal;
mod features;
mod gathering;
mod handshakes;
mod late;
mod limits;
mod pitfalls;
mod posting;
#[path = "../rig/mod.rs"]
mod rig;
mod service;
