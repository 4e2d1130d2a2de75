//! Why a value from C is not the object it should be.

use std::fmt;

use super::kind::Kind;

/// A value that C passed cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleError {
    /// It is null.
    Null,
    /// It never was a handle of this plugin.
    Foreign,
    /// It is a handle, but of another kind.
    WrongKind { expected: Expected, found: Kind },
    /// The object was closed, or the request completed.
    Stale,
    /// An earlier call with the object panicked: only closing it is possible.
    Poisoned,
    /// The memory was registered with another communicator.
    OtherOwner,
    /// There is no room for another object of this kind.
    Full(Kind),
}

/// What a handle should have been of. Small, as the whole error is: results fit into registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// One kind of objects.
    Kind(Kind),
    /// A sending or a receiving communicator.
    Communicator,
    /// A request of either.
    Request,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Communicator => f.write_str("sending or receiving communicator"),
            Self::Request => f.write_str("request"),
        }
    }
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("the handle is null"),
            Self::Foreign => f.write_str("the handle is not one that this plugin gave out"),
            Self::WrongKind { expected, found } => {
                write!(f, "the handle is that of a {found}, not of a {expected}")
            }
            Self::Stale => f.write_str("the handle is out of date: its object is closed or done"),
            Self::Poisoned => {
                f.write_str("the object cannot be used after a panic in an earlier call")
            }
            Self::OtherOwner => {
                f.write_str("the memory handle was registered with another communicator")
            }
            Self::Full(kind) => write!(f, "there is no room for another {kind}"),
        }
    }
}
