//! The scenarios, by what they are about.

mod addresses;
mod connecting;
mod data;
mod endings;
mod plugin;
mod programs;
mod verbs_tests;

use std::time::Duration;

use crate::play::{Role, Scenario, Scene};

/// All scenarios, in the order in which they are played.
pub fn all() -> Vec<Scenario> {
    [
        verbs_tests::scenarios(),
        connecting::scenarios(),
        addresses::scenarios(),
        data::scenarios(),
        endings::scenarios(),
        plugin::scenarios(),
    ]
    .concat()
}

/// A scenario of a receiver (role 0) and a sender (role 1), on one device and on a pair.
const fn duet(name: &'static str, roles: &'static [Role; 2]) -> Scenario {
    Scenario {
        name,
        scene: Scene::OneDeviceAndPair,
        roles,
        limit: Duration::from_secs(120),
        needs_processes: None,
    }
}

/// A scenario of one process on one device.
const fn solo(name: &'static str, roles: &'static [Role; 1]) -> Scenario {
    Scenario {
        name,
        scene: Scene::OneDevice,
        roles,
        limit: Duration::from_secs(120),
        needs_processes: None,
    }
}
