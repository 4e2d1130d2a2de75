//! The connecting end of the handshake.

use std::time::{Duration, Instant};

use crate::handle::Cookie;
use crate::handshake::message::{
    DeviceOffer, Endpoint, Hello, Invalid, Message, Party, Plan, Wishes,
};
use crate::handshake::session::{Failure, Machine, Session, unexpected};
use crate::pairing::obstacle;

/// The state machine of the end that connects.
#[derive(Debug)]
pub(crate) struct Connector {
    state: State,
    session: Session,
    /// The own devices, as they were offered.
    devices: Vec<DeviceOffer>,
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
    /// Make the own ends of the paths, then call [`Connector::built`].
    Build(Box<Plan>),
    /// The connection stands.
    Done,
}

impl Connector {
    /// Starts by greeting the listener that gave out `cookie`.
    pub(crate) fn new(
        cookie: Cookie,
        party: Party,
        wishes: Wishes,
        now: Instant,
        time_limit: Duration,
    ) -> Self {
        let devices = party.devices.clone();
        let mut session = Session::new(now, time_limit);
        session.send(&Message::Hello(Hello {
            cookie,
            party,
            wishes,
        }));
        Self {
            state: State::AwaitingPlan,
            session,
            devices,
        }
    }

    /// The driver has made its ends of the paths.
    pub(crate) fn built(&mut self, endpoint: Endpoint, now: Instant) {
        self.session.send(&Message::Endpoint(endpoint));
        self.enter(State::AwaitingReady, now);
    }

    pub(crate) fn into_session(self) -> Session {
        self.session
    }

    /// What can only be checked with the own side known.
    fn check(&self, plan: &Plan) -> Result<(), Invalid> {
        for path in &plan.paths {
            let Some(ours) = self.devices.get(usize::from(path.connector_device)) else {
                return Err(Invalid("a path over a device that was not offered"));
            };
            // The plan has the device: that was checked when it arrived.
            let theirs = &plan.party.devices[usize::from(path.listener_device)];
            if obstacle(ours, theirs).is_some() {
                return Err(Invalid(
                    "a path between ports that cannot talk to each other",
                ));
            }
        }
        Ok(())
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.session.renew(now);
    }
}

impl Machine for Connector {
    type Step = Step;

    fn step(&mut self, now: Instant) -> Result<Option<Step>, Failure> {
        match self.state {
            State::AwaitingPlan => match self.session.next()? {
                None => Ok(None),
                Some(Message::Plan(plan)) => {
                    self.check(&plan)?;
                    self.enter(State::Building, now);
                    Ok(Some(Step::Build(Box::new(plan))))
                }
                Some(other) => Err(unexpected(other)),
            },
            State::AwaitingReady => match self.session.next()? {
                None => Ok(None),
                Some(Message::Ready) => {
                    self.state = State::Done;
                    Ok(Some(Step::Done))
                }
                Some(other) => Err(unexpected(other)),
            },
            State::Building => Ok(None),
            State::Done => Ok(Some(Step::Done)),
        }
    }

    fn waiting_for(&self) -> &'static str {
        match self.state {
            State::AwaitingPlan => "the listener's plan",
            State::Building => "the local queue pairs",
            State::AwaitingReady | State::Done => "the listener's queue pairs to be ready",
        }
    }

    fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}
