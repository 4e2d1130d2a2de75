//! Becoming a connection: the listener is called over TCP, the two ends agree on paths and tell each other their
//! queue pairs.
//!
//! ```text
//! connector                      listener
//!    │ Hello: cookie, devices  ──▶  │  decides which device talks to which, creates its queue pairs
//!    │  ◀── Plan: paths, queue pairs │
//!    │ creates its queue pairs and   │
//!    │ connects them to the plan's   │
//!    │ Endpoints: queue pairs    ──▶  │  connects its own to these
//!    │  ◀──────────────────── Ready  │
//! ```
//!
//! - [`connector`] and [`acceptor`] are this conversation, one straight-line `async fn` for each end. They are
//!   polled by hand, so there is neither a runtime nor a thread: [`waits`] says how they wait;
//! - [`peer`] sends and receives the messages, [`dial`] reaches the listener;
//! - [`setup`] makes the own ends of the paths.
//!
//! The messages and what is believed of them are in [`handshake`](crate::wire); what users hold is in
//! `connecting` and `listener`.

use std::pin::Pin;

use crate::error::Error;

/// A conversation under way, which ends in a connection.
pub(crate) type Conversation<C> = Pin<Box<dyn Future<Output = Result<C, Error>> + Send>>;

pub(crate) mod acceptor;
pub(crate) mod connector;
pub(crate) mod control;
pub(crate) mod dial;
pub(crate) mod established;
pub(crate) mod interface;
pub(crate) mod introduction;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod pairing;
pub(crate) mod peer;
pub(crate) mod plan;
pub(crate) mod queue_pair;
pub(crate) mod random;
pub(crate) mod recipe;
pub(crate) mod service;
pub(crate) mod setup;
pub(crate) mod shared;
pub(crate) mod waits;
