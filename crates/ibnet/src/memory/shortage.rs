//! [`Shortage`]: which limit a registration has probably hit when the system says ENOMEM.

use std::fmt;

use ibnet_verbs::LockedMemory;

/// Why there may be no memory for a registration: what was wanted, what is held, and every limit that
/// is known. Its text says which of them it was, as far as can be told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Bytes that were to be registered.
    pub(crate) wanted: u64,
    /// Registrations that the cache holds.
    pub(crate) live: u64,
    /// Their bytes.
    pub(crate) live_bytes: u64,
    /// What this process may pin and has pinned.
    pub(crate) process: LockedMemory,
    /// Registrations that the device can hold: `max_mr` of `ibv_query_device(3)`.
    pub(crate) max_mr: u64,
    /// Bytes of the largest registration: `max_mr_size`.
    pub(crate) max_mr_size: u64,
}

impl Shortage {
    fn cause(&self) -> &'static str {
        let pinned = self.process.pinned.unwrap_or(self.live_bytes);
        let needed = pinned.saturating_add(self.wanted);
        if self.wanted > self.max_mr_size {
            "the device's largest registration (max_mr_size) is exceeded"
        } else if self.live >= self.max_mr {
            "the device's number of registrations (max_mr) is used up"
        } else if self.process.limit.is_some_and(|limit| needed > limit) {
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
        let used = |used: Option<u64>| match used {
            Some(used) => used.to_string(),
            None => "unknown".to_owned(),
        };
        write!(
            f,
            "{}: {} bytes wanted; pinned {}, locked {}",
            self.cause(),
            self.wanted,
            used(self.process.pinned),
            used(self.process.locked),
        )?;
        if let Some(limit) = self.process.limit {
            write!(f, ", limit {limit} (ulimit -l)")?;
        }
        write!(
            f,
            "; cached: {} registrations of {} bytes; device: max_mr {}, max_mr_size {}",
            self.live, self.live_bytes, self.max_mr, self.max_mr_size,
        )
    }
}

#[cfg(test)]
mod tests {
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
            max_mr: 100,
            max_mr_size: 1 << 30,
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
        let mut unbound = shortage(3 << 20, 5);
        unbound.process.limit = None;
        let text = unbound.to_string();
        assert!(text.starts_with("no limit known"), "{text}");
        assert!(!text.contains("ulimit"), "{text}");
    }
}
