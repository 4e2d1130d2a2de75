//! What C holds instead of pointers: numbers that are checked on every call.
//!
//! NCCL keeps opaque `void*` values for contexts, communicators, memory handles and requests. Here such a value
//! is a number ([`token`]): the kind of the object, its index in a table and the generation of that slot. A value
//! that is null, made up, of the wrong kind or out of date is an error code, for a load and a compare.
//!
//! - [`slots`]: the storage, which only grows and never moves, so that look-ups need no lock;
//! - [`table`]: the objects in it.
//!
//! Nothing here knows what the objects are, and nothing here keeps threads apart: that a communicator's data path
//! is used by one thread at a time, and that nothing is closed or deregistered while a call uses it, is the
//! contract of NCCL's interface.

mod error;
mod kind;
mod slots;
mod table;
mod token;

pub(crate) use error::HandleError;
pub(crate) use kind::Kind;
pub(crate) use slots::CHUNK;
pub(crate) use table::{Object, Table};
pub(crate) use token::{MAX_COMMUNICATORS, ObjectId, RequestToken};
