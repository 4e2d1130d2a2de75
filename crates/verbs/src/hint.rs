//! What usually causes an errno, by the operation that it answers.

use std::borrow::Cow;

use crate::access::Access;
use crate::memlock::LockedMemory;
use crate::operation::Operation;
use crate::qp_state::QueuePairState;

/// What usually causes that errno. None if nothing does.
pub(crate) fn hint(operation: &Operation, errno: i32) -> Option<Cow<'static, str>> {
    if matches!(errno, libc::ENOMEM | libc::EAGAIN)
        && let Some(limits) = limits(operation)
    {
        return Some(memory(limits));
    }
    particular(operation, errno)
        .or_else(|| general(errno))
        .map(Cow::Borrowed)
}

/// The attributes of the device that bound this kind of object, all of which is pinned memory.
fn limits(operation: &Operation) -> Option<&'static str> {
    match operation {
        Operation::AllocatePd => Some("max_pd"),
        Operation::CreateCq { .. } => Some("max_cq and max_cqe"),
        Operation::CreateQp { .. } => Some("max_qp, max_qp_wr and max_sge, and its inline size"),
        Operation::Register { .. } | Operation::RegisterDmabuf { .. } => {
            Some("max_mr and max_mr_size")
        }
        _ => None,
    }
}

fn memory(limits: &'static str) -> Cow<'static, str> {
    match LockedMemory::of_this_process().limit {
        Some(bytes) => Cow::Owned(format!(
            "the limit of locked memory, `ulimit -l`, which is {} KiB in this process; or the \
             device's {limits}",
            bytes / 1024
        )),
        None => Cow::Owned(format!("the device's {limits}")),
    }
}

fn particular(operation: &Operation, errno: i32) -> Option<&'static str> {
    use QueuePairState as State;
    Some(match (operation, errno) {
        (Operation::ListDevices, libc::EACCES | libc::EPERM) => {
            "no permission to read /sys/class/infiniband"
        }
        (Operation::OpenDevice, libc::EACCES | libc::EPERM) => {
            "no permission for /dev/infiniband/uverbs*"
        }
        (Operation::OpenDevice, libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            "the module ib_uverbs is not loaded, or this container was not given \
             /dev/infiniband/uverbs*"
        }
        (Operation::InitFork, libc::EINVAL) => "memory was registered before",
        (Operation::InitFork, libc::ENOSYS) => "the kernel does not support MADV_DONTFORK",
        (Operation::QueryPort { .. } | Operation::QueryPortSpeed { .. }, libc::EINVAL) => {
            "the device has no such port; they count from 1"
        }
        (Operation::QueryGid { .. } | Operation::QueryPkey { .. }, libc::EINVAL | libc::ENOENT) => {
            "the port does not exist, or its table has no such index"
        }
        (
            Operation::AllocatePd | Operation::CreateCq { .. } | Operation::CreateQp { .. },
            libc::EINVAL | libc::E2BIG,
        ) => "more was asked for than the device allows",
        // The commonest slip, which no answer of a system names.
        (
            Operation::Register { access, .. } | Operation::RegisterDmabuf { access, .. },
            libc::EINVAL | libc::EACCES | libc::EPERM,
        ) if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE) =>
        {
            "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE, too"
        }
        (Operation::RegisterDmabuf { .. }, libc::EBADF) => "the descriptor is not an open DMA-BUF",
        (Operation::RegisterDmabuf { .. }, libc::EINVAL) => {
            "the region exceeds the DMA-BUF, or offset and address differ within a page"
        }
        (
            Operation::RegisterDmabuf { .. },
            libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT,
        ) => "the kernel (before 5.12) or the driver cannot register DMA-BUFs",
        (Operation::Register { .. } | Operation::RegisterDmabuf { .. }, libc::EFAULT) => {
            "the range is not wholly mapped, or it is device memory and no peer-memory module is \
             loaded"
        }
        (Operation::Register { .. }, libc::EINVAL) => {
            "the device does not support these access flags, or the range exceeds its max_mr_size"
        }
        (
            Operation::Register { .. } | Operation::RegisterDmabuf { .. },
            libc::EACCES | libc::EPERM,
        ) => "the memory is mapped read-only, but writing was asked for",
        (Operation::Deregister { .. }, libc::EBUSY) => {
            "something that was made from it still exists"
        }
        (Operation::ModifyQp { to, .. }, errno) => match (*to, errno) {
            (State::INIT, libc::EINVAL) => {
                "the queue pair is not in RESET, or there is no such port or P_Key index, or the \
                 device does not support these access flags"
            }
            (State::RTR, libc::EINVAL) => {
                "the queue pair is not in INIT, or the GID index is empty or its GID was replaced, \
                 or the path MTU exceeds the port's active MTU, or max_dest_rd_atomic exceeds the \
                 device's max_qp_rd_atom, or (Soft-RoCE) there is no route to the peer's GID"
            }
            (State::RTR, libc::ENODATA) => {
                "the GID index is empty: its address was removed from the network interface"
            }
            (State::RTR, libc::ETIMEDOUT) => {
                "the peer's address was not resolved: it is down, has no such address, or is not \
                 reachable from the network interface of this GID"
            }
            (State::RTR, libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                "there is no route to the peer's GID from the network interface of this GID"
            }
            (State::RTR, libc::ENODEV) => "the network interface of this GID is gone or down",
            (State::RTS, libc::EINVAL) => {
                "the queue pair is not in RTR, or max_rd_atomic exceeds the device's \
                 max_qp_init_rd_atom"
            }
            (_, libc::ENOMEM) => "the device or the kernel is out of memory",
            (_, libc::EINVAL) => "its present state does not allow it",
            _ => return None,
        },
        _ => return None,
    })
}

fn general(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EMFILE => Some("too many open files, see `ulimit -n`"),
        libc::EIO | libc::ENODEV => Some("the device was removed or reset, or its driver unloaded"),
        _ => None,
    }
}
