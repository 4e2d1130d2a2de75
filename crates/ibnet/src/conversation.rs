//! Moves the bytes of a handshake between its state machine and a socket, without ever waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::assembly::Assembly;
use crate::channel::{Channel, Input, READ_SIZE};
use crate::error::Error;
use crate::handshake::session::{Failure, Machine};
use crate::monitor::{Attention, Monitor};
use crate::need::Need;

/// How often a handshake that takes long says what it waits for.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A handshake over a socket.
pub(crate) struct Conversation<M> {
    pub(crate) machine: M,
    channel: Channel,
    /// What this is about, in words: "accepting 10.0.0.1:5 on mlx5_0:1".
    doing: String,
    began: Instant,
    next_report: Instant,
}

impl<M: Machine> Conversation<M> {
    pub(crate) fn new(machine: M, channel: Channel, doing: String, now: Instant) -> Self {
        Self {
            machine,
            channel,
            doing,
            began: now,
            next_report: now + REPORT_EVERY,
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.channel.peer()
    }

    /// How long it has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Exchanges bytes until the machine wants something done, or nothing more can happen now.
    pub(crate) fn advance(&mut self, now: Instant) -> Result<Option<M::Step>, Error> {
        let mut buffer = [0; READ_SIZE];
        loop {
            self.flush()?;
            let step = self.machine.step(now);
            if let Some(step) = step.map_err(|failure| self.explain(failure))? {
                return Ok(Some(step));
            }
            match self.channel.read(&mut buffer) {
                Ok(Input::Bytes(count)) => {
                    self.machine.session().handle_bytes(&buffer[..count]);
                }
                Ok(Input::Nothing) => return self.check_deadline(now).map(|()| None),
                Ok(Input::End) => {
                    return Err(Error::PeerLost {
                        connection: self.doing.clone(),
                        why: format!(
                            "it closed the handshake before {}; the other end may have given up, \
                             or the handle is not of this listener",
                            self.machine.waiting_for()
                        ),
                    });
                }
                Err(error) => return Err(Error::socket(self.doing.clone(), error)),
            }
        }
    }

    /// Sends what the machine has to say; true when the system has taken all of it.
    pub(crate) fn flush(&mut self) -> Result<bool, Error> {
        let output = self.machine.session().take_output();
        self.channel.queue(output);
        self.channel
            .flush()
            .map_err(|error| Error::socket(self.doing.clone(), error))
    }

    /// An error once this state has taken too long. Says now and then what is being waited for.
    pub(crate) fn check_deadline(&mut self, now: Instant) -> Result<(), Error> {
        let waiting_for = self.machine.waiting_for();
        if now >= self.machine.session().deadline() {
            return Err(Error::Timeout {
                doing: format!("{}, waiting for {waiting_for}", self.doing),
                seconds: self.machine.session().time_limit().as_secs(),
            });
        }
        if now >= self.next_report {
            self.next_report = now + REPORT_EVERY;
            tracing::info!(
                "{}: waiting for {waiting_for} since {} s",
                self.doing,
                now.duration_since(self.began).as_secs()
            );
        }
        Ok(())
    }

    /// What it needs when bytes are awaited.
    pub(crate) fn need(&mut self) -> Need {
        Need {
            socket: true,
            until: self.machine.session().deadline().min(self.next_report),
        }
    }

    /// What it needs while the own ends are made. The socket is left alone, as what comes is not
    /// read now.
    pub(crate) fn need_of_work(&mut self, assembly: &Assembly) -> Need {
        let due = assembly.due().unwrap_or_else(Instant::now);
        Need {
            socket: false,
            until: due.min(self.machine.session().deadline()),
        }
    }

    /// Has `attention` woken when the socket is ready.
    pub(crate) fn listen(
        &mut self,
        monitor: &Monitor,
        attention: &Arc<Attention>,
    ) -> Result<(), Error> {
        self.channel.listen(monitor, attention)
    }

    /// As [`check_deadline`](Self::check_deadline) while the own side works. If a step was `refused`
    /// again and again, that is why it took too long.
    pub(crate) fn check_deadline_of_work(
        &mut self,
        now: Instant,
        refused: Option<Error>,
    ) -> Result<(), Error> {
        self.check_deadline(now)
            .map_err(|timeout| refused.unwrap_or(timeout))
    }

    fn explain(&self, failure: Failure) -> Error {
        let peer = self.peer().to_string();
        match failure {
            Failure::Refused(reason) => Error::Refused { peer, reason },
            Failure::Invalid(invalid) => Error::Protocol {
                peer,
                what: invalid.to_string(),
            },
        }
    }

    /// Tells the peer why there will be no connection, if it can be told.
    pub(crate) fn give_up(mut self, error: &Error) {
        tracing::debug!("no connection: {error}");
        if !matches!(
            error,
            Error::Refused { .. } | Error::Socket { .. } | Error::PeerLost { .. }
        ) {
            self.machine.session().refuse(error);
            let _ = self.flush();
        }
    }

    pub(crate) fn into_parts(self) -> (M, Channel) {
        (self.machine, self.channel)
    }
}
