//! What a behaviour is: what the specification says, how it is observed, what must come out, and
//! where Soft-RoCE is known to differ.

use std::fmt;

use ibnet_verbs::{EventType, PostError, QueuePairState, WcOpcode, WcStatus};

use crate::rig::Stage;

/// Why a behaviour could not be observed at all.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// What was observed, in the order in which [`Behaviour::says`] tells it.
pub(crate) type Observed = Result<Vec<Outcome>, Failure>;

/// One thing that adapters have in common.
pub(crate) struct Behaviour {
    /// Unique, as a test is named.
    pub(crate) name: &'static str,
    /// What it needs.
    pub(crate) place: Place,
    /// The section of the InfiniBand Architecture Specification, volume 1, or the manual page.
    pub(crate) section: &'static str,
    /// What is demanded there.
    pub(crate) says: &'static str,
    /// Makes it happen.
    pub(crate) observe: fn(&Stage) -> Observed,
    /// What must come out: on every device, simulated ones included.
    pub(crate) expected: &'static [Outcome],
    /// What comes out on Soft-RoCE instead.
    pub(crate) rxe: Option<Deviation>,
}

/// Where a behaviour is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On one device.
    Device,
    /// Between two ends: of one device, and of a pair of devices.
    Connection,
}

/// How a device is known to differ.
pub(crate) struct Deviation {
    /// What comes out there.
    pub(crate) observed: &'static [Outcome],
    /// Why.
    pub(crate) reason: &'static str,
}

/// Something that was observed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A call succeeded.
    Accepted,
    /// A call failed with this errno.
    Errno(i32),
    /// A call failed. Which errno it gives is not specified.
    Failed,
    /// A work request, named by its identifier, completed.
    Ended(u64, WcStatus),
    /// What a successful completion was of.
    Opcode(WcOpcode),
    /// The immediate of a successful completion.
    Immediate(Option<u32>),
    /// A queue pair is in this state.
    State(QueuePairState),
    /// An asynchronous event came.
    Event(EventType),
    /// Nothing came in the time that was given.
    Nothing,
    /// A count or a length.
    Number(u64),
    /// Whether something holds.
    Is(bool),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Errno(errno) => match errno_name(*errno) {
                Some(name) => f.write_str(name),
                None => write!(f, "errno {errno}"),
            },
            Self::Failed => f.write_str("refused"),
            Self::Ended(wr_id, status) => {
                let status = status.to_string();
                write!(f, "{wr_id}: {}", status.trim_start_matches("IBV_WC_"))
            }
            Self::Opcode(opcode) => write!(f, "{opcode}"),
            Self::Immediate(None) => f.write_str("no immediate"),
            Self::Immediate(Some(value)) => write!(f, "immediate {value:#x}"),
            Self::State(state) => write!(f, "{state}"),
            Self::Event(kind) => write!(f, "{kind}"),
            Self::Nothing => f.write_str("nothing"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Is(true) => f.write_str("yes"),
            Self::Is(false) => f.write_str("no"),
        }
    }
}

fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EBADF => "EBADF",
        libc::EBUSY => "EBUSY",
        libc::EFAULT => "EFAULT",
        libc::EINVAL => "EINVAL",
        libc::EIO => "EIO",
        libc::ENOENT => "ENOENT",
        libc::ENOMEM => "ENOMEM",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => return None,
    })
}

/// Outcomes as one line.
pub(crate) fn list(outcomes: &[Outcome]) -> String {
    let texts: Vec<_> = outcomes.iter().map(Outcome::to_string).collect();
    texts.join(", ")
}

/// An error that may have an errno.
pub(crate) trait Refusal {
    fn errno(&self) -> Option<i32>;
}

impl Refusal for ibnet_verbs::Error {
    fn errno(&self) -> Option<i32> {
        Self::errno(self)
    }
}

impl Refusal for PostError {
    fn errno(&self) -> Option<i32> {
        Self::errno(self)
    }
}

/// How a call ended. What it gave is dropped.
pub(crate) fn answer<T, E: Refusal>(result: Result<T, E>) -> Outcome {
    match result.map_err(|error| error.errno()) {
        Ok(_) => Outcome::Accepted,
        Err(Some(errno)) => Outcome::Errno(errno),
        Err(None) => Outcome::Failed,
    }
}

/// How a call ended that fails with no errno in particular.
pub(crate) fn success<T, E>(result: Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Accepted,
        Err(_) => Outcome::Failed,
    }
}

/// How a bare C function ended that returns an errno.
pub(crate) fn returned(errno: i32) -> Outcome {
    match errno {
        0 => Outcome::Accepted,
        errno => Outcome::Errno(errno),
    }
}
