//! The processor's counter of instructions, where it can be read.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

/// Counts the instructions of this thread in user mode.
pub(super) struct Instructions(File);

impl Instructions {
    /// Starts counting; `None` where there is no counter, as in many virtual machines, or no
    /// permission.
    pub(super) fn start() -> Option<Self> {
        /// The first fields of `struct perf_event_attr`; the rest is zeros.
        #[repr(C)]
        struct Attributes {
            kind: u32,
            size: u32,
            config: u64,
            period: u64,
            sample_type: u64,
            read_format: u64,
            flags: u64,
            rest: [u64; 8],
        }
        const HARDWARE: u32 = 0;
        const INSTRUCTIONS: u64 = 1;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
        let attributes = Attributes {
            kind: HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: INSTRUCTIONS,
            period: 0,
            sample_type: 0,
            read_format: 0,
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            rest: [0; 8],
        };
        let (this_thread, any_processor, no_group, no_flags) = (0, -1, -1, 0);
        // SAFETY: perf_event_open(2) with valid attributes of the given size.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                this_thread,
                any_processor,
                no_group,
                no_flags,
            )
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: a descriptor that was just made, and that has no other owner.
        Some(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// How many there were.
    pub(super) fn stop(mut self) -> Option<u64> {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).ok()?;
        // A counter that was never on the processor says zero.
        Some(u64::from_ne_bytes(count)).filter(|count| *count > 0)
    }
}
