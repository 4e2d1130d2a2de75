//! The one error type of the transport.
//!
//! Errors are cheap to clone, because a connection that failed keeps its error and gives it to
//! every later call.

use std::io;
use std::sync::Arc;

use thiserror::Error;

mod hint;

pub(crate) use hint::hint;

use crate::config::ConfigError;

/// What went wrong. Every message is one line that names what was being done and on what.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// libibverbs cannot be loaded: it is not installed, or too old.
    #[error("the library libibverbs is missing: {0}")]
    LibraryMissing(#[source] ibnet_verbs::LoadError),

    /// libibverbs is there, but no device of it can be used.
    #[error("no usable RDMA device: {reason}")]
    NoDevices {
        /// What was found, and why none of it can be used.
        reason: String,
    },

    /// What a forked child has inherited cannot be used there.
    #[error(
        "this process was forked after the devices were opened: only the process that opened them \
         can use them and what was made with them"
    )]
    Forked,

    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The caller's argument is wrong.
    #[error("{0}")]
    InvalidArgument(String),

    /// The devices cannot become one virtual device.
    #[error("no virtual device: {reason}")]
    Unmergeable {
        /// Which device is in the way, and why.
        reason: String,
    },

    /// The bytes are not a handle that a listener of ours made.
    #[error("not a connection handle: {0}")]
    BadHandle(&'static str),

    /// The request is finished already, or was never made by this connection.
    #[error("request {raw:#x} is not outstanding on this connection")]
    StaleRequest {
        /// The request, as [`RequestId::into_raw`](crate::raw::RequestId::into_raw) gives it.
        raw: u32,
    },

    /// A message is longer than the buffer that was announced for it. Both ends hear of it, and the
    /// connection goes on.
    #[error("{connection}: a message of {length} bytes for a buffer of {capacity}")]
    MessageTooLong {
        /// Both ends.
        connection: String,
        /// Bytes of the message.
        length: usize,
        /// Bytes that the receiver has room for.
        capacity: usize,
    },

    /// The network socket of the handshake failed.
    #[error("{doing}: {source}")]
    Socket {
        /// What was being done, and with whom.
        doing: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },

    /// The operating system refused something that is not a verb or a socket.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },

    /// A verb failed.
    #[error("{0}")]
    Verbs(#[source] Arc<ibnet_verbs::Error>),

    /// Memory could not be registered because some limit is hit.
    #[error("{source}; {limits}")]
    NoMemory {
        /// What the device said.
        #[source]
        source: Arc<ibnet_verbs::Error>,
        /// Which limit it was, as far as can be told, and all the numbers.
        limits: String,
    },

    /// A queue pair could not be connected to the peer's.
    #[error("connecting to {peer}: {source}")]
    Join {
        /// The peer's host, process and address.
        peer: String,
        /// What the device said, with the address of the peer's device.
        #[source]
        source: Arc<ibnet_verbs::Error>,
    },

    /// Posting work to a queue pair failed.
    #[error("{connection}: {source}")]
    Post {
        /// Both ends of the connection.
        connection: String,
        /// What the device said.
        #[source]
        source: Arc<ibnet_verbs::PostError>,
    },

    /// No GID of the port can be used.
    #[error("{device}: {source}")]
    NoGid {
        /// The device and port.
        device: String,
        /// The table, with a verdict on each entry.
        #[source]
        source: Arc<ibnet_gid::NoGid>,
    },

    /// The devices of the two ends cannot talk to each other.
    #[error("{reason}")]
    Unpairable {
        /// The devices of both ends with their addresses, and what is in the way.
        reason: String,
    },

    /// A step of the handshake did not happen in time.
    #[error("{doing}: nothing for {seconds} s (`connect_timeout`); is the peer alive?")]
    Timeout {
        /// What was waited for, and from whom.
        doing: String,
        /// How long.
        seconds: u64,
    },

    /// The peer refused the connection and said why.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// The peer's address.
        peer: String,
        /// Its words, cut to a sane length and with control characters removed.
        reason: String,
    },

    /// The peer sent something that does not belong into the protocol.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// The peer.
        peer: String,
        /// What it sent.
        what: String,
    },

    /// The peer closed the connection while requests were outstanding.
    #[error("{connection}: the peer closed the connection")]
    PeerClosed {
        /// Both ends.
        connection: String,
    },

    /// The peer's end of the connection has failed, and it said why.
    #[error("{connection}: the peer's end failed: {reason}")]
    PeerFailed {
        /// Both ends.
        connection: String,
        /// Its words, cut to a sane length and with control characters removed.
        reason: String,
    },

    /// No path of the connection worked for too long.
    #[error(
        "{connection}: no path could be made to work again for {seconds} s (`recovery_timeout`): {reasons} \
         (usually: the link, or the peer's host, is down)"
    )]
    NotRecovered {
        /// Both ends.
        connection: String,
        /// The last state of each path, and why it went down.
        reasons: String,
        /// The limit.
        seconds: u64,
    },

    /// The peer's process or host is gone.
    #[error("{connection}: the peer is gone ({why}): its process ended or its host is unreachable")]
    PeerLost {
        /// Both ends.
        connection: String,
        /// What was seen on the control channel.
        why: String,
    },

    /// A work request failed in the fabric.
    #[error("{connection}: {status}, vendor error {vendor:#x}: {hint}")]
    Completion {
        /// Both ends.
        connection: String,
        /// The completion status by name.
        status: ibnet_verbs::WcStatus,
        /// The vendor's own code.
        vendor: u32,
        /// What usually causes it.
        hint: String,
    },

    /// The device or the queue pair reported a fatal event.
    #[error("{connection}: fatal event on {device}: the device or its queue pair is unusable")]
    DeviceFatal {
        /// Both ends.
        connection: String,
        /// The device that reported it.
        device: String,
    },
}

/// The broad kind of an [`enum@Error`], for callers that must map it to a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The local system, device or network failed.
    System,
    /// The peer failed or went away.
    Remote,
    /// The caller passed something wrong.
    InvalidArgument,
    /// The user configured something wrong.
    InvalidUsage,
    /// Something did not happen in time.
    Timeout,
}

impl Error {
    /// The broad kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::LibraryMissing(_)
            | Self::NoDevices { .. }
            | Self::Socket { .. }
            | Self::System { .. }
            | Self::Verbs(_)
            | Self::NoMemory { .. }
            | Self::Join { .. }
            | Self::Post { .. }
            | Self::NoGid { .. }
            | Self::DeviceFatal { .. } => ErrorKind::System,
            Self::Refused { .. }
            | Self::Protocol { .. }
            | Self::PeerClosed { .. }
            | Self::PeerFailed { .. }
            | Self::PeerLost { .. }
            | Self::NotRecovered { .. }
            | Self::Completion { .. } => ErrorKind::Remote,
            Self::InvalidArgument(_)
            | Self::BadHandle(_)
            | Self::StaleRequest { .. }
            | Self::MessageTooLong { .. } => ErrorKind::InvalidArgument,
            Self::Config(_) | Self::Forked | Self::Unmergeable { .. } | Self::Unpairable { .. } => {
                ErrorKind::InvalidUsage
            }
            Self::Timeout { .. } => ErrorKind::Timeout,
        }
    }

    pub(crate) fn socket(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Socket {
            doing: doing.into(),
            source: Arc::new(source),
        }
    }

    /// Of a verb that failed while connecting to `peer`.
    pub(crate) fn joining(self, peer: impl FnOnce() -> String) -> Self {
        match self {
            Self::Verbs(source) => Self::Join {
                peer: peer(),
                source,
            },
            other => other,
        }
    }

    pub(crate) fn system(doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            doing,
            source: Arc::new(source.into()),
        }
    }
}

/// An error on the data path: one pointer, so that a result fits into registers. Who returns an
/// [`Error`] itself writes the result to memory, also when all is well, and the caller waits for it.
pub(crate) type Failed = Box<Error>;

impl From<Failed> for Error {
    #[cold]
    fn from(failed: Failed) -> Self {
        *failed
    }
}

impl From<ibnet_verbs::Error> for Error {
    fn from(error: ibnet_verbs::Error) -> Self {
        Self::Verbs(Arc::new(error))
    }
}
