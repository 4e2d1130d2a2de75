//! [`Error`]: what went wrong, on which device, and what usually causes it.

use std::fmt;
use std::io;

use crate::hint::hint;
use crate::operation::Operation;

/// A verb that failed, or that was not called because of its arguments.
///
/// The text says what was being done, on what, what the system answered, and what usually
/// causes that answer. [`errno`](Self::errno) gives the bare number.
#[derive(Debug)]
pub struct Error {
    /// What was being done.
    pub operation: Operation,
    /// The device, by the kernel's name. Empty if none is concerned.
    pub device: String,
    /// What the system answered. An argument that no device could accept has
    /// [`io::ErrorKind::InvalidInput`], and a function that the library or the driver lacks
    /// [`io::ErrorKind::Unsupported`]; both then have no errno in here.
    pub source: io::Error,
}

impl Error {
    /// An argument that no device could accept. No verb was called.
    pub(crate) fn invalid(operation: Operation, device: &str, problem: impl Into<String>) -> Self {
        Self {
            operation,
            device: device.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidInput, problem.into()),
        }
    }

    /// The library or the driver has no such function.
    pub(crate) fn unsupported(operation: Operation, device: &str, missing: &str) -> Self {
        let problem = format!("this libibverbs or driver lacks {missing}");
        Self {
            operation,
            device: device.to_owned(),
            source: io::Error::new(io::ErrorKind::Unsupported, problem),
        }
    }

    /// The errno that the system answered with, if it gave one, or would have answered with.
    pub fn errno(&self) -> Option<i32> {
        let by_kind = || match self.source.kind() {
            io::ErrorKind::InvalidInput => Some(libc::EINVAL),
            io::ErrorKind::Unsupported => Some(libc::EOPNOTSUPP),
            _ => None,
        };
        self.source.raw_os_error().or_else(by_kind)
    }

    /// Whether the operation is not there at all, rather than failed this time.
    pub fn is_unsupported(&self) -> bool {
        self.errno().is_some_and(is_unsupported)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            device,
            source,
        } = self;
        if !device.is_empty() {
            write!(f, "{device}: ")?;
        }
        write!(f, "{operation} failed: {source}")?;
        let errno = source.raw_os_error();
        match errno.and_then(|errno| hint(operation, errno)) {
            Some(cause) => write!(f, " (usually: {cause})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The errnos by which libibverbs, the kernel and drivers say that they lack a function.
pub(crate) fn is_unsupported(errno: i32) -> bool {
    matches!(
        errno,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT
    )
}
