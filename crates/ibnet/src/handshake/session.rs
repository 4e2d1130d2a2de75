//! What both state machines have: the bytes in, the bytes out and the deadline.

use std::time::{Duration, Instant};

use crate::handshake::frame::{Decoder, encode};
use crate::handshake::message::{Invalid, Message, printable};
use crate::owned::later;

/// A state machine that a driver feeds with bytes and asks for the next thing to do.
///
/// Feed it with what was read, then ask [`step`](Self::step) until it gives nothing. Send what
/// [`Session::take_output`] gives. Give up after [`Session::deadline`].
pub(crate) trait Machine {
    /// What the driver has to do.
    type Step;

    /// The next thing to do; `None` if more bytes are needed, or what was asked for is not done.
    fn step(&mut self, now: Instant) -> Result<Option<Self::Step>, Failure>;

    /// What is being waited for, in words.
    fn waiting_for(&self) -> &'static str;

    fn session(&mut self) -> &mut Session;
}

/// Why a handshake ends without a connection.
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

/// The byte streams of one handshake, and when to give up.
#[derive(Debug)]
pub(crate) struct Session {
    decoder: Decoder,
    output: Vec<u8>,
    time_limit: Duration,
    deadline: Instant,
}

impl Session {
    pub(crate) fn new(now: Instant, time_limit: Duration) -> Self {
        Self {
            decoder: Decoder::default(),
            output: Vec::new(),
            time_limit,
            deadline: later(now, time_limit),
        }
    }

    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// The next whole message of the peer.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Invalid> {
        self.decoder.next()
    }

    pub(crate) fn send(&mut self, message: &Message) {
        encode(message, &mut self.output);
    }

    /// Tells the peer why there will be no connection.
    pub(crate) fn refuse(&mut self, reason: &impl ToString) {
        self.send(&Message::refusal(reason));
    }

    /// Bytes for the peer.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// When to give up, unless there is progress.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How long each state may take.
    pub(crate) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// A new state has its own deadline.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.deadline = later(now, self.time_limit);
    }

    /// Bytes that came after the handshake belong to the control channel.
    pub(crate) fn into_decoder(self) -> Decoder {
        self.decoder
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
