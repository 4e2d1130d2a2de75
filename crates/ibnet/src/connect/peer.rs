//! The other end of a conversation: messages to it and from it, and how long it is waited for.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::connect::control::{Channel, Input, READ_SIZE};
use crate::connect::shared::Shared;
use crate::connect::waits::{Patience, Waits};
use crate::error::Error;
use crate::wire::frame::Decoder;
use crate::wire::message::{Invalid, Message, PeerInfo, printable};

/// The peer, over its socket.
pub(crate) struct Peer {
    channel: Channel,
    decoder: Decoder,
    pub(crate) waits: Waits,
    /// What the conversation is about: "accepting 10.0.0.1:5 on mlx5_0:1".
    doing: String,
    /// How long one message may be waited for, if there is a limit.
    limit: Option<Duration>,
}

impl Peer {
    pub(crate) fn new(
        channel: Channel,
        doing: String,
        limit: Option<Duration>,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            channel,
            decoder: Decoder::default(),
            waits: Waits::new(shared),
            doing,
            limit,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.channel.peer()
    }

    /// The peer is of this protocol and has said who it is: from now on it may take its time, but for the
    /// limit that is set.
    pub(crate) fn recognise(&mut self, info: &PeerInfo, limit: Option<Duration>) {
        self.doing = format!(
            "{} ({}, process {})",
            self.doing,
            printable(&info.host),
            info.process
        );
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
        let mut patience = Patience::new(Instant::now(), self.limit);
        poll_fn(|context| {
            let outcome = match look(self).transpose() {
                Some(outcome) => outcome,
                None => match self.keep_waiting(context, &mut patience, waiting_for) {
                    Ok(()) => return Poll::Pending,
                    Err(error) => Err(error),
                },
            };
            Poll::Ready(outcome)
        })
        .await
    }

    /// What is waited for is not there yet.
    fn keep_waiting(
        &mut self,
        context: &Context<'_>,
        patience: &mut Patience,
        waiting_for: &str,
    ) -> Result<(), Error> {
        let who = || format!("{}: waiting for {waiting_for}", self.doing);
        let until = patience.look(Instant::now(), who)?;
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
            Message::Reject(reject) => printable(&reject.reason),
            Message::Close(_) => "it closed the connection".to_owned(),
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
            let _ = self.send(&Message::reject(error));
        }
    }

    /// The control channel of the connection, and what came on it after the conversation.
    pub(crate) fn into_parts(self) -> (Channel, Decoder) {
        (self.channel, self.decoder)
    }
}

/// The process at the other end, in words.
pub(crate) fn describe_process(info: &PeerInfo, address: SocketAddr) -> String {
    format!(
        "{}, process {}, {address}",
        printable(&info.host),
        info.process
    )
}
