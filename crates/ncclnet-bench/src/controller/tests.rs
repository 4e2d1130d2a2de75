//! The tests that run on connections that stand: moving messages, and registering memory.

use super::Failure;
use super::contender::{Contender, calibrate};
use super::plan::Test;
use super::turns::{Quantity, Turn, Values, higher, lower};
use crate::protocol::{Flow, Volley};

const PROCESSOR: Quantity = lower("processor time per message", "ns");
const TIME: Quantity = lower("time per message", "us");
const INSTRUCTIONS: Quantity = lower("instructions per message", "");
const BANDWIDTH: Quantity = higher("bandwidth", "MB/s");
const RATE: Quantity = higher("messages", "1000/s");
const GROUPS: Quantity = higher("receives", "1000/s");
const LATENCY: [Quantity; 3] = [
    lower("half round trip, shortest", "us"),
    lower("half round trip, median", "us"),
    lower("half round trip, 99 of 100", "us"),
];
const REGISTERING: [Quantity; 4] = [
    lower("new registration", "us"),
    lower("hit", "us"),
    lower("release of a hit", "us"),
    lower("release of the last", "us"),
];

/// Receives that are checked byte by byte before something is measured.
const CHECKED: u64 = 100;
/// Receives before the clock starts.
const WARM_UP: u64 = 100;
/// The most and the fewest receives of one measurement.
const RECEIVES: std::ops::RangeInclusive<u64> = 20..=100_000_000;
/// The most and the fewest round trips of one measurement.
const ROUNDS: std::ops::RangeInclusive<u64> = 20..=1_000_000;

/// How a measurement is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Seconds that one takes.
    pub(super) seconds: f64,
    /// Check data before.
    pub(super) verify: bool,
}

/// Messages in one direction.
pub(super) struct Moving<'a> {
    label: String,
    contender: &'a mut Contender,
    flow: Flow,
    test: Test,
}

impl<'a> Moving<'a> {
    /// Checks that data arrives, and finds out how many messages take the time. `flow` has no
    /// numbers of receives yet.
    pub(super) fn prepare(
        label: &str,
        contender: &'a mut Contender,
        flow: Flow,
        test: Test,
        effort: Effort,
    ) -> Result<Self, Failure> {
        if effort.verify {
            let checked = Flow {
                receives: CHECKED.min(1 + (64 << 20) / (flow.size * flow.group) as u64),
                warm_up: 0,
                verify: true,
                ..flow
            };
            contender.flow(checked)?;
        }
        let warm_up = WARM_UP.min(2 * flow.window as u64);
        let flow = Flow { warm_up, ..flow };
        let receives = calibrate(contender, flow, effort.seconds, RECEIVES)?;
        Ok(Self {
            label: label.to_owned(),
            contender,
            flow: Flow { receives, ..flow },
            test,
        })
    }
}

impl Turn for Moving<'_> {
    fn label(&self) -> &str {
        &self.label
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let moving = self.contender.flow(self.flow)?;
        let receives = (self.flow.receives * self.flow.connections as u64) as f64;
        let messages = receives * self.flow.group as f64;
        Ok(match self.test {
            Test::Bandwidth => {
                let bytes = messages * self.flow.size as f64;
                vec![(BANDWIDTH, bytes / moving.seconds / 1e6)]
            }
            Test::Groups => vec![(GROUPS, receives / moving.seconds / 1e3)],
            Test::Rate => vec![(RATE, messages / moving.seconds / 1e3)],
            _ => match moving.processor {
                Some(processor) => {
                    let mut values = vec![(PROCESSOR, processor / messages * 1e9)];
                    values.extend(moving.instructions.map(|count| (INSTRUCTIONS, count)));
                    values
                }
                None => vec![(TIME, moving.seconds / messages * 1e6)],
            },
        })
    }
}

/// Messages back and forth.
pub(super) struct Trips<'a> {
    label: String,
    contender: &'a mut Contender,
    volley: Volley,
}

impl<'a> Trips<'a> {
    /// As [`Moving::prepare`].
    pub(super) fn prepare(
        label: &str,
        contender: &'a mut Contender,
        size: usize,
        effort: Effort,
    ) -> Result<Self, Failure> {
        let mut volley = Volley {
            size,
            warm_up: 5,
            rounds: *ROUNDS.start(),
            verify: effort.verify,
        };
        contender.volley(volley)?;
        volley.verify = false;
        let trial = contender.volley(volley)?;
        let round_trip = 2.0 * trial.map_or(f64::INFINITY, |[_, median, _]| median);
        let rounds = (effort.seconds / round_trip) as u64;
        volley.rounds = rounds.clamp(*ROUNDS.start(), *ROUNDS.end());
        Ok(Self {
            label: label.to_owned(),
            contender,
            volley,
        })
    }
}

impl Turn for Trips<'_> {
    fn label(&self) -> &str {
        &self.label
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let times = self.contender.volley(self.volley)?.into_iter().flatten();
        Ok(LATENCY
            .into_iter()
            .zip(times.map(|time| time * 1e6))
            .collect())
    }
}

/// Registering memory.
pub(super) struct Registering<'a> {
    pub(super) label: String,
    pub(super) contender: &'a mut Contender,
    pub(super) live: usize,
}

/// How many registrations are measured at each number of live ones.
const SAMPLES: usize = 500;

impl Turn for Registering<'_> {
    fn label(&self) -> &str {
        &self.label
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let times = self.contender.register(self.live, SAMPLES)?;
        let times = times.map(|time| time * 1e6);
        Ok(REGISTERING.into_iter().zip(times).collect())
    }
}
