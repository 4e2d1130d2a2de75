//! The crate on a table of functions that lives in this test: no libibverbs, no device.
//!
//! Only the public interface is used, as a simulator would. See `fake` for the table.

#![allow(clippy::unwrap_used)]

mod completions;
mod contexts;
mod devices;
mod drop_order;
mod errors;
mod events;
mod fake;
mod gid_tables;
mod gids;
mod memory;
mod mlx5;
mod ports;
mod posting;
mod queue_pairs;
mod transitions;
