//! The safe interface: buffers that move into a request and come back when it is done.
//!
//! Memory that a device may read or write must neither move nor be touched until the request is
//! done. Here that is guaranteed by ownership: the connection keeps the buffer meanwhile, whatever
//! happens to the ticket, and frees it only after its queue pairs are gone.
//!
//! The peer is trusted in one point: an announcement stays technically valid after its message has
//! arrived, so a peer that breaks the protocol on purpose could write into a buffer that was handed
//! back. Only one that was given the listener's handle can be a peer.
//!
//! Each operation is one value, an [`Operation`], with the methods of [`Wait`].
#![allow(
    private_bounds,
    reason = "the sides and the operations are those of this crate"
)]

mod buffer;
mod connection;
mod operation;
mod requests;
mod tickets;
mod transfer;
mod wait;

pub use buffer::Buffer;
pub use connection::{Connection, RecvConnection, SendConnection};
pub use operation::{Attempt, OpError, Operation};
pub use requests::{Batch, Finish, FinishAny, Post};
pub use tickets::{GroupTicket, RecvTicket, SendTicket, Ticket};
pub use transfer::Transfer;
pub use wait::Wait;
