//! What behaviours are observed with: devices, connected ends with memory, and waiting.

mod end;
mod memory;
mod raw;
mod stage;
mod wait;

pub(crate) use end::{End, PORT, Pair, SIZE, Setup};
pub(crate) use memory::Memory;
pub(crate) use raw::{attributes, modify, post_elements, receive_elements};
pub(crate) use stage::{Devices, Stage};
pub(crate) use wait::{
    ends, event_about, quiet, settle, soon, wait_a_moment_until, wait_for, wait_until,
};
