//! What two ends say to agree on a connection: messages, their framing, and the listener's plan. Pure: no input or
//! output, no clock, no verb. The conversation is [`connect`](crate::connect).
//!
//! Either end may send `Refusal` with a reason instead of going on. Afterwards the same TCP
//! connection serves as the control channel ([`crate::connection`]).
#![forbid(unsafe_code)]

pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod plan;
#[cfg(test)]
mod tests;
