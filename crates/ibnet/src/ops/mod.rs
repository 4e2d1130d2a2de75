//! The safe interface: buffers that move into a request and come back when it is done.
//!
//! Memory that a device may read or write must neither move nor be touched until the request is
//! done. Here that is guaranteed by ownership: the connection keeps the buffer meanwhile, whatever
//! happens to the ticket, and frees it only after its queue pairs are gone.
//!
//! The peer is trusted in one point: an announcement stays technically valid after its message has
//! arrived, so a peer that breaks the protocol on purpose could write into a buffer that was handed
//! back. Only who was given the listener's handle can be a peer.
//!
//! Each operation comes as `try_…`, which never waits; as the plain call, which waits; with
//! `…_until` and `…_timeout`, which give back what they were given if the time runs out; and with
//! `…_async`, to be awaited ([`crate::ops::future`]).

mod buffer;
pub mod future;
mod receiving;
mod sending;
mod tickets;
mod waiting;

pub use buffer::Buffer;
pub(crate) use receiving::only;
pub(crate) use tickets::Owned;
pub use tickets::{RecvTicket, SendTicket, Unposted};
pub(crate) use waiting::poll_for;
