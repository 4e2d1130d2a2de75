//! The simulator's contract, exercised through the safe verbs crate.

#![allow(clippy::unwrap_used)]

mod channel;
mod devices;
mod events;
mod faults;
mod flush;
mod gids;
mod isolation;
mod keys;
mod limits;
mod memory;
mod network;
mod ordering;
mod pairs;
mod ping;
mod property;
mod queues;
mod retry;
mod rnr;
mod robust;
mod states;
mod stress;
mod tearing;
mod view;
