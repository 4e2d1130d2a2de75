//! The raw layer, and its contract: for callers that cannot give their memory away, such as a
//! transport plugin behind a C interface.
//!
//! The safe layer is made of these calls. [`raw`](crate::Connection::raw) gives them beside it,
//! [`into_raw`](crate::Connection::into_raw) instead of it.
//!
//! # What the caller guarantees
//! 1. *Memory stays mapped while it is registered.* [`Registrar::register`] is unsafe for that: from
//!    the call until the last clone of its [`Region`] is dropped, or
//!    [`deregister`](Region::deregister) has returned, the pages are mapped, and mapped to the same
//!    memory.
//! 2. *Memory of a request is left alone until the request is done.* Posting is unsafe for that: from
//!    [`isend`](SendConnection::isend) until [`test`](SendConnection::test) reports the request as
//!    done the bytes that are sent are not written to; from [`irecv`](RecvConnection::irecv) until its
//!    `test` does, the buffers are neither read nor written. Meanwhile the regions live; requests do not
//!    hold them.
//! 3. *After an error or without a `test` the end is the connection's.* A request that ends with an
//!    error, or that is not asked for any more, keeps its claim on memory and regions until the
//!    connection is closed or dropped.
//! 4. *One thread at a time* calls the functions of a connection (`&mut self` sees to it in Rust; a C
//!    interface must hand it on). Registering and deregistering are for any thread at any time.
//!
//! A guarantee that is broken is undefined behaviour: the device reads or writes what has become
//! other memory.
//!
//! # What each call promises
//! | call | waits | gives | without effect |
//! |---|---|---|---|
//! | [`Transport::connect`](crate::Transport::connect), [`listen`](crate::Transport::listen) | no | something to poll | on error |
//! | [`try_now`](crate::Wait::try_now) of [`Connecting`](crate::Connecting) and [`Accept`](crate::Accept) | no: at most four queue pairs are made or moved | a connection, or `None`: poll again | |
//! | [`Registrar::register`] | for the kernel, to pin the pages | a [`Region`] for all devices of the connection | on error |
//! | [`isend`](SendConnection::isend) | no | a [`RequestId`], or `None`: nothing is announced or too much is outstanding; call again with the same arguments | on `None`, and on an error about an argument |
//! | [`irecv`](RecvConnection::irecv) | no | a [`RequestId`], or `None`: too much is outstanding | as `isend` |
//! | [`iflush`](RecvConnection::iflush) | no | [`Flush`] | unless `Started` |
//! | `test` | no: takes up to 32 completions from each device, for whatever requests they are; all, when the connection is ending | what was done, or `None` | |
//! | [`close`](SendConnection::close), drop | no | the first error; everything is torn down all the same | never |
//!
//! A small message that `isend` has taken for a group of receives may be posted only when the group's
//! last one is there, or when `test` is called for a request that is not done. A program that sends and then
//! asks for nothing has not necessarily sent.
//!
//! None of `isend`, `irecv`, `iflush` (but for a connection's first) and `test` takes a lock,
//! allocates memory, logs or enters the kernel, unless something fails or the peer has news on the
//! control channel.
//!
//! Up to 256 requests of a connection can be outstanding. Messages of one tag arrive in the order in
//! which they were sent, into the buffers in the order in which these were announced; requests can be
//! done in any order. A request that is done is over once `test` has said so: from then on its id is
//! refused ([`Error::StaleRequest`](crate::Error::StaleRequest)), as is any other number that names
//! nothing outstanding. So ids may come through C, as [`RequestId::into_raw`] and
//! [`from_raw`](RequestId::from_raw) make them, and need not be trusted.
//!
//! # When something fails
//! An error about an argument ([`Error::InvalidArgument`](crate::Error::InvalidArgument)) or about an
//! id ([`Error::StaleRequest`](crate::Error::StaleRequest)) leaves the connection as it was. So does
//! [`Error::MessageTooLong`](crate::Error::MessageTooLong), which `test` of a receive gives if its sender is one
//! of the safe layer, which cuts nothing. Once the
//! peer has left in an orderly way new requests are refused with
//! [`Error::PeerClosed`](crate::Error::PeerClosed); those that are outstanding are tested as before,
//! because what the peer completed before it left counts. Every other error ends the connection: all
//! outstanding requests and every later call have the same one. Buffers of requests that have not
//! been done may have been written in part.
//!
//! # Panics
//! No call panics for what a caller, a peer or a device does. A C interface should still stop an
//! unwinding panic at its border, as the plugin does.

pub use crate::connection::Connection;
pub use crate::connection::receiver::{Flush, Received, Receiver, RecvBuffer};
pub use crate::connection::requests::RequestId;
pub use crate::connection::sender::Sender;
pub use crate::memory::region::{Region, Registrar};

/// The sending end of a connection.
pub type SendConnection = Connection<Sender>;

/// The receiving end of a connection.
pub type RecvConnection = Connection<Receiver>;
