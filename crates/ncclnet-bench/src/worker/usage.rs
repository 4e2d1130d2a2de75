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

/// Bytes of memory that are resident: counted, where the kernel does that (since 4.14). What
/// `/proc/self/status` says is off by up to 64 pages for each thread.
pub(super) fn memory() -> Result<u64> {
    const COUNTED: &str = "/proc/self/smaps_rollup";
    const ESTIMATED: &str = "/proc/self/status";
    if let Some(bytes) = std::fs::read_to_string(COUNTED)
        .ok()
        .and_then(|text| resident(&text, "Rss:"))
    {
        return Ok(bytes);
    }
    let text = std::fs::read_to_string(ESTIMATED).map_err(|source| Error::System {
        what: "reading /proc/self/status",
        source,
    })?;
    resident(&text, "VmRSS:").ok_or_else(|| Error::Refused(format!("{ESTIMATED} has no VmRSS")))
}

/// The number of a line that begins with `name`, in bytes.
fn resident(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let status = "Name:\tx\nVmRSS:\t    1234 kB\n";
        assert_eq!(resident(status, "VmRSS:"), Some(1234 * 1024));
        let rollup = "0-1 ---p 0 00:00 0    [rollup]\nRss:    5 kB\nPss:   3 kB\n";
        assert_eq!(resident(rollup, "Rss:"), Some(5 * 1024));
        assert_eq!(resident("Name:\tx\n", "VmRSS:"), None);
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
