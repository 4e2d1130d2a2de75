//! [`Bell`]: a descriptor that is readable while something is pending.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::Errno;

/// An eventfd behind a queue. Each change of the queue rings or silences it under the same lock.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: bool,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: the call takes plain numbers. It gives a new descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EMFILE));
        }
        Ok(Self {
            // SAFETY: the descriptor is new, and has no other owner.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            rung: false,
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Makes the descriptor readable. Each call wakes edge-triggered waiters anew.
    pub(crate) fn ring(&mut self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the descriptor is open, and the buffer is as long as said.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        // The write can only fail when the counter is full, and then it is readable anyway.
        self.rung = true;
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn silence(&mut self) {
        if self.rung {
            let mut counter = [0_u8; 8];
            // SAFETY: as above. The counter is not 0 while `rung`, so that this does not wait.
            unsafe { libc::read(self.fd(), counter.as_mut_ptr().cast(), counter.len()) };
            self.rung = false;
        }
    }
}

/// Whether reads from the descriptor are to answer `EAGAIN` instead of waiting.
pub(crate) fn is_non_blocking(fd: RawFd) -> bool {
    // SAFETY: the command takes and gives plain numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags < 0 || flags & libc::O_NONBLOCK != 0
}

/// Waits until the descriptor is readable.
///
/// # Errors
///
/// `EINTR` when a signal came.
pub(crate) fn wait(fd: RawFd) -> Result<(), Errno> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the argument is one valid entry.
    match unsafe { libc::poll(&raw mut poll, 1, -1) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINTR)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        let mut poll = libc::pollfd {
            fd: bell.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the argument is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn readable_exactly_while_rung() {
        let mut bell = Bell::new().unwrap();
        assert!(!is_readable(&bell));
        bell.silence();
        bell.ring();
        bell.ring();
        assert!(is_readable(&bell));
        wait(bell.fd()).unwrap();
        bell.silence();
        assert!(!is_readable(&bell));
        assert!(!is_non_blocking(bell.fd()));
    }
}
