//! The kinds of things that C holds handles of.

use std::fmt;

/// What a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The context of one NCCL communicator (API version 11 and later).
    Context = 1,
    /// `listenComm`.
    Listener = 2,
    /// `sendComm`.
    Sender = 3,
    /// `recvComm`.
    Receiver = 4,
    /// `mhandle`.
    Region = 5,
    /// Request of `isend`.
    SendRequest = 6,
    /// Request of `irecv`.
    ReceiveRequest = 7,
}

impl Kind {
    pub(super) const fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            1 => Self::Context,
            2 => Self::Listener,
            3 => Self::Sender,
            4 => Self::Receiver,
            5 => Self::Region,
            6 => Self::SendRequest,
            7 => Self::ReceiveRequest,
            _ => return None,
        })
    }

    /// The kind in words, for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Listener => "listening communicator",
            Self::Sender => "sending communicator",
            Self::Receiver => "receiving communicator",
            Self::Region => "memory handle",
            Self::SendRequest => "send request",
            Self::ReceiveRequest => "receive request",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
