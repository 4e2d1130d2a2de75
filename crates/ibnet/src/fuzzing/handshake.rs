//! The two state machines of the handshake, fed by a peer that sends what it likes when it likes,
//! and by a driver that takes its time.
//!
//! The first byte says how many devices each end has. Then events follow, each with its
//! arguments; see [`next_event`].

use std::time::{Duration, Instant};

use super::input::Input;
use super::samples::{self, COOKIE, KINDS, frame};
use crate::handshake::acceptor::{self, Acceptor};
use crate::handshake::connector::{self, Connector};
use crate::handshake::frame::Decoder;
use crate::handshake::message::{
    Endpoint, Hello, Link, MAX_DEVICES, Message, Party, PathPlan, Plan, Wishes,
};
use crate::handshake::plan::decide;
use crate::handshake::session::Machine;
use crate::ring;
use crate::service::Service;

const LIMIT: Duration = Duration::from_secs(60);

enum Event {
    /// These bytes arrive, in two pieces.
    Bytes(Vec<u8>, usize),
    /// So much time passes.
    Pass(Duration),
    /// The driver does what it was asked for.
    Work,
}

/// | first byte, modulo 8 | arguments |
/// |---|---|
/// | 0 | count, bytes: they arrive |
/// | 1 to 5 | kind, changes, as many (position, 2 bytes; mask): a good message with bits flipped |
/// | 6 | seconds that pass |
/// | 7 | the driver works |
///
/// Bytes are followed by the size of the first piece that they arrive in.
fn next_event(input: &mut Input<'_>, devices: usize) -> Event {
    let bytes = match input.u8() % 8 {
        0 => {
            let count = input.u8();
            input.bytes(count.into()).to_vec()
        }
        6 => return Event::Pass(Duration::from_secs(input.u8().into())),
        7 => return Event::Work,
        _ => {
            let mut bytes = frame(&samples::message(input.below(KINDS), devices));
            for _ in 0..input.below(4) {
                let position = usize::from(input.u16()) % bytes.len();
                bytes[position] ^= input.u8();
            }
            bytes
        }
    };
    let cut = usize::from(input.u8()).min(bytes.len());
    Event::Bytes(bytes, cut)
}

/// What both machines must keep to.
struct Clock {
    now: Instant,
    /// When the machine last came further.
    progress: Instant,
}

impl Clock {
    fn new() -> Self {
        let now = Instant::now();
        Self { now, progress: now }
    }

    fn step_forward(&mut self) {
        self.progress = self.now;
    }

    /// Bytes alone never move the deadline (pitfall 37).
    fn check(&self, machine: &mut impl Machine) {
        assert_eq!(machine.session().deadline(), self.progress + LIMIT);
        assert!(!machine.waiting_for().is_empty());
    }
}

pub fn acceptor(data: &[u8]) {
    let mut input = Input::new(data);
    let devices = 1 + input.below(MAX_DEVICES);
    let clock = Clock::new();
    let mut listening = Listening {
        machine: Acceptor::new(COOKIE, clock.now, LIMIT),
        ours: samples::party("listener", devices),
        said: Decoder::default(),
        at: At::Stranger,
        clock,
    };
    while !input.is_empty() {
        let goes_on = match next_event(&mut input, devices) {
            Event::Pass(time) => {
                listening.clock.now += time;
                listening.drive()
            }
            Event::Work => listening.work() && listening.drive(),
            Event::Bytes(bytes, cut) => [&bytes[..cut], &bytes[cut..]].into_iter().all(|piece| {
                listening.machine.session().handle_bytes(piece);
                listening.drive()
            }),
        };
        if !goes_on {
            return;
        }
        listening.clock.check(&mut listening.machine);
    }
}

/// A listener's end, and how far it should have come.
struct Listening {
    machine: Acceptor,
    ours: Party,
    /// Understands what the machine says.
    said: Decoder,
    at: At,
    clock: Clock,
}

enum At {
    Stranger,
    Planning(Box<Hello>),
    Planned { paths: usize, devices: usize },
    Joining,
    Joined,
}

impl Listening {
    /// Asks the machine what to do; false when the handshake has failed.
    fn drive(&mut self) -> bool {
        match self.machine.step(self.clock.now) {
            Err(_) => return false,
            Ok(None) => assert!(!matches!(self.at, At::Joined)),
            Ok(Some(acceptor::Step::Plan(hello))) => {
                assert!(matches!(self.at, At::Stranger));
                assert_eq!(hello.cookie, COOKIE, "pitfall 49");
                self.at = At::Planning(hello);
                self.clock.step_forward();
            }
            Ok(Some(acceptor::Step::Join(endpoint))) => {
                let At::Planned { paths, devices } = self.at else {
                    panic!("joined without a plan")
                };
                assert_eq!(endpoint.queue_pairs.len(), paths);
                assert_eq!(endpoint.ring.rkeys.len(), devices);
                self.at = At::Joining;
                self.clock.step_forward();
            }
            Ok(Some(acceptor::Step::Done)) => assert!(matches!(self.at, At::Joined)),
        }
        let is_stranger = matches!(self.at, At::Stranger);
        assert_eq!(self.machine.is_known(), !is_stranger);
        let output = self.machine.session().take_output();
        assert!(
            output.is_empty() || !is_stranger,
            "a stranger was told something"
        );
        self.said.push(&output);
        true
    }

    /// Does what the machine waits for, as `client` does; false if there can be no connection.
    fn work(&mut self) -> bool {
        match &self.at {
            At::Planning(hello) => {
                let wish = hello.wishes.queue_pairs.into();
                let Ok(decisions) = decide(&hello.party, &self.ours, wish) else {
                    return false;
                };
                let path = |(index, decision): (usize, &_)| {
                    let decision: &crate::handshake::plan::PathDecision = decision;
                    PathPlan {
                        connector_device: decision.connector_device as u8,
                        listener_device: decision.listener_device as u8,
                        mtu: decision.mtu,
                        reorders: decision.reorders,
                        queue_pair: samples::queue_pair(index),
                    }
                };
                let own = self.ours.devices.len();
                let plan = Plan {
                    party: self.ours.clone(),
                    paths: decisions.iter().enumerate().map(path).collect(),
                    entry_bytes: ring::entry_bytes(own) as u8,
                    first_entry: ring::ENTRIES,
                    size_table: samples::area(own),
                };
                let (paths, devices) = (plan.paths.len(), hello.party.devices.len());
                self.machine.planned(plan.clone(), devices, self.clock.now);
                self.expect(&Message::Plan(plan));
                self.at = At::Planned { paths, devices };
            }
            At::Joining => {
                self.machine.joined(self.clock.now);
                self.expect(&Message::Ready);
                self.at = At::Joined;
            }
            At::Stranger | At::Planned { .. } | At::Joined => return true,
        }
        self.clock.step_forward();
        true
    }

    /// The machine says `message`, and the other end takes it.
    fn expect(&mut self, message: &Message) {
        self.said.push(&self.machine.session().take_output());
        assert_eq!(self.said.next(), Ok(Some(message.clone())));
    }
}

pub fn connector(data: &[u8]) {
    let mut input = Input::new(data);
    let devices = 1 + input.below(MAX_DEVICES);
    let wishes = Wishes {
        queue_pairs: 1,
        service: Service::default(),
        notify: false,
    };
    let party = samples::party("client", devices);
    let mut clock = Clock::new();
    let mut machine = Connector::new(COOKIE, party, wishes, clock.now, LIMIT);
    let mut said = Decoder::default();
    said.push(&machine.session().take_output());
    assert!(matches!(said.next(), Ok(Some(Message::Hello(_)))));

    let (mut plan, mut is_built, mut is_done) = (None, false, false);
    while !input.is_empty() {
        let pieces = match next_event(&mut input, devices) {
            Event::Pass(time) => {
                clock.now += time;
                Vec::new()
            }
            Event::Work => {
                let Some(plan): Option<&Plan> = plan.as_ref().filter(|_| !is_built) else {
                    continue;
                };
                let endpoint = endpoint(plan, devices);
                machine.built(endpoint.clone(), clock.now);
                said.push(&machine.session().take_output());
                assert_eq!(said.next(), Ok(Some(Message::Endpoint(endpoint))));
                is_built = true;
                clock.step_forward();
                Vec::new()
            }
            Event::Bytes(bytes, cut) => vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()],
        };
        for piece in pieces.iter().map(Vec::as_slice).chain([&[][..]]) {
            machine.session().handle_bytes(piece);
            match machine.step(clock.now) {
                Err(_) => return,
                Ok(None) => assert!(!is_done),
                Ok(Some(connector::Step::Build(new))) => {
                    assert!(plan.is_none(), "two plans");
                    for path in &new.paths {
                        assert!(usize::from(path.connector_device) < devices);
                        let theirs = &new.party.devices[usize::from(path.listener_device)];
                        assert_eq!(theirs.link, Link::Ethernet, "as all of ours");
                    }
                    plan = Some(*new);
                    clock.step_forward();
                }
                Ok(Some(connector::Step::Done)) => {
                    assert!(is_built, "done without queue pairs");
                    is_done = true;
                }
            }
        }
        clock.check(&mut machine);
    }
}

fn endpoint(plan: &Plan, devices: usize) -> Endpoint {
    Endpoint {
        queue_pairs: (0..plan.paths.len()).map(samples::queue_pair).collect(),
        ring: samples::area(devices),
    }
}
