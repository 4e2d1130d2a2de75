//! What NCCL's interface needs beside the transport, which is `ibnet`. Nothing in here knows a version of the
//! interface.
//!
//! - [`lifecycle`] has the shared transport, contexts, initialisation and teardown;
//! - [`device`] has the devices by NCCL's [`numbering`], with their [`properties`] and [`names`], and makes
//!   virtual ones; [`description`] says what they are in the log;
//! - [`pending`] has connections in the making, [`listening`] the listeners that accept by themselves;
//! - [`objects`] is what C holds handles of.

mod description;
pub(crate) mod device;
pub(crate) mod lifecycle;
pub(crate) mod listening;
mod names;
mod numbering;
pub(crate) mod objects;
pub(crate) mod pending;
mod properties;
