//! What is to be measured.

use super::contender::Place;
use crate::net::Source;

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    /// What one thread needs to send and receive.
    Loop,
    /// Half round trips.
    Latency,
    /// Bytes per second.
    Bandwidth,
    /// Messages per second.
    Rate,
    /// Receives of several messages per second.
    Groups,
    /// What connections cost to make.
    Connections,
    /// What messages cost while so many connections are open.
    Growth,
    /// What registrations cost.
    Registrations,
}

impl Test {
    /// All of them, in the order in which they run.
    pub(crate) const ALL: [Self; 8] = [
        Self::Loop,
        Self::Latency,
        Self::Bandwidth,
        Self::Rate,
        Self::Groups,
        Self::Registrations,
        Self::Connections,
        Self::Growth,
    ];

    /// Its name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Groups => "groups",
            Self::Connections => "connections",
            Self::Growth => "growth",
            Self::Registrations => "registrations",
        }
    }

    /// Whether it has a meaning there.
    pub(crate) fn is_for(self, place: &Place) -> bool {
        let in_one_thread = *place == Place::OneThread;
        match self {
            Self::Loop => in_one_thread,
            Self::Latency | Self::Bandwidth | Self::Rate | Self::Groups => !in_one_thread,
            Self::Connections | Self::Growth | Self::Registrations => true,
        }
    }
}

/// Everything that the command line says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// For people.
    pub(crate) title: String,
    /// The networks. Ratios are those of the first to the others.
    pub(crate) sources: Vec<Source>,
    pub(crate) place: Place,
    /// Devices: none, one for both ends, or one for each end.
    pub(crate) devices: Vec<String>,
    /// Devices that are to be one, for the tests with two devices.
    pub(crate) merged: Option<String>,
    pub(crate) tests: Vec<Test>,
    /// Bytes of messages.
    pub(crate) sizes: Vec<usize>,
    /// Receives under way.
    pub(crate) windows: Vec<usize>,
    /// Messages per receive.
    pub(crate) groups: Vec<usize>,
    /// Queue pairs per connection and device.
    pub(crate) paths: Vec<u32>,
    /// Connections that are open.
    pub(crate) connections: Vec<usize>,
    /// Registrations that are live.
    pub(crate) registrations: Vec<usize>,
    /// How often each measures.
    pub(crate) rounds: usize,
    /// Seconds of one measurement.
    pub(crate) seconds: f64,
    /// Check every byte once before each measurement.
    pub(crate) verify: bool,
    /// Let perftest's programs take part.
    pub(crate) perftest: bool,
    /// Count instructions with valgrind.
    pub(crate) callgrind: bool,
    /// Give the processor away after a fruitless poll.
    pub(crate) yields: bool,
}
