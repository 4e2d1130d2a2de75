//! What both ends of a connection have in common: the paths, the completion queue, the control
//! channel and the latched failure.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::{CompletionQueue, WcStatus, WorkCompletion};

use crate::channel::{Channel, Input, READ_SIZE};
use crate::config::Config;
use crate::device::Device;
use crate::error::Error;
use crate::handshake::frame::Decoder;
use crate::handshake::message::{Closing, DeviceOffer, Message, printable};
use crate::monitor::{Attention, CONTROL, ENDING, Exposed, FATAL, Watch};
use crate::path::{Path, retry_count};
use crate::transport::Inner;

/// Completions to take from the queue at a time.
pub(crate) const POLL_BATCH: usize = 32;

/// How long one source of news waits for the other. After the peer's farewell completions may still
/// arrive: the device may hand over a completion a moment after it acknowledged the data to the
/// peer. After a failed work request the news of the peer's death may: the kernel tears a killed
/// process down piece by piece.
const GRACE: Duration = Duration::from_millis(200);

/// The common part of both ends. The order of the fields is the order of teardown: queue pairs,
/// then their completion queue, then the control channel.
pub(crate) struct Core {
    pub(crate) paths: Vec<Path>,
    cq: CompletionQueue,
    batch: Box<[WorkCompletion; POLL_BATCH]>,
    watch: Watch,
    channel: Channel,
    decoder: Decoder,
    attention: Arc<Attention>,
    /// The peer has left.
    ending: Option<Ending>,
    /// A work request has failed, perhaps because the peer is gone.
    suspicion: Option<Ending>,
    failure: Option<Error>,
    names: Names,
    pub(crate) device: Arc<Device>,
    // Last: it may own the events thread.
    inner: Arc<Inner>,
}

/// What will end the connection, and since when that is known.
struct Ending {
    since: Instant,
    error: Error,
}

impl Ending {
    fn now(error: Error) -> Self {
        Self {
            since: Instant::now(),
            error,
        }
    }
}

/// Both ends, in words, for every error message and log line.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) local: String,
    pub(crate) peer: String,
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.peer)
    }
}

/// What the parts of a new connection are.
pub(crate) struct Parts {
    pub(crate) paths: Vec<Path>,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Channel,
    pub(crate) decoder: Decoder,
    pub(crate) names: Names,
    pub(crate) device: Arc<Device>,
    pub(crate) inner: Arc<Inner>,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Result<Self, Error> {
        let Parts {
            paths,
            cq,
            channel,
            decoder,
            names,
            device,
            inner,
        } = parts;
        let attention = Arc::new(Attention::default());
        let exposed = Exposed {
            device: device.token,
            port: None,
            queue_pairs: paths.iter().map(|path| path.queue_pair.number()).collect(),
            completion_queues: vec![cq.id()],
        };
        let watch = inner
            .monitor
            .watch_connection(channel.stream(), &attention, vec![exposed])?;
        Ok(Self {
            paths,
            cq,
            batch: Box::new([WorkCompletion::default(); POLL_BATCH]),
            watch,
            channel,
            decoder,
            attention,
            ending: None,
            suspicion: None,
            failure: None,
            names,
            device,
            inner,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The error that ended the connection, if one has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether something happened off the hot path. One relaxed load.
    pub(crate) fn needs_attention(&self) -> bool {
        self.attention.bits() != 0
    }

    /// Ends the connection with `error`, unless it has ended before, and gives the error that
    /// ended it.
    #[cold]
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.failure {
            return first.clone();
        }
        // Whoever called gets the error and decides whether it deserves a warning.
        tracing::debug!("the connection ends: {error}");
        self.failure = Some(error.clone());
        if self.ending.is_none() {
            // The peer would only see silence. If it cannot be told, it is gone.
            self.channel.queue_message(&Message::refusal(&error));
            let _ = self.channel.flush();
        }
        // Nothing more may land in memory that the application now believes to be its own.
        for path in &self.paths {
            if let Err(error) = path.queue_pair.to_error() {
                tracing::debug!(%error, "a queue pair of a failed connection");
            }
        }
        error
    }

    /// Takes up to [`POLL_BATCH`] completions. They stay in the batch until the next poll.
    pub(crate) fn poll(&mut self) -> Result<usize, Error> {
        match self.cq.poll(&mut self.batch[..]) {
            Ok(completions) => Ok(completions.len()),
            Err(error) => Err(self.fail(error.into())),
        }
    }

    pub(crate) fn completion(&self, index: usize) -> WorkCompletion {
        self.batch[index]
    }

    /// A work request has failed. The connection will end because of that, unless the control
    /// channel tells within [`GRACE`] that the peer closed or died: then that was the cause, and
    /// what the work request says is but a symptom.
    #[cold]
    pub(crate) fn work_failed(&mut self, completion: &WorkCompletion) {
        if self.suspicion.is_some() || self.ending.is_some() || self.failure.is_some() {
            return;
        }
        let timeout = self.config().timeout;
        let retries = retry_count(self.config(), &self.device);
        let error = Error::Completion {
            connection: format!("{} (queue pair {:#x})", self.names, completion.qp_num()),
            status: completion.status(),
            vendor: completion.vendor_error(),
            hint: hint(completion.status(), timeout, retries),
        };
        self.suspicion = Some(Ending::now(error));
        self.attention.raise(ENDING);
    }

    /// Looks at what the events thread has reported. Returns the peer's farewell when it has just
    /// arrived.
    #[cold]
    pub(crate) fn attend(&mut self) -> Option<Closing> {
        let bits = self.attention.bits();
        if bits & FATAL != 0 {
            let error = Error::DeviceFatal {
                connection: self.names.to_string(),
                device: self.device.label(),
            };
            self.fail(error);
        }
        if bits & CONTROL == 0 || self.ending.is_some() {
            return None;
        }
        // Cleared before reading: what arrives during the read raises it again.
        self.attention.clear(CONTROL);
        let farewell = self.read_control();
        if self.ending.is_some() {
            self.attention.raise(ENDING);
        } else if let Err(error) = self.watch.rearm() {
            self.fail(error);
        }
        farewell
    }

    fn read_control(&mut self) -> Option<Closing> {
        let mut buffer = [0; READ_SIZE];
        loop {
            match self.decoder.next() {
                Ok(None) => {}
                Ok(Some(Message::Closing(closing))) => {
                    let connection = self.names.to_string();
                    self.end(Error::PeerClosed { connection });
                    return Some(closing);
                }
                Ok(Some(Message::Refusal(refusal))) => {
                    let reason = printable(&refusal.reason);
                    let connection = self.names.to_string();
                    self.end(Error::PeerFailed { connection, reason });
                    return None;
                }
                Ok(Some(_)) => {
                    self.end(self.protocol_error("a message out of turn on the control channel"));
                    return None;
                }
                Err(invalid) => {
                    self.end(self.protocol_error(invalid.0));
                    return None;
                }
            }
            let why = match self.channel.read(&mut buffer) {
                Ok(Input::Bytes(count)) => {
                    self.decoder.push(&buffer[..count]);
                    continue;
                }
                Ok(Input::Nothing) => return None,
                Ok(Input::End) => "it closed the control channel without a farewell".to_owned(),
                Err(error) => format!("control channel: {error}"),
            };
            self.end(Error::PeerLost {
                connection: self.names.to_string(),
                why,
            });
            return None;
        }
    }

    fn end(&mut self, error: Error) {
        self.ending = Some(Ending::now(error));
    }

    pub(crate) fn protocol_error(&self, what: &str) -> Error {
        Error::Protocol {
            peer: self.names.peer.clone(),
            what: what.to_owned(),
        }
    }

    /// Fails the connection if it is ending and what was under way has had the time to arrive.
    #[cold]
    pub(crate) fn fail_after_grace(&mut self) -> Result<(), Error> {
        match self.ending.as_ref().or(self.suspicion.as_ref()) {
            Some(ending) if ending.since.elapsed() >= GRACE => {
                let error = ending.error.clone();
                Err(self.fail(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether new requests can be made. Once the peer has left they are refused; those that are
    /// outstanding may still be done, so the connection as a whole does not fail here.
    #[cold]
    pub(crate) fn accepts_requests(&mut self) -> Result<bool, Error> {
        if let Some(ending) = &self.ending {
            return Err(ending.error.clone());
        }
        self.fail_after_grace()?;
        Ok(self.suspicion.is_none())
    }

    /// Says farewell and stops the queue pairs. What remains is dropped in the order of the fields.
    ///
    /// Everything is attempted; the first error is returned. The peer may be gone already, which is
    /// no error.
    pub(crate) fn close(&mut self, parts_taken: Vec<u64>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for path in &self.paths {
            if let Err(error) = path.queue_pair.to_error() {
                tracing::debug!(%error, "closing {}", self.names);
                if outcome.is_ok() && self.failure.is_none() {
                    outcome = Err(error.into());
                }
            }
        }
        if self.ending.is_none() && self.failure.is_none() {
            self.channel
                .queue_message(&Message::Closing(Closing { parts_taken }));
            // A few bytes into an empty socket buffer: they fit, or the peer has stopped reading.
            if let Err(error) = self.channel.flush() {
                tracing::debug!(%error, "farewell to {}", self.names.peer);
            }
        }
        outcome
    }
}

/// What usually causes a completion status.
fn hint(status: WcStatus, timeout: u8, retries: u8) -> String {
    if status == WcStatus::RETRY_EXC_ERR {
        // The last try also waits for its answer.
        let seconds =
            4.096e-6 * f64::from(1_u32 << u32::from(timeout).min(31)) * (f64::from(retries) + 1.0);
        format!(
            "the peer did not answer for about {seconds:.1} s ({retries} retries, \
             NCCL_IB_RETRY_CNT, with time-out {timeout}, NCCL_IB_TIMEOUT); its process died, a link is down, or the two GIDs \
             cannot reach each other"
        )
    } else if status == WcStatus::REM_ACCESS_ERR || status == WcStatus::REM_INV_REQ_ERR {
        "the peer does not allow the access: its memory was deregistered or is smaller than said"
            .to_owned()
    } else if status == WcStatus::LOC_PROT_ERR {
        "local memory was deregistered or unmapped while in use".to_owned()
    } else if status == WcStatus::WR_FLUSH_ERR {
        "the queue pair was stopped by an earlier error or by closing".to_owned()
    } else if status == WcStatus::RNR_RETRY_EXC_ERR {
        "the peer had no receive posted".to_owned()
    } else {
        "see the device's manual".to_owned()
    }
}

/// Describes one end: device, GID or LID.
pub(crate) fn describe(offer: &DeviceOffer) -> String {
    use crate::handshake::message::Link;
    let name = printable(&offer.name);
    match offer.link {
        Link::Ethernet => {
            let gid = offer.gid();
            let address = gid
                .ipv4_mapped()
                .map_or_else(|| gid.to_string(), |v4| v4.to_string());
            format!("{name}:{} GID {}={address}", offer.port, offer.gid_index)
        }
        Link::InfiniBand => format!("{name}:{} LID {}", offer.port, offer.lid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_told_in_seconds() {
        let text = hint(WcStatus::RETRY_EXC_ERR, 20, 7);
        assert!(text.contains("34.4 s"), "{text}");
    }
}
