//! The processor time that this process has used.

use std::io;
use std::time::Duration;

/// Of all threads together.
///
/// # Errors
/// The system has no such clock.
///
/// See also: clock_gettime(2).
pub(crate) fn processor_time() -> io::Result<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the argument is a place for the result.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = processor_time().unwrap();
        while processor_time().unwrap() < before + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
    }
}
