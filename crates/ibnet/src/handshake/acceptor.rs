//! The listening end of the handshake, for one client.

use std::time::{Duration, Instant};

use crate::handle::Cookie;
use crate::handshake::connector::{Failure, unexpected};
use crate::handshake::frame::{Decoder, encode};
use crate::handshake::message::{Endpoint, Invalid, Message, Party, Plan};

/// The state machine of the end that listens. Driven as [`Connector`] is.
///
/// [`Connector`]: crate::handshake::connector::Connector
#[derive(Debug)]
pub(crate) struct Acceptor {
    state: State,
    decoder: Decoder,
    output: Vec<u8>,
    cookie: Cookie,
    time_limit: Duration,
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    AwaitingHello,
    /// The client is known; the driver decides the plan and makes its queue pairs.
    Planning,
    AwaitingEndpoint {
        paths: usize,
        connector_devices: usize,
    },
    /// Both ends are known; the driver moves its queue pairs to RTS.
    Joining,
    Done,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for bytes.
    Wait,
    /// Decide on the paths with this client and make the own ends, then call
    /// [`Acceptor::planned`].
    Plan(Box<Party>),
    /// Connect the own ends to these, then call [`Acceptor::joined`].
    Join(Box<Endpoint>),
    /// The connection stands as soon as the output is sent.
    Done,
}

impl Acceptor {
    /// Waits for a client that knows `cookie`.
    pub(crate) fn new(cookie: Cookie, now: Instant, time_limit: Duration) -> Self {
        Self {
            state: State::AwaitingHello,
            decoder: Decoder::default(),
            output: Vec::new(),
            cookie,
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
            State::AwaitingHello => match self.decoder.next()? {
                None => Ok(Step::Wait),
                Some(Message::Hello(hello)) => {
                    // Whoever does not know the cookie learns nothing.
                    if !same(&hello.cookie, &self.cookie) {
                        return Err(Invalid("a wrong cookie").into());
                    }
                    self.enter(State::Planning, now);
                    Ok(Step::Plan(Box::new(hello.party)))
                }
                Some(_) => Err(Invalid("a message out of turn").into()),
            },
            State::AwaitingEndpoint {
                paths,
                connector_devices,
            } => match self.decoder.next()? {
                None => Ok(Step::Wait),
                Some(Message::Endpoint(endpoint)) => {
                    if endpoint.queue_pairs.len() != paths {
                        return Err(Invalid("a number of queue pairs that was not agreed").into());
                    }
                    if endpoint.ring.rkeys.len() != connector_devices {
                        return Err(
                            Invalid("a number of rkeys that is not that of its devices").into()
                        );
                    }
                    self.enter(State::Joining, now);
                    Ok(Step::Join(Box::new(endpoint)))
                }
                Some(other) => Err(unexpected(other)),
            },
            State::Planning | State::Joining => Ok(Step::Wait),
            State::Done => Ok(Step::Done),
        }
    }

    /// The driver has made its ends of the paths. `connector_devices` is the number of devices
    /// that the client offered.
    pub(crate) fn planned(&mut self, plan: Plan, connector_devices: usize, now: Instant) {
        let paths = plan.paths.len();
        encode(&Message::Plan(plan), &mut self.output);
        self.enter(
            State::AwaitingEndpoint {
                paths,
                connector_devices,
            },
            now,
        );
    }

    /// The driver's queue pairs are ready to send and receive.
    pub(crate) fn joined(&mut self) {
        encode(&Message::Ready, &mut self.output);
        self.state = State::Done;
    }

    /// Tells the client why there will be no connection.
    pub(crate) fn refuse(&mut self, reason: &impl ToString) {
        encode(&Message::refusal(reason), &mut self.output);
    }

    /// Bytes for the client.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// When to give up, unless there is progress.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the client has shown the cookie. Until then it may be anybody.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self.state, State::AwaitingHello)
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

/// Compares without telling by the time it takes how much is right.
fn same(one: &Cookie, other: &Cookie) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |difference, (a, b)| difference | (a ^ b))
        == 0
}
