//! The limit of locked memory is spoken of where it binds, and only there: by the real limit of this
//! process and the real capabilities of its threads, on simulated devices that are out of memory.
#![allow(clippy::unwrap_used)]

mod rig;

use std::thread;

use ibnet_simverbs::Limits;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rig::log::Log;
use rig::{build, connection, roce};

const LIMIT: u64 = 64 << 10;

/// What is said at the start, and of a registration that fails.
fn said() -> (String, String) {
    let limits = Limits {
        max_mr: 32,
        ..Limits::default()
    };
    let fabric = build(
        roce("s", 1)
            .chain(roce("r", 1))
            .map(|spec| spec.limits(limits)),
    );
    Log::of_process().take();
    let (_sending, receiving) = connection(&fabric);
    let start = Log::of_process().take().join("\n");
    assert!(start.contains("s0:1"), "{start}");
    let memory = vec![0_u8; 64 << 12];
    let registrar = receiving.registrar();
    let mut regions = Vec::new();
    let error = loop {
        let page = memory.as_ptr().wrapping_add(regions.len() << 12);
        // SAFETY: the memory lives longer than its registrations.
        match unsafe { registrar.register(page.cast_mut(), 1) } {
            Ok(region) => regions.push(region),
            Err(error) => break error,
        }
    };
    drop(regions);
    (start, error.to_string())
}

/// Takes CAP_IPC_LOCK from the calling thread, and tells whether it had it (capset(2)).
fn drop_capability() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 1 << 14;
    let mut header = [VERSION_3, 0];
    // Effective, permitted and inheritable ones, first of the lower 32.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the calling thread's own; the arguments are as the man page says.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    assert_eq!(result, 0);
    let had = sets[0][0] & CAP_IPC_LOCK != 0;
    sets[0][0] &= !CAP_IPC_LOCK;
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    assert_eq!(result, 0);
    had
}

#[test]
fn the_limit_of_locked_memory_is_spoken_of_only_where_it_binds() {
    let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
    setrlimit(Resource::RLIMIT_MEMLOCK, LIMIT, hard).unwrap();

    let with_capability = thread::spawn(said).join().unwrap();
    let (had, without) = thread::spawn(|| (drop_capability(), said()))
        .join()
        .unwrap();
    let (start, error) = without;
    assert!(
        start.contains("limit of locked memory is 64 KiB"),
        "{start}"
    );
    assert!(error.contains("ulimit -l`, which is 64 KiB"), "{error}");
    assert!(error.contains("limit 65536"), "{error}");

    let uid_map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let is_host = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    if !had || !is_host {
        eprintln!("CAP_IPC_LOCK of the host is not there: only its absence is tested");
        return;
    }
    let (start, error) = with_capability;
    for text in [&start, &error] {
        assert!(
            !text.contains("ulimit") && !text.contains("locked memory"),
            "{text}"
        );
    }
    assert!(
        error.contains("(max_mr) is used up") || error.contains("max_mr"),
        "{error}"
    );
}
