//! What usually causes an errno, per kind of operation. Appended to the texts of errors.

use std::fmt;
use std::io;

use crate::memlock::LockedMemory;
use crate::qp_state::{QueuePairState, Transition};

/// A cause to append to an error's text, or nothing.
pub(crate) enum Hint {
    None,
    Usually(&'static str),
    /// The device's limits of that name, or that of locked memory, if there is one.
    Memory(&'static str),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Usually(cause) => write!(f, " (usually: {cause})"),
            Self::Memory(limits) => match LockedMemory::of_this_process().limit {
                Some(bytes) => write!(
                    f,
                    " (usually: the limit of locked memory, `ulimit -l`, which is {} KiB in this \
                     process; or the device's {limits})",
                    bytes / 1024
                ),
                None => write!(f, " (usually: the device's {limits})"),
            },
        }
    }
}

pub(crate) fn list_devices(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Hint::Usually("no permission to read /sys/class/infiniband")
        }
        _ => Hint::None,
    }
}

pub(crate) fn open(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Hint::Usually("no permission for /dev/infiniband/uverbs*")
        }
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Hint::Usually(
            "the module ib_uverbs is not loaded, or this container was not given \
             /dev/infiniband/uverbs*",
        ),
        Some(libc::EMFILE) => Hint::Usually("too many open files, see `ulimit -n`"),
        _ => Hint::None,
    }
}

pub(crate) fn descriptors(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EMFILE) => Hint::Usually("too many open files, see `ulimit -n`"),
        _ => device_gone(error),
    }
}

pub(crate) fn device_gone(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EIO | libc::ENODEV) => {
            Hint::Usually("the device was removed or reset, or its driver unloaded")
        }
        _ => Hint::None,
    }
}

pub(crate) fn port(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Hint::Usually("the device has no such port; they count from 1"),
        _ => device_gone(error),
    }
}

pub(crate) fn index(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOENT) => {
            Hint::Usually("the port does not exist, or its table has no such index")
        }
        _ => device_gone(error),
    }
}

/// `limits` names the device attributes that bound this kind of object.
pub(crate) fn create(error: &io::Error, limits: &'static str) -> Hint {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => Hint::Memory(limits),
        Some(libc::EINVAL | libc::E2BIG) => {
            Hint::Usually("more was asked for than the device allows")
        }
        _ => device_gone(error),
    }
}

pub(crate) fn register(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => Hint::Memory("max_mr and max_mr_size"),
        Some(libc::EFAULT) => Hint::Usually(
            "the range is not wholly mapped, or it is device memory and no peer-memory module is \
             loaded",
        ),
        Some(libc::EINVAL) => Hint::Usually(
            "the device does not support these access flags, or the range exceeds its max_mr_size",
        ),
        Some(libc::EACCES | libc::EPERM) => {
            Hint::Usually("the memory is mapped read-only, but writing was asked for")
        }
        _ => device_gone(error),
    }
}

pub(crate) fn register_dmabuf(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EBADF) => Hint::Usually("the descriptor is not an open DMA-BUF"),
        Some(libc::EINVAL) => Hint::Usually(
            "the region exceeds the DMA-BUF, or offset and address differ within a page",
        ),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT) => {
            Hint::Usually("the kernel (before 5.12) or the driver cannot register DMA-BUFs")
        }
        _ => register(error),
    }
}

pub(crate) fn destroy(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Hint::Usually("something that was made from it still exists"),
        _ => device_gone(error),
    }
}

pub(crate) fn fork(error: &io::Error) -> Hint {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Hint::Usually("memory was registered before"),
        Some(libc::ENOSYS) => Hint::Usually("the kernel does not support MADV_DONTFORK"),
        _ => Hint::None,
    }
}

/// Each step of connecting a queue pair has its own usual mistakes.
pub(crate) fn modify(transition: &Transition, error: &io::Error) -> Hint {
    match (transition.to(), error.raw_os_error()) {
        (QueuePairState::INIT, Some(libc::EINVAL)) => Hint::Usually(
            "the queue pair is not in RESET, or there is no such port or P_Key index, or the \
             device does not support these access flags",
        ),
        (QueuePairState::RTR, Some(libc::EINVAL)) => Hint::Usually(
            "the queue pair is not in INIT, or the GID index is empty or its GID was replaced, or \
             the path MTU exceeds the port's active MTU, or max_dest_rd_atomic exceeds the \
             device's max_qp_rd_atom, or (Soft-RoCE) there is no route to the peer's GID",
        ),
        (QueuePairState::RTR, Some(libc::ENODATA)) => Hint::Usually(
            "the GID index is empty: its address was removed from the network interface",
        ),
        (QueuePairState::RTR, Some(libc::ETIMEDOUT)) => Hint::Usually(
            "the peer's address was not resolved: it is down, has no such address, or is not \
             reachable from the network interface of this GID",
        ),
        (QueuePairState::RTR, Some(libc::EHOSTUNREACH | libc::ENETUNREACH)) => Hint::Usually(
            "there is no route to the peer's GID from the network interface of this GID",
        ),
        (QueuePairState::RTR, Some(libc::ENODEV)) => {
            Hint::Usually("the network interface of this GID is gone or down")
        }
        (QueuePairState::RTS, Some(libc::EINVAL)) => Hint::Usually(
            "the queue pair is not in RTR, or max_rd_atomic exceeds the device's \
             max_qp_init_rd_atom",
        ),
        (_, Some(libc::ENOMEM)) => Hint::Usually("the device or the kernel is out of memory"),
        (_, Some(libc::EINVAL)) => Hint::Usually("its present state does not allow it"),
        _ => device_gone(error),
    }
}
