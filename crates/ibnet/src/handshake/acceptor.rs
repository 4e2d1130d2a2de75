//! The listening end of the handshake, for one client.

use std::time::{Duration, Instant};

use crate::handle::Cookie;
use crate::handshake::message::{Endpoint, Hello, Invalid, Message, Plan};
use crate::handshake::session::{Failure, Machine, Session, unexpected};

/// The state machine of the end that listens.
#[derive(Debug)]
pub(crate) struct Acceptor {
    state: State,
    session: Session,
    cookie: Cookie,
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
    /// Decide on the paths with this client and make the own ends, then call
    /// [`Acceptor::planned`].
    Plan(Box<Hello>),
    /// Connect the own ends to these, then call [`Acceptor::joined`].
    Join(Box<Endpoint>),
    /// The connection stands.
    Done,
}

impl Acceptor {
    /// Waits for a client that knows `cookie`.
    pub(crate) fn new(cookie: Cookie, now: Instant, time_limit: Duration) -> Self {
        Self {
            state: State::AwaitingHello,
            session: Session::new(now, time_limit),
            cookie,
        }
    }

    /// The driver has made its ends of the paths. `connector_devices` is the number of devices
    /// that the client offered.
    pub(crate) fn planned(&mut self, plan: Plan, connector_devices: usize, now: Instant) {
        let paths = plan.paths.len();
        self.session.send(&Message::Plan(plan));
        self.enter(
            State::AwaitingEndpoint {
                paths,
                connector_devices,
            },
            now,
        );
    }

    /// The driver's queue pairs are ready to send and receive.
    pub(crate) fn joined(&mut self, now: Instant) {
        self.session.send(&Message::Ready);
        self.enter(State::Done, now);
    }

    /// Whether the client has shown the cookie. Until then it may be anybody.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self.state, State::AwaitingHello)
    }

    pub(crate) fn into_session(self) -> Session {
        self.session
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.session.renew(now);
    }
}

impl Machine for Acceptor {
    type Step = Step;

    fn step(&mut self, now: Instant) -> Result<Option<Step>, Failure> {
        match self.state {
            State::AwaitingHello => match self.session.next()? {
                None => Ok(None),
                Some(Message::Hello(hello)) => {
                    // Whoever does not know the cookie learns nothing.
                    if !same(&hello.cookie, &self.cookie) {
                        return Err(Invalid("a wrong cookie").into());
                    }
                    self.enter(State::Planning, now);
                    Ok(Some(Step::Plan(Box::new(hello))))
                }
                Some(_) => Err(Invalid("a message out of turn").into()),
            },
            State::AwaitingEndpoint {
                paths,
                connector_devices,
            } => match self.session.next()? {
                None => Ok(None),
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
                    Ok(Some(Step::Join(Box::new(endpoint))))
                }
                Some(other) => Err(unexpected(other)),
            },
            State::Planning | State::Joining => Ok(None),
            State::Done => Ok(Some(Step::Done)),
        }
    }

    fn waiting_for(&self) -> &'static str {
        match self.state {
            State::AwaitingHello => "the client's greeting",
            State::Planning => "the local queue pairs",
            State::AwaitingEndpoint { .. } => "the client's queue pairs",
            State::Joining => "the local queue pairs to be connected",
            State::Done => "the last bytes to be sent",
        }
    }

    fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// Compares without telling by the time it takes how much is right.
fn same(one: &Cookie, other: &Cookie) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |difference, (a, b)| difference | (a ^ b))
        == 0
}
