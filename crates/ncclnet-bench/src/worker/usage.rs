//! What this process has used.

use crate::net::{Error, Result};

/// Seconds of processor time, of all threads, in user and kernel mode.
pub(super) fn processor() -> f64 {
    // SAFETY: all zeros are a value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the argument is a place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Seconds of processor time of this thread.
pub(super) fn thread() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the argument is a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Allows this process as many open files as it may have: every connection takes some.
pub(super) fn allow_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the arguments are a place for the limit, and the limit. Should it fail, the network
    // says that there are too few.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Bytes of memory that are resident.
pub(super) fn memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|source| Error::System {
        what: "reading /proc/self/status",
        source,
    })?;
    resident(&text).ok_or_else(|| Error::Refused("/proc/self/status has no VmRSS".to_owned()))
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert_eq!(
            resident("Name:\tx\nVmRSS:\t    1234 kB\n"),
            Some(1234 * 1024)
        );
        assert_eq!(resident("Name:\tx\n"), None);
        assert!(memory().is_ok_and(|bytes| bytes > 1 << 18));
    }

    #[test]
    fn processor_time_passes() {
        let before = processor();
        let mut number = 1_u64;
        while processor() <= before {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }
}
