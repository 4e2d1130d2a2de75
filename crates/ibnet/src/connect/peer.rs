//! The other end of a conversation: messages to it and from it, and how long it is waited for.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::channel::{Channel, Input, READ_SIZE};
use crate::connect::waits::Waits;
use crate::error::Error;
use crate::handshake::frame::Decoder;
use crate::handshake::message::{Invalid, Message, Party, printable};
use crate::owned::later;
use crate::transport::Inner;

/// After so long a wait is reported for the first time; each further time after twice as long.
const FIRST_REPORT: Duration = Duration::from_secs(10);

/// The peer, over its socket.
pub(crate) struct Peer {
    channel: Channel,
    decoder: Decoder,
    pub(crate) waits: Waits,
    /// What the conversation is about: "accepting 10.0.0.1:5 on mlx5_0:1".
    doing: String,
    /// How long one message may be waited for, if there is a limit.
    limit: Option<Duration>,
    reports: Reports,
}

impl Peer {
    pub(crate) fn new(
        channel: Channel,
        doing: String,
        limit: Option<Duration>,
        inner: &Arc<Inner>,
    ) -> Self {
        Self {
            channel,
            decoder: Decoder::default(),
            waits: Waits::new(inner),
            doing,
            limit,
            reports: Reports::new(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.channel.peer()
    }

    /// Changes how long one message may be waited for.
    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Hands `message` to the system, as far as that takes it now; the rest goes with the next call.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Error> {
        self.channel.queue_message(message);
        self.flush().map(drop)
    }

    /// Waits until the system has taken all that was sent.
    pub(crate) async fn sent(&mut self) -> Result<(), Error> {
        self.until("the last bytes to be sent", |peer| {
            Ok(peer.flush()?.then_some(()))
        })
        .await
    }

    /// Waits for a message, which is `waiting_for` in words.
    pub(crate) async fn receive(&mut self, waiting_for: &'static str) -> Result<Message, Error> {
        self.until(waiting_for, |peer| peer.next(waiting_for)).await
    }

    /// Waits until `look` gives something, for no longer than the limit.
    async fn until<T>(
        &mut self,
        waiting_for: &'static str,
        look: impl Fn(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        poll_fn(|context| {
            let outcome = match look(self).transpose() {
                Some(outcome) => outcome,
                None => match self.keep_waiting(context, waiting_for, began) {
                    Ok(()) => return Poll::Pending,
                    Err(error) => Err(error),
                },
            };
            Poll::Ready(outcome)
        })
        .await
    }

    /// What is waited for is not there yet: reports it now and then, and has the caller woken.
    fn keep_waiting(
        &mut self,
        context: &Context<'_>,
        waiting_for: &str,
        began: Instant,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let end = self.limit.map(|limit| later(began, limit));
        if let (Some(limit), Some(end)) = (self.limit, end)
            && now >= end
        {
            return Err(Error::Timeout {
                doing: format!("{}, waiting for {waiting_for}", self.doing),
                seconds: limit.as_secs(),
            });
        }
        if self.reports.is_due(now) {
            tracing::info!(
                "{}: waiting since {} s for {waiting_for}",
                self.doing,
                now.duration_since(began).as_secs()
            );
        }
        let until = end.map_or(self.reports.next, |end| end.min(self.reports.next));
        self.waits
            .for_channel(context, &mut self.channel, Some(until))
    }

    /// The next message, if it is there.
    fn next(&mut self, waiting_for: &str) -> Result<Option<Message>, Error> {
        let mut buffer = [0; READ_SIZE];
        loop {
            self.flush()?;
            match self.decoder.next() {
                Ok(None) => {}
                Ok(Some(message)) => return Ok(Some(message)),
                Err(invalid) => return Err(self.invalid(invalid)),
            }
            match self.channel.read(&mut buffer) {
                Ok(Input::Bytes(count)) => self.decoder.push(&buffer[..count]),
                Ok(Input::Nothing) => return Ok(None),
                Ok(Input::End) => {
                    return Err(Error::PeerLost {
                        connection: self.doing.clone(),
                        why: format!(
                            "it closed the handshake before {waiting_for}; the other end may have given up, \
                             or the handle is not of this listener"
                        ),
                    });
                }
                Err(error) => return Err(Error::socket(self.doing.clone(), error)),
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Error> {
        let flushed = self.channel.flush();
        flushed.map_err(|error| Error::socket(self.doing.clone(), error))
    }

    /// What the peer said is not of this protocol.
    pub(crate) fn invalid(&self, invalid: Invalid) -> Error {
        Error::Protocol {
            peer: self.address().to_string(),
            what: invalid.to_string(),
        }
    }

    /// A message that does not belong here. A refusal can come at any time.
    pub(crate) fn unexpected(&self, message: &Message) -> Error {
        let reason = match message {
            Message::Refusal(refusal) => printable(&refusal.reason),
            Message::Closing(_) => "it closed the connection".to_owned(),
            _ => return self.invalid(Invalid("a message out of turn")),
        };
        Error::Refused {
            peer: self.address().to_string(),
            reason,
        }
    }

    /// Tells the peer why there will be no connection, unless it is the peer that ended it.
    pub(crate) fn refuse(&mut self, error: &Error) {
        tracing::debug!("no connection: {error}");
        if !matches!(
            error,
            Error::Refused { .. } | Error::Socket { .. } | Error::PeerLost { .. }
        ) {
            let _ = self.send(&Message::refusal(error));
        }
    }

    /// The control channel of the connection, and what came on it after the conversation.
    pub(crate) fn into_parts(self) -> (Channel, Decoder) {
        (self.channel, self.decoder)
    }
}

/// When a wait is reported.
pub(crate) struct Reports {
    next: Instant,
    pause: Duration,
}

impl Reports {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::now() + FIRST_REPORT,
            pause: FIRST_REPORT,
        }
    }

    /// Whether a report is due; then the next one is later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.pause *= 2;
        self.next = now + self.pause;
        true
    }

    pub(crate) fn next(&self) -> Instant {
        self.next
    }
}

/// The process at the other end, in words.
pub(crate) fn describe_process(party: &Party, address: SocketAddr) -> String {
    format!(
        "{}, process {}, {address}",
        printable(&party.host),
        party.process
    )
}
