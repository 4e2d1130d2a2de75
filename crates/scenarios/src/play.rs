//! What a scenario is, and where it can be played.

use std::time::Duration;

use crate::cast::Cast;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// `subject/what-is-shown`.
    pub name: &'static str,
    /// Where it is played.
    pub scene: Scene,
    /// What each process does.
    pub roles: &'static [Role],
    /// Longer than this means a hang.
    pub limit: Duration,
    /// Why it can only be played by processes, if so.
    pub needs_processes: Option<&'static str>,
}

/// What one process of a scenario does.
pub type Role = fn(&mut Cast) -> Result<(), Failure>;

/// Why a role failed, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Played twice: all roles on one device, and roles alternating between the devices of a pair.
    OneDeviceAndPair,
    /// Played once, roles alternating between the devices of a pair.
    Pair,
    /// Played once, all roles on one device.
    OneDevice,
    /// Played once, on no device.
    NoDevice,
    /// Played three times: on one device, on a pair, and between two ends of two devices each.
    Everywhere,
    /// Played once for each pair of numbers: between ends that have so many devices each.
    ///
    /// Unequal numbers need every device to reach every other one, so that they are for the
    /// simulator: the pairs of real devices have nothing to do with each other.
    Ends(&'static [(usize, usize)]),
}

/// Where a scenario is played.
pub enum Place {
    /// Role n uses end n modulo the number of ends.
    Devices {
        /// What to call it.
        title: String,
        /// The device of each end; where it is a virtual one, the names of its members, joined by
        /// `+`.
        devices: Vec<String>,
    },
    /// It cannot be played, and why.
    Nowhere(&'static str),
}

/// How a scenario ended.
pub enum Outcome {
    /// After so many seconds.
    Passed(f64),
    /// And why.
    Failed(String),
    /// And why.
    NotRun(String),
}

/// The devices that there are to play on.
pub struct Stage {
    devices: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Stage {
    /// The devices that `IBNET_TEST_DEVICES` and `IBNET_TEST_PAIRS` name.
    pub fn from_env() -> Self {
        let list = |name| {
            let text = std::env::var(name).unwrap_or_default();
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            items.map(str::to_owned).collect::<Vec<_>>()
        };
        let pairs = list("IBNET_TEST_PAIRS")
            .iter()
            .filter_map(|pair| pair.split_once(':'))
            .map(|(one, other)| (one.to_owned(), other.to_owned()))
            .collect();
        Self {
            devices: list("IBNET_TEST_DEVICES"),
            pairs,
        }
    }

    /// Where a scenario that needs `scene` is played.
    pub fn places(&self, scene: Scene) -> Vec<Place> {
        let single = || match self.devices.first() {
            Some(device) => Place::Devices {
                title: device.clone(),
                devices: vec![device.clone()],
            },
            None => Place::Nowhere("IBNET_TEST_DEVICES names no device"),
        };
        let pair = || match self.pairs.first() {
            Some((one, other)) => Place::Devices {
                title: format!("{one}-{other}"),
                devices: vec![one.clone(), other.clone()],
            },
            None => Place::Nowhere("IBNET_TEST_PAIRS names no pair"),
        };
        match scene {
            Scene::OneDeviceAndPair => vec![single(), pair()],
            Scene::Pair => vec![pair()],
            Scene::OneDevice => vec![single()],
            Scene::Everywhere => vec![single(), pair(), self.ends(2)],
            Scene::Ends(counts) => {
                let equal = counts.iter().filter(|(one, other)| one == other);
                let few = equal.map(|(count, _)| *count).filter(|count| *count <= 2);
                few.map(|count| self.ends(count)).collect()
            }
            Scene::NoDevice => vec![Place::Devices {
                title: "no device".to_owned(),
                devices: vec![String::new()],
            }],
        }
    }

    /// Between ends of `count` devices each.
    fn ends(&self, count: usize) -> Place {
        if self.pairs.len() < count {
            return Place::Nowhere("IBNET_TEST_PAIRS names too few pairs");
        }
        let (ones, others): (Vec<_>, Vec<_>) = self.pairs[..count].iter().cloned().unzip();
        let devices = vec![ones.join("+"), others.join("+")];
        Place::Devices {
            title: devices.join("-"),
            devices,
        }
    }
}
