//! Settings: every feature on and off, and ends that are set differently.

use std::time::Duration;

use ibnet::{Config, PathPolicy, RelaxedOrdering};

use super::duet;
use super::exercise::Exercise;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        scene: Scene::Ends(&[(1, 1), (2, 2)]),
        limit: Duration::from_secs(300),
        ..duet("settings/on-off-and-mixed", &[receiver, sender])
    }]
}

/// How the two ends of one connection are set.
struct Case {
    name: &'static str,
    receiver: fn(&mut Config),
    sender: fn(&mut Config),
}

const fn case(name: &'static str, receiver: fn(&mut Config), sender: fn(&mut Config)) -> Case {
    Case {
        name,
        receiver,
        sender,
    }
}

/// Both ends alike.
const fn both(name: &'static str, set: fn(&mut Config)) -> Case {
    case(name, set, set)
}

const CASES: &[Case] = &[
    both("the defaults", as_it_is),
    both("nothing inline", |c| c.inline = false),
    case("the receiver not inline", |c| c.inline = false, as_it_is),
    case("the sender not inline", as_it_is, |c| c.inline = false),
    both("no ECE", |c| c.ece = false),
    case("ECE of the sender alone", |c| c.ece = false, as_it_is),
    case("ECE of the receiver alone", as_it_is, |c| c.ece = false),
    both("no adaptive routing", |c| c.adaptive_routing = Some(false)),
    both("adaptive routing, all in bulk", |c| routed(c, 0)),
    both("adaptive routing, large ones in bulk", |c| routed(c, 4096)),
    both("adaptive routing, none in bulk", |c| {
        routed(c, i32::MAX as u32);
    }),
    case(
        "adaptive routing as the receiver knows",
        |c| routed(c, 8192),
        |c| c.adaptive_routing_threshold = 100,
    ),
    both("relaxed ordering never", |c| {
        c.relaxed_ordering = RelaxedOrdering::Off;
    }),
    both("relaxed ordering forced", |c| {
        c.relaxed_ordering = RelaxedOrdering::Force;
    }),
    case(
        "relaxed ordering at the receiver alone",
        |c| c.relaxed_ordering = RelaxedOrdering::Force,
        |c| c.relaxed_ordering = RelaxedOrdering::Off,
    ),
    both("4 queue pairs in turn", |c| c.queue_pairs = 4),
    both("4 queue pairs, the least busy", |c| {
        c.queue_pairs = 4;
        c.path_policy = PathPolicy::LeastOutstanding;
    }),
    case("1 queue pair and 3", as_it_is, |c| c.queue_pairs = 3),
    case(
        "5 queue pairs and 2",
        |c| c.queue_pairs = 5,
        |c| c.queue_pairs = 2,
    ),
    both("messages cut over 4 queue pairs", |c| cut(c, 4, 1024)),
    both("the smallest parts", |c| cut(c, 3, 128)),
    case(
        "cut as the sender says",
        |c| cut(c, 2, 4096),
        |c| {
            cut(c, 3, 256);
            c.path_policy = PathPolicy::LeastOutstanding;
        },
    ),
    case(
        "not cut as the sender says",
        |c| cut(c, 3, 1024),
        |c| {
            c.min_part = Some(256);
        },
    ),
    both("cut, in bulk, not inline", |c| {
        cut(c, 4, 512);
        routed(c, 1000);
        c.inline = false;
    }),
    case(
        "traffic classes and service levels",
        |c| {
            c.fifo_traffic_class = Some(32);
            c.service_level = Some(3);
        },
        |c| {
            c.traffic_class = Some(106);
            c.service_level = Some(1);
        },
    ),
    case(
        "timeouts and retries",
        |c| {
            c.ack_timeout = Some(Duration::from_millis(60));
            c.retry_count = 3;
        },
        |c| c.ack_timeout = Some(Duration::from_secs(1)),
    ),
    case(
        "everything at the receiver, nothing at the sender",
        everything,
        nothing,
    ),
    case(
        "nothing at the receiver, everything at the sender",
        nothing,
        everything,
    ),
    both("everything", everything),
    both("nothing", nothing),
];

fn as_it_is(_: &mut Config) {}

/// The fabric reorders, and messages of more than `threshold` bytes go in bulk.
fn routed(config: &mut Config, threshold: u32) {
    config.adaptive_routing = Some(true);
    config.adaptive_routing_threshold = threshold;
}

/// Messages are cut over so many queue pairs, into parts of at least `least` bytes.
fn cut(config: &mut Config, queue_pairs: u8, least: u32) {
    config.queue_pairs = queue_pairs;
    config.split_data = true;
    config.min_part = Some(least);
}

fn everything(config: &mut Config) {
    cut(config, 2, 512);
    routed(config, 2000);
    config.path_policy = PathPolicy::LeastOutstanding;
    config.relaxed_ordering = RelaxedOrdering::Force;
}

fn nothing(config: &mut Config) {
    config.inline = false;
    config.ece = false;
    config.adaptive_routing = Some(false);
    config.relaxed_ordering = RelaxedOrdering::Off;
    config.flush = false;
    config.return_async_events = false;
}

impl Case {
    /// Queue pairs of each pair of devices: the larger wish counts, at both ends.
    fn queue_pairs(&self) -> usize {
        let wish = |set: fn(&mut Config)| {
            let mut config = Config::default();
            set(&mut config);
            usize::from(config.queue_pairs)
        };
        wish(self.receiver).max(wish(self.sender))
    }

    fn exercise(&self, cast: &Cast, number: usize) -> Exercise {
        // How messages are cut is the sender's business alone.
        let mut config = Config::default();
        (self.sender)(&mut config);
        let each = if config.split_data {
            self.queue_pairs()
        } else {
            1
        };
        Exercise {
            seed: number as u64,
            parts: cast.pairs() * each,
            least: config.least_part() as usize,
        }
    }

    fn explain(&self, error: Failure) -> Failure {
        format!("{}: {error}", self.name).into()
    }
}

fn receiver(cast: &mut Cast) -> Result<(), Failure> {
    let before = cast.baseline(1)?;
    for (number, case) in CASES.iter().enumerate() {
        receive_as(case, number, cast).map_err(|error| case.explain(error))?;
    }
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn receive_as(case: &Case, number: usize, cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(case.receiver)?;
    // Counting takes a while on real devices, so it is done where there is something to see.
    let is_counted = case.queue_pairs() > 1;
    let before = match is_counted {
        true => cast.baseline(1)?.queue_pairs(),
        false => None,
    };
    let mut receiving = cast.accept_from(1, &transport)?;
    let now = match is_counted {
        true => cast.baseline(1)?.queue_pairs(),
        false => None,
    };
    if let (Some(before), Some(now)) = (before, now) {
        // Those of the other end are counted, too, where all devices are one simulation's.
        let ends = if cast.is_simulated() { 2 } else { 1 };
        let mut expected = (cast.pairs() * case.queue_pairs() * ends) as u64;
        let mut config = Config::default();
        (case.receiver)(&mut config);
        if config.flush {
            // One for each device of the receiver.
            expected += cast.members().count() as u64;
        }
        ensure(now - before == expected, || {
            format!("{} queue pairs instead of {expected}", now - before)
        })?;
    }
    case.exercise(cast, number).receive(&mut receiving)?;
    receiving.close()?;
    cast.meet(1)
}

fn sender(cast: &mut Cast) -> Result<(), Failure> {
    let before = cast.baseline(0)?;
    for (number, case) in CASES.iter().enumerate() {
        send_as(case, number, cast).map_err(|error| case.explain(error))?;
    }
    cast.meet(0)?;
    cast.expect_resources(&before)
}

fn send_as(case: &Case, number: usize, cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(case.sender)?;
    let is_counted = case.queue_pairs() > 1;
    if is_counted {
        cast.baseline(0)?;
    }
    let mut sending = cast.connect_to(0, &transport)?;
    if is_counted {
        cast.baseline(0)?;
    }
    case.exercise(cast, number).send(&mut sending)?;
    sending.close()?;
    cast.meet(0)
}
