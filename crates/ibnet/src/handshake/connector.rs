//! The connecting end of the handshake.

use std::time::{Duration, Instant};

use crate::handle::Cookie;
use crate::handshake::frame::{Decoder, encode};
use crate::handshake::message::{Endpoint, Hello, Invalid, Message, Party, Plan, printable};

/// The state machine of the end that connects.
///
/// Feed it with [`handle_bytes`](Self::handle_bytes); then ask [`step`](Self::step) what to do,
/// until it says to wait. Send what [`take_output`](Self::take_output) gives. Give up after
/// [`deadline`](Self::deadline).
#[derive(Debug)]
pub(crate) struct Connector {
    state: State,
    decoder: Decoder,
    output: Vec<u8>,
    devices: usize,
    time_limit: Duration,
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    AwaitingPlan,
    /// The plan is there; the driver makes the queue pairs.
    Building,
    AwaitingReady,
    Done,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for bytes.
    Wait,
    /// Make the own ends of the paths, then call [`Connector::built`].
    Build(Box<Plan>),
    /// The connection stands.
    Done,
}

/// Why the handshake ends without a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer's bytes are not of this protocol.
    Invalid(Invalid),
    /// The peer said no.
    Refused(String),
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl Connector {
    /// Starts by greeting the listener that gave out `cookie`.
    pub(crate) fn new(cookie: Cookie, party: Party, now: Instant, time_limit: Duration) -> Self {
        let devices = party.devices.len();
        let mut output = Vec::new();
        encode(&Message::Hello(Hello { cookie, party }), &mut output);
        Self {
            state: State::AwaitingPlan,
            decoder: Decoder::default(),
            output,
            devices,
            time_limit,
            deadline: now + time_limit,
        }
    }

    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// Advances as far as the bytes allow.
    pub(crate) fn step(&mut self, now: Instant) -> Result<Step, Failure> {
        match self.state {
            State::AwaitingPlan => match self.decoder.next()? {
                None => Ok(Step::Wait),
                Some(Message::Plan(plan)) => {
                    let ours = |device: u8| usize::from(device) < self.devices;
                    if !plan.paths.iter().all(|path| ours(path.connector_device)) {
                        return Err(Invalid("a path over a device that was not offered").into());
                    }
                    self.enter(State::Building, now);
                    Ok(Step::Build(Box::new(plan)))
                }
                Some(other) => Err(unexpected(other)),
            },
            State::AwaitingReady => match self.decoder.next()? {
                None => Ok(Step::Wait),
                Some(Message::Ready) => {
                    self.state = State::Done;
                    Ok(Step::Done)
                }
                Some(other) => Err(unexpected(other)),
            },
            State::Building => Ok(Step::Wait),
            State::Done => Ok(Step::Done),
        }
    }

    /// The driver has made its ends of the paths.
    pub(crate) fn built(&mut self, endpoint: Endpoint, now: Instant) {
        encode(&Message::Endpoint(endpoint), &mut self.output);
        self.enter(State::AwaitingReady, now);
    }

    /// Tells the peer why there will be no connection.
    pub(crate) fn refuse(&mut self, reason: &impl ToString) {
        encode(&Message::refusal(reason), &mut self.output);
    }

    /// Bytes for the peer.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// When to give up, unless there is progress.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What is being waited for, in words.
    pub(crate) fn waiting_for(&self) -> &'static str {
        match self.state {
            State::AwaitingPlan => "the listener's plan",
            State::Building => "the local queue pairs",
            State::AwaitingReady | State::Done => "the listener's queue pairs to be ready",
        }
    }

    /// Bytes that came after the handshake belong to the control channel.
    pub(crate) fn into_decoder(self) -> Decoder {
        self.decoder
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.deadline = now + self.time_limit;
    }
}

/// A message that does not belong here; a refusal is one at any time.
pub(crate) fn unexpected(message: Message) -> Failure {
    match message {
        Message::Refusal(refusal) => Failure::Refused(printable(&refusal.reason)),
        Message::Closing(_) => Failure::Refused("it closed the connection".to_owned()),
        _ => Failure::Invalid(Invalid("a message out of turn")),
    }
}
