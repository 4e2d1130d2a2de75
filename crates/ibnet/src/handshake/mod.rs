//! How two ends agree on a connection: messages, their framing, and the two state machines.
//!
//! Nothing here performs input or output, reads a clock or calls a verb. Bytes and the time go in;
//! bytes, a deadline and the next thing to do come out. [`crate::conversation`] moves the bytes;
//! [`crate::connecting`] and [`crate::listener`] do with real devices what the machines ask for.
//!
//! ```text
//!  connector (will send)                       listener (will receive)
//!  Hello: version, cookie, devices  ─────────▶  checks the cookie, decides the plan,
//!                                               makes its queue pairs
//!                                   ◀─────────  Plan: paths, sizes, where the size table lies
//!  makes its queue pairs, RTR, RTS
//!  Endpoint: queue pairs, ring      ─────────▶  RTR, RTS
//!                                   ◀─────────  Ready
//! ```
//!
//! Either end may send `Refusal` with a reason instead of going on. Afterwards the same TCP
//! connection serves as the control channel ([`crate::connection`]).
#![forbid(unsafe_code)]

pub(crate) mod acceptor;
pub(crate) mod connector;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod plan;
pub(crate) mod session;
#[cfg(test)]
mod tests;
