//! [`LockedMemory`]: how much memory this process may pin, and has pinned.

use std::fs;

/// What a process may lock in memory and has locked. Registered memory is pinned, which the kernel
/// counts apart from what was locked with mlock(2), and holds against the same limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockedMemory {
    /// Bytes that may be pinned (`RLIMIT_MEMLOCK`, `ulimit -l`). None if nothing bounds them: the
    /// limit is unlimited, or does not hold for this process, which has CAP_IPC_LOCK; or if it is
    /// not known.
    pub limit: Option<u64>,
    /// Bytes that are pinned for devices (`VmPin` of `/proc/thread-self/status`).
    pub pinned: Option<u64>,
    /// Bytes that are locked (`VmLck`).
    pub locked: Option<u64>,
}

impl LockedMemory {
    /// Of this process, now. Capabilities are those of the calling thread, which are what counts
    /// when it registers memory.
    pub fn of_this_process() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/thread-self/status");
        Self::read(&status, &text("/proc/self/uid_map"), soft_limit())
    }

    fn read(status: &str, uid_map: &str, limit: Option<u64>) -> Self {
        let is_exempt = may_lock(status) && is_initial_namespace(uid_map);
        Self {
            limit: limit.filter(|_| !is_exempt),
            pinned: bytes(status, "VmPin:"),
            locked: bytes(status, "VmLck:"),
        }
    }
}

/// `RLIMIT_MEMLOCK` in bytes. None for unlimited.
fn soft_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the argument is a valid place for the limit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Whether CAP_IPC_LOCK is effective (capabilities(7)).
fn may_lock(status: &str) -> bool {
    const CAP_IPC_LOCK: u64 = 14;
    field(status, "CapEff:")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .is_some_and(|mask| mask >> CAP_IPC_LOCK & 1 == 1)
}

/// Whether users are what they are on the host. Elsewhere, as in containers without root, the kernel
/// does not ask for the capability that the process has there (user_namespaces(7)).
fn is_initial_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Bytes of a line such as `VmPin:      16 kB`.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let number = field(status, name)?.strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "         0          0 4294967295\n";

    #[test]
    fn the_limit_does_not_bind_who_may_lock() {
        let limit = |capabilities, uid_map| {
            let status = format!("Name:\tx\nVmPin:\t 16 kB\nCapEff:\t{capabilities}\n");
            LockedMemory::read(&status, uid_map, Some(65536)).limit
        };
        assert_eq!(limit("0000000000004000", HOST), None);
        assert_eq!(limit("000001ffffffffff", HOST), None);
        assert_eq!(limit("0000000000000000", HOST), Some(65536));
        assert_eq!(limit("000001ffffffbfff", HOST), Some(65536));
        // Root in a container without root, which is a user of the host.
        assert_eq!(limit("000001ffffffffff", "0 1000 1\n"), Some(65536));
        // What cannot be read gives no right.
        assert_eq!(limit("what", HOST), Some(65536));
        assert_eq!(limit("000001ffffffffff", ""), Some(65536));
    }

    #[test]
    fn the_process_is_read() {
        let memory = LockedMemory::of_this_process();
        assert!(memory.pinned.is_some() && memory.locked.is_some());
        assert_eq!(bytes("VmPin:\t      16 kB\n", "VmPin:"), Some(16384));
        assert_eq!(bytes("VmPin:\t 99999999999999999999 kB\n", "VmPin:"), None);
        assert_eq!(bytes("", "VmPin:"), None);
    }
}
