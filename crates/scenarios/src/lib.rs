//! Scenarios: the whole product at work, each written once and played in two ways.
//!
//! Each scenario is a play with one to four roles.
//!
//! - On *real devices* each role is a process of its own: the program `ibnet-scenarios`, in the
//!   Soft-RoCE machine or on a host with adapters ([`runner`]).
//! - On a *simulated library* each role is a thread ([`simulation`]): a test of this crate, on any
//!   machine.

pub mod cast;
mod log;
mod mail;
mod pattern;
pub mod play;
mod resources;
pub mod runner;
mod scenarios;
pub mod simulation;

pub use scenarios::all;
