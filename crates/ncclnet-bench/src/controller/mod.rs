//! Deciding what is measured, and having workers measure it in turn.

mod callgrind;
mod contender;
mod growth;
mod listen;
mod peer;
mod perftest;
mod plan;
mod run;
mod tests;
mod turns;

pub(crate) use contender::Place;
pub(crate) use listen::listen;
pub(crate) use plan::{Plan, Test};
pub(crate) use run::run;

/// Why the controller could not go on, in a line that names the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);
