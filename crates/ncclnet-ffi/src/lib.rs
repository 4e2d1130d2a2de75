//! The plugin: [`ibnet`] behind NCCL's and RCCL's interface for networks.
//!
//! The shared library exports one table of functions per version of that interface,
//! `ncclNetPlugin_v2` to `ncclNetPlugin_v12`, and nothing else. NCCL takes the newest that it knows.
//! `docs/plugin.md` says how to use it.
//!
//! What lives where, from the outside in:
//!
//! - [`abi`]: the C declarations, public so that Rust programs can load such a plugin too;
//! - `versions`: one file for each version, with its table and the functions that are different there;
//! - `entry`: the C functions that several versions have in common; `guard`: no panic gets past it;
//! - `plugin`: what the functions do, once, with Rust arguments and results;
//! - `handles`: what C holds instead of pointers, checked on every call;
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
//! As NCCL promises, and as the plugin checks: the data path of one communicator (`isend`, `irecv`,
//! `iflush`, `test`, closing) runs on one thread at a time. Everything else may run at the same time
//! on any thread, registering and deregistering memory of the same communicator included.
//!
//! The first call of a thread on a communicator that another thread used last costs a system call
//! (membarrier(2)), and so does deregistering memory of such a communicator. From within a call with a
//! communicator, which means in the logger or the profiler, no other such call can be made, nor can the
//! communicator be closed, or memory be deregistered of it or of one that another thread uses: these
//! are errors.
//!
//! # Library dependencies
//!
//! libc only. libibverbs is loaded by `init`, which says so in one line if it is not there. The shared
//! library always takes libibverbs: [`use_library`] is not among what it exports.

pub mod abi;

mod entry;
mod fault;
mod guard;
mod handles;
mod logger;
mod plugin;
mod profiler;
mod versions;

pub use plugin::lifecycle::{use_library, use_settings, use_sysfs};
pub use versions::*;
