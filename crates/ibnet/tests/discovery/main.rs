//! Finding devices on machines of every kind, and following what changes on them; on the simulator,
//! with trees of sysfs made for each machine.
#![allow(clippy::unwrap_used)]

mod changes;
mod data_direct;
mod drivers;
mod layouts;
#[allow(dead_code, reason = "other programs use all of it")]
#[path = "../rig/log.rs"]
mod log;
mod machine;
mod many;
mod merging;
mod opening;
mod speeds;
mod tables;
