//! What C holds instead of pointers: numbers that are checked on every call.
//!
//! NCCL keeps opaque `void*` values for contexts, communicators, memory handles and requests. A
//! plugin that dereferences what comes back is one stale value away from undefined behaviour. Here
//! such a value is a number ([`token`]): the kind of the object, its index in a table and the
//! generation of that table slot. A value that is null, made up, of the wrong kind or out of date is
//! an error code.
//!
//! - [`slots`]: the storage, which only grows and never moves, so that look-ups need no lock;
//! - [`table`]: objects that one call at a time may use: contexts, listeners, communicators;
//! - [`regions`]: registered memory, read by the data path of its communicator;
//! - [`mark`]: which of them each thread is in a call with.
//!
//! What a data-path call pays for all of it is a few loads, three stores to the thread's own mark, and
//! one load for each memory handle. Nothing here knows what the objects
//! are, and nothing here knows the plugin's functions.

mod error;
mod mark;
mod regions;
mod slots;
mod table;
mod token;

pub(crate) use error::HandleError;
pub(crate) use regions::Regions;
pub(crate) use slots::CHUNK;
pub(crate) use table::{Inside, Object, Table};
pub(crate) use token::{Kind, MAX_COMMUNICATORS, ObjectId, RequestToken};
