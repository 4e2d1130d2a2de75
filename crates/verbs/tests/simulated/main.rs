//! The crate on simulated devices, through the public interface only: no libibverbs, no adapter.
//!
//! What a device does is the simulator's business. [`tap`] is put between where a test is about how
//! a function is called and how it fails.

#![allow(clippy::unwrap_used)]

mod completions;
mod connections;
mod contexts;
mod devices;
mod drop_order;
mod end;
mod errors;
mod events;
mod gid_tables;
mod gids;
mod memory;
mod mlx5;
mod ports;
mod posting;
mod queue_pairs;
mod tap;
mod transitions;
