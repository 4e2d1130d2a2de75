//! [`Shortage`]: which limit a registration has probably hit when the system says ENOMEM.

use std::fmt;
use std::fs;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Why there may be no memory for a registration: what was wanted, what is held, and every limit that
/// is known. Its text says which of them it was, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Bytes that were to be registered.
    pub wanted: u64,
    /// Registrations that the cache holds.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// What this process may lock and has locked.
    pub process: LockedMemory,
    /// What the device allows.
    pub device: DeviceLimits,
}

/// The limits of a device, where they are known (`ibv_query_device(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Registrations that the device can hold: `max_mr`.
    pub registrations: Option<u64>,
    /// Bytes of the largest registration: `max_mr_size`.
    pub bytes: Option<u64>,
}

/// What a process may lock in memory and has locked. Registered memory is pinned, which the kernel
/// counts apart from what was locked with `mlock`, and holds against the same limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockedMemory {
    /// Bytes that may be locked (`RLIMIT_MEMLOCK`, `ulimit -l`). None if that is unlimited or could
    /// not be found out.
    pub limit: Option<u64>,
    /// Bytes that are pinned for devices (`VmPin` of `/proc/self/status`).
    pub pinned: Option<u64>,
    /// Bytes that are locked (`VmLck`).
    pub locked: Option<u64>,
}

impl LockedMemory {
    /// Of this process, now.
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK)
            .ok()
            .map(|(soft, _)| soft)
            .filter(|soft| *soft != RLIM_INFINITY);
        Self {
            limit,
            pinned: field(&status, "VmPin:"),
            locked: field(&status, "VmLck:"),
        }
    }
}

/// Bytes of a line such as `VmPin:      16 kB`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

impl Shortage {
    fn cause(&self) -> &'static str {
        let exceeds = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used > limit);
        let pinned = self.process.pinned.unwrap_or(self.live_bytes);
        if exceeds(self.wanted, self.device.bytes) {
            "the device's largest registration (max_mr_size) is exceeded"
        } else if exceeds(self.live.saturating_add(1), self.device.registrations) {
            "the device's number of registrations (max_mr) is used up"
        } else if exceeds(pinned.saturating_add(self.wanted), self.process.limit) {
            "the limit of locked memory is exceeded; raise it with `ulimit -l`, LimitMEMLOCK= of \
             systemd or --ulimit memlock= of the container"
        } else {
            "no limit known here is exceeded; the kernel, the memory cgroup or the device may be out of \
             memory, or other processes use the device's registrations up"
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<u64>| match limit {
            Some(limit) => limit.to_string(),
            None => "unlimited or unknown".to_owned(),
        };
        let used = |used: Option<u64>| match used {
            Some(used) => used.to_string(),
            None => "unknown".to_owned(),
        };
        write!(
            f,
            "{}: {} bytes wanted; locked memory: limit {} bytes, pinned {}, locked {}; cached: {} \
             registrations of {} bytes; device: max_mr {}, max_mr_size {}",
            self.cause(),
            self.wanted,
            limit(self.process.limit),
            used(self.process.pinned),
            used(self.process.locked),
            self.live,
            self.live_bytes,
            limit(self.device.registrations),
            limit(self.device.bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PROCESS: LockedMemory = LockedMemory {
        limit: Some(8 << 20),
        pinned: Some(6 << 20),
        locked: Some(0),
    };

    fn shortage(wanted: u64, live: u64) -> Shortage {
        Shortage {
            wanted,
            live,
            live_bytes: 6 << 20,
            process: PROCESS,
            device: DeviceLimits {
                registrations: Some(100),
                bytes: Some(1 << 30),
            },
        }
    }

    #[test]
    fn the_limit_that_was_hit_is_named_with_its_numbers() {
        let text = shortage(3 << 20, 5).to_string();
        assert!(text.starts_with("the limit of locked memory"), "{text}");
        for number in ["3145728", "8388608", "6291456", "max_mr 100", "5 reg"] {
            assert!(text.contains(number), "{number} in {text}");
        }
        let text = shortage(1, 100).to_string();
        assert!(text.contains("(max_mr) is used up"), "{text}");
        let text = shortage(2 << 30, 5).to_string();
        assert!(text.contains("(max_mr_size) is exceeded"), "{text}");
        let text = shortage(1 << 20, 5).to_string();
        assert!(text.starts_with("no limit known"), "{text}");
    }

    #[test]
    fn the_process_is_read() {
        let memory = LockedMemory::of_this_process();
        assert!(memory.pinned.is_some() && memory.locked.is_some());
        assert_eq!(field("VmPin:\t      16 kB\n", "VmPin:"), Some(16384));
        assert_eq!(field("VmPin:\t 99999999999999999999 kB\n", "VmPin:"), None);
        assert_eq!(field("", "VmPin:"), None);
    }
}
