//! The plugin: [`ibnet`] behind NCCL's and RCCL's interface for networks.
//!
//! The shared library exports one table of functions per version of that interface,
//! `ncclNetPlugin_v2` to `ncclNetPlugin_v12`, and nothing else. NCCL takes the newest that it knows.
//! `docs/plugin.md` says how to use it.
//!
//! What lives where, from the outside in:
//!
//! - [`abi`]: the C declarations, public so that Rust programs can load such a plugin too;
//! - `tables`: one table for each version;
//! - `lifecycle`, `query`, `connect`, `memory`, `data`, `flush`: the C functions, each file those of one concern.
//!   A function whose signature changed is there once for each signature, named for the API version that introduced
//!   it, as its type in [`abi`] is;
//! - `guard`: no panic and no pointer gets past it unseen;
//! - `handles`: what C holds instead of pointers, checked on every call; `objects`: what they stand for;
//! - `device`: devices as NCCL sees them; `attempts`: connections in the making; `accepting`: listeners that accept by themselves;
//! - `logger`: `tracing` events to NCCL's logger; `profiler`: work requests to NCCL's profiler.
//!
//! What does not live here: everything about RDMA, which is `ibnet`'s.
//!
//! Rust programs can use the tables without loading anything, too: they are public statics. Such a
//! program may provide the devices itself, see [`use_library`], [`use_settings`] and
//! [`use_sysfs`].
//!
//! # Threads
//!
//! As NCCL promises, and as every plugin relies on: the data path of one communicator (`isend`, `irecv`,
//! `iflush`, `test`) runs on one thread at a time, nothing is closed or deregistered while a call uses it, and
//! no function of the plugin is called from within one, which means from the logger or the profiler. A program
//! that breaks this has undefined behaviour. Everything else may run at the same time on any thread, registering
//! and deregistering memory of the same communicator included.
//!
//! # Library dependencies
//!
//! libc only. libibverbs is loaded by `init`, which says so in one line if it is not there. The shared
//! library always takes libibverbs: [`use_library`] is not among what it exports.

pub mod abi;

mod accepting;
mod attempts;
mod connect;
mod data;
mod device;
mod fault;
mod flush;
mod guard;
mod handles;
mod lifecycle;
mod logger;
mod memory;
mod objects;
mod profiler;
mod query;
mod tables;

pub use lifecycle::{use_library, use_settings, use_sysfs};
pub use tables::*;
