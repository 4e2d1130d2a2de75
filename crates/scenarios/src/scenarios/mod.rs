//! The scenarios, by what they are about.

mod addresses;
mod connecting;
mod crowds;
mod data;
mod devices;
mod endings;
mod exercise;
mod flush;
mod forking;
mod many;
mod own_link;
mod plugin;
mod programs;
mod recovery;
mod registrations;
mod settings;
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
        devices::scenarios(),
        settings::scenarios(),
        many::scenarios(),
        crowds::scenarios(),
        flush::scenarios(),
        endings::scenarios(),
        forking::scenarios(),
        recovery::scenarios(),
        registrations::scenarios(),
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

/// A scenario of a receiver and a sender, also between ends of two devices each.
const fn duet_everywhere(name: &'static str, roles: &'static [Role; 2]) -> Scenario {
    let mut scenario = duet(name, roles);
    scenario.scene = Scene::Everywhere;
    scenario
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
