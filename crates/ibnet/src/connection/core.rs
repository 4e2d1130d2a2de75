//! What both ends of a connection have: the paths, the completion queues, the control channel, and
//! the error that ended it.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use ibnet_verbs::{CompletionQueue, WorkCompletion};

use crate::config::Config;
use crate::connect::control::{Channel, Input, READ_SIZE};
use crate::connect::established::{Established, QueuePairs};
use crate::connect::names::{Names, describe};
use crate::connect::queue_pair::retry_count;
use crate::connect::recipe::Recipe;
use crate::connect::shared::Shared;
use crate::connection::path::Path;
use crate::connection::path_recovery::Recovery;
use crate::device::Device;
use crate::device::nic::Nic;
use crate::error::{Error, Failed, hint};
use crate::events::{CONTROL, ENDING, EventFlags, FATAL, Interest, PORT, Resources, Timer, Watch};
use crate::wire::frame::Decoder;
use crate::wire::message::{Close, DeviceOffer, Message, PathEvent, PathNews, printable};

/// How long one source of news waits for the other. After the peer's Close completions may still
/// arrive: the device may hand over a completion a moment after it acknowledged the data to the
/// peer. After a failed work request the news of the peer's death may: the kernel tears a killed
/// process down piece by piece.
const GRACE: Duration = Duration::from_millis(200);

/// How often an end that waits goes on with the recovery of a path.
const RECOVERY_TICK: Duration = Duration::from_millis(5);

/// The common part of both ends. The order of the fields is the order of teardown: queue pairs,
/// then their completion queues, then the control channel.
pub(crate) struct Core {
    pub(crate) paths: Vec<Path>,
    /// Of a receiver, one for each device, which leads back to it: see [`crate::connection::flush`].
    pub(crate) loops: Vec<Path>,
    /// One for each device.
    pub(crate) cqs: Vec<CompletionQueue>,
    /// How a queue pair is made again.
    pub(crate) recipe: Recipe,
    /// What has become of each path.
    pub(super) recoveries: Vec<Recovery>,
    /// Polls that brought nothing.
    fruitless_polls: u32,
    /// Since when there has been no live path.
    pub(crate) cut_off: Option<Instant>,
    watch: Watch,
    channel: Channel,
    decoder: Decoder,
    flags: Arc<EventFlags>,
    /// The peer has left.
    ending: Option<Ending>,
    /// A work request has failed, perhaps because the peer is gone.
    suspicion: Option<Ending>,
    failure: Option<Error>,
    notifies: bool,
    /// For the end of the grace, if it is waited for.
    timer: Option<Timer>,
    names: Names,
    pub(crate) nic: Arc<Nic>,
    // Last: it may own the events thread.
    shared: Arc<Shared>,
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

impl Core {
    pub(crate) fn new(established: Established) -> Result<Self, Error> {
        let Established {
            queue_pairs:
                QueuePairs {
                    paths,
                    loops,
                    cqs,
                    recipe,
                },
            mut channel,
            decoder,
            names,
            nic,
            shared,
        } = established;
        let paths: Vec<Path> = paths
            .into_iter()
            .map(|new| Path::new(new, recipe.receives()))
            .collect();
        let loops: Vec<Path> = loops.into_iter().map(|new| Path::new(new, 0)).collect();
        // The control channel is watched anew, for the connection.
        channel.stop_listening();
        if !shared.config.recovery_timeout.is_zero() {
            channel
                .outlive(shared.config.recovery_timeout)
                .map_err(|error| {
                    Error::socket("setting the time-outs of a control channel", error)
                })?;
        }
        let flags = Arc::new(EventFlags::default());
        let exposed = exposed(&nic, &cqs, &paths, &loops);
        let watch = shared
            .events
            .watch_connection(channel.stream(), &flags, exposed)?;
        if !decoder.is_empty() {
            // It came with the last of the handshake: the socket will not tell of it again.
            flags.raise(CONTROL);
        }
        Ok(Self {
            notifies: cqs.iter().all(|cq| cq.channel().is_some()),
            recoveries: paths.iter().map(|_| Recovery::new()).collect(),
            fruitless_polls: 0,
            cut_off: None,
            recipe,
            paths,
            loops,
            cqs,
            watch,
            channel,
            decoder,
            flags,
            ending: None,
            suspicion: None,
            failure: None,
            timer: None,
            names,
            nic,
            shared,
        })
    }

    pub(crate) fn device(&self, index: usize) -> &Device {
        &self.nic.members()[index]
    }

    /// Pairs of devices that paths lead over.
    pub(crate) fn pairs(&self) -> usize {
        let distinct: std::collections::HashSet<_> = self.names.paths.iter().collect();
        distinct.len()
    }

    /// Why a connection over device `index` cannot go on, if that is so.
    pub(crate) fn obstacle(&self, index: usize) -> Option<String> {
        self.device(index).is_down(&self.names.local[index])
    }

    /// Device `index` has another address than before.
    pub(crate) fn rename(&mut self, index: usize, offer: &DeviceOffer) {
        self.names.local[index].clone_from(offer);
    }

    /// Has events of the queue pairs that there are now told of.
    pub(crate) fn watch_queue_pairs(&self) {
        let exposed = exposed(&self.nic, &self.cqs, &self.paths, &self.loops);
        self.watch.expose(exposed);
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Whether this process is a forked child of the one that has the connection.
    pub(crate) fn is_inherited(&self) -> bool {
        self.flags.is_inherited()
    }

    /// The error that ended the connection, if one has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_inherited() {
            return Err(Error::Forked);
        }
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Called after a poll that brought nothing: whether it is worth to look at the clock.
    #[inline]
    pub(crate) fn is_time_to_look(&mut self) -> bool {
        self.fruitless_polls = self.fruitless_polls.wrapping_add(1);
        self.fruitless_polls.is_multiple_of(4096)
    }

    /// Whether the connection has failed or is about to.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some() || self.suspicion.is_some() || self.failure.is_some()
    }

    /// Whether something happened off the hot path.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.flags.is_needed()
    }

    /// Whether completions wake who waits for them.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies
    }

    /// Has `waker` woken, once, at whatever is news to this connection: a completion, something on
    /// the control channel, a fatal event. What came earlier does not count: look once more after
    /// this call.
    pub(crate) fn listen(&mut self, waker: &Waker) -> Result<(), Error> {
        self.flags.wake_later(waker);
        let asked = self.cqs.iter().map(|cq| cq.request_notification(false));
        let asked: Result<(), _> = asked.collect();
        asked.map_err(|error| self.fail(error.into()))
    }

    /// Whether a path is not live, or what it had has not been sent again.
    pub(crate) fn is_recovering(&self) -> bool {
        self.flags.bits() & ENDING != 0
    }

    /// Has who waits woken when the connection is declared to have failed, if it is ending.
    pub(crate) fn listen_to_the_end(&mut self) -> Result<(), Error> {
        let end = match self.ending.as_ref().or(self.suspicion.as_ref()) {
            Some(ending) => ending.since + GRACE,
            None if self.is_recovering() => Instant::now() + RECOVERY_TICK,
            None => return Ok(()),
        };
        let events = &self.shared.events;
        self.timer
            .get_or_insert_with(|| events.timer(&self.flags))
            .set(end)
    }

    /// Ends the connection with `error`, unless it has ended before, and gives the error that
    /// ended it.
    #[cold]
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.failure {
            return first.clone();
        }
        // Every later call looks, and finds it.
        self.flags.raise(ENDING);
        // The caller gets the error and decides whether it deserves a warning.
        tracing::debug!("the connection ends: {error}");
        self.failure = Some(error.clone());
        if self.ending.is_none() {
            // The peer would only see silence. If it cannot be told, it is gone.
            self.channel.queue_message(&Message::reject(&error));
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

    /// Ends the connection because `source` was not wholly posted: some of it may be under way, so
    /// that the connection cannot go on.
    #[cold]
    pub(crate) fn post_failed(&mut self, source: ibnet_verbs::PostError) -> Error {
        self.fail(Error::Post {
            connection: self.names.to_string(),
            source: Arc::new(source),
        })
    }

    /// Takes completions of device `device`, as many as there are and `batch` has room for.
    #[inline(always)]
    pub(super) fn poll<'b>(
        &mut self,
        device: usize,
        batch: &'b mut [MaybeUninit<WorkCompletion>],
    ) -> Result<&'b [WorkCompletion], Failed> {
        match self.cqs[device].poll_uninit(batch) {
            Ok(completions) => Ok(completions),
            Err(error) => Err(self.fail(error.into()).into()),
        }
    }

    /// A work request has failed. The connection will end because of that, unless the control
    /// channel tells within [`GRACE`] that the peer closed or died: then that was the cause, and
    /// what the work request says is but a symptom.
    #[cold]
    pub(crate) fn work_failed(&mut self, device: usize, completion: &WorkCompletion) {
        if self.is_ending() {
            return;
        }
        // The opcode and the length of a failed completion mean nothing; these do.
        let number = completion.qp_num();
        let path = self.path_of(device, completion);
        let ends = match path.and_then(|path| self.names.paths.get(path)) {
            Some(pair) => self.names.of(*pair),
            // The queue pair with which a receiver reads back what it received.
            None => format!("{} to itself", describe(&self.names.local[device])),
        };
        let retries = retry_count(self.config(), self.device(device));
        let lost_address = self.device(device).lost_address(&self.names.local[device]);
        let error = Error::Completion {
            connection: format!("{ends}, queue pair {number:#x}"),
            status: completion.status(),
            vendor: completion.vendor_error(),
            hint: lost_address.unwrap_or_else(|| {
                hint(completion.status(), self.config().ack_exponent(), retries)
            }),
        };
        self.suspicion = Some(Ending::now(error));
        self.flags.raise(ENDING);
    }

    /// The path whose queue pair a failed work request of device `device` was posted to.
    pub(crate) fn path_of(&self, device: usize, completion: &WorkCompletion) -> Option<usize> {
        // Numbers are of their device: another one may have the same.
        self.paths.iter().position(|path| {
            path.device == device && path.queue_pair.number() == completion.qp_num()
        })
    }

    /// The next thing that the peer has said, or `None` when nothing is left to look at. What ends the
    /// connection is noted.
    #[cold]
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        let bits = self.flags.bits();
        if bits & FATAL != 0 {
            let error = Error::DeviceFatal {
                connection: self.names.to_string(),
                device: self.hit_devices(),
            };
            self.fail(error);
        }
        if bits & CONTROL == 0 || self.ending.is_some() {
            return None;
        }
        // Cleared before reading: what arrives during the read raises it again.
        self.flags.clear(CONTROL);
        let message = self.read_control();
        if self.ending.is_some() {
            self.flags.raise(ENDING);
        } else if message.is_some() {
            // There may be more.
            self.flags.raise(CONTROL);
        } else if let Err(error) = self.watch.arm(Interest::Read) {
            self.fail(error);
        }
        message
    }

    /// Whether a port of the connection has changed since this was asked last.
    pub(crate) fn take_port_event(&self) -> bool {
        let has_changed = self.flags.bits() & PORT != 0;
        self.flags.clear(PORT);
        has_changed
    }

    /// Says to the peer what has become of a path.
    pub(crate) fn tell(&mut self, path: usize, epoch: u32, event: PathEvent) {
        let path = path as u8;
        self.channel
            .queue_message(&Message::Path(PathNews { path, epoch, event }));
        // What is left goes with the next.
        let _ = self.channel.flush();
    }

    /// Every call looks again as long as something has to be done for a path.
    pub(crate) fn keep_looking(&self) {
        self.flags.raise(ENDING);
    }

    /// Nothing has to be looked at any more, unless the connection is ending.
    pub(crate) fn look_no_more(&self) {
        if !self.is_ending() {
            self.flags.clear(ENDING);
        }
    }

    /// The devices of this connection that fatal events have named.
    fn hit_devices(&self) -> String {
        let hits = self.watch.fatal();
        let members = self.nic.members().iter();
        let hit: Vec<String> = members
            .filter(|device| hits.iter().any(|hit| hit.device == device.token))
            .map(|device| device.label())
            .collect();
        if hit.is_empty() {
            self.nic.info().name.clone()
        } else {
            hit.join(", ")
        }
    }

    fn read_control(&mut self) -> Option<Message> {
        let mut buffer = [0; READ_SIZE];
        loop {
            match self.decoder.next() {
                Ok(None) => {}
                Ok(Some(message @ Message::Path(_))) => return Some(message),
                Ok(Some(closing @ Message::Close(_))) => {
                    let connection = self.names.to_string();
                    self.end(Error::PeerClosed { connection });
                    return Some(closing);
                }
                Ok(Some(Message::Reject(reject))) => {
                    let reason = printable(&reject.reason);
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
                Ok(Input::End) => {
                    "it closed the control channel without a Close message".to_owned()
                }
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
            peer: self.names.peer(),
            what: what.to_owned(),
        }
    }

    /// A message of `length` bytes that was not sent, because its buffer has `capacity`.
    #[cold]
    pub(crate) fn too_long(&self, length: u32, capacity: u32) -> Error {
        Error::MessageTooLong {
            connection: self.names.to_string(),
            length: length as usize,
            capacity: capacity as usize,
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

    /// Whether the peer has sent its Close and the connection has not failed of it yet.
    pub(crate) fn peer_has_closed(&self) -> bool {
        let ending = self.ending.as_ref().map(|ending| &ending.error);
        matches!(ending, Some(Error::PeerClosed { .. }))
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

    /// As [`accepts_requests`](Self::accepts_requests), for what the peer has no part in: what has
    /// arrived can be flushed after it has left. Such a request gets as much time as those that were
    /// under way then.
    #[cold]
    pub(crate) fn accepts_local_requests(&mut self) -> Result<bool, Error> {
        if let Some(ending) = &mut self.ending {
            ending.since = Instant::now();
            return Ok(true);
        }
        self.fail_after_grace()?;
        Ok(self.suspicion.is_none())
    }

    /// Sends Close and stops the queue pairs. What remains is dropped in the order of the fields.
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
                .queue_message(&Message::Close(Close { parts_taken }));
            // A few bytes into an empty socket buffer: they fit, or the peer has stopped reading.
            if let Err(error) = self.channel.flush() {
                tracing::debug!(%error, "sending Close to {}", self.names.peer());
            }
        }
        outcome
    }
}

/// By which events a connection over these can be hit.
fn exposed(nic: &Nic, cqs: &[CompletionQueue], paths: &[Path], loops: &[Path]) -> Vec<Resources> {
    nic.members()
        .iter()
        .zip(cqs)
        .enumerate()
        .map(|(index, (device, cq))| Resources {
            device: device.token,
            port: Some(device.info.port),
            queue_pairs: paths
                .iter()
                .chain(loops)
                .filter(|path| path.device == index)
                .map(|path| path.queue_pair.number())
                .collect(),
            completion_queues: vec![cq.id()],
        })
        .collect()
}
