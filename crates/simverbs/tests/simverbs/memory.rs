//! Registering memory: plain, at another address, from a DMA-BUF; and surviving fork.

use std::ffi::CString;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, OptionalFunction};
use ibnet_verbs::sys::ibv_access_flags;
use ibnet_verbs::{
    Access, Error, ForkStatus, MemoryRegion, ProtectionDomain, RemoteAddress, SendRequest, WcStatus,
};

use crate::pairs::{LENGTH, Memory, Pair, Setup, in_both_modes, open_all, two_roce};

const WRITABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

fn domain(device: DeviceSpec) -> (Fabric, ProtectionDomain) {
    let fabric = Fabric::builder().device(device).build().unwrap();
    let pd = open_all(&fabric).remove(0).allocate_pd().unwrap();
    (fabric, pd)
}

fn errno(result: Result<MemoryRegion, Error>) -> Option<i32> {
    result.err().unwrap().errno()
}

/// A file in memory, which stands in for a DMA-BUF.
fn file(length: usize) -> OwnedFd {
    let name = CString::new("simverbs-test").unwrap();
    // SAFETY: the name is a valid string; the descriptor is new and has no other owner.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, length as libc::off_t), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

#[test]
fn access_flags_are_checked() {
    let (_fabric, pd) = domain(DeviceSpec::roce("sim0"));
    let memory = Memory::new(64);
    // SAFETY: the memory outlives the region.
    let register = |access| unsafe { pd.register(memory.as_ptr(), 64, access) };
    for good in [
        Access::empty(),
        WRITABLE,
        Access::REMOTE_READ,
        WRITABLE | Access::RELAXED_ORDERING,
    ] {
        register(good).unwrap();
    }
    assert_eq!(errno(register(Access::REMOTE_WRITE)), Some(libc::EINVAL));
    assert_eq!(errno(register(Access::REMOTE_ATOMIC)), Some(libc::EINVAL));
    assert_eq!(
        errno(register(WRITABLE | Access::MW_BIND)),
        Some(libc::EINVAL)
    );
}

/// The trap of the C macro: relaxed ordering must not go by the plain function.
#[test]
fn the_plain_function_refuses_optional_flags() {
    let (fabric, pd) = domain(DeviceSpec::roce("sim0"));
    let memory = Memory::new(64);
    let relaxed = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0 | 1;
    let functions = *fabric.library().functions();
    // SAFETY: the domain exists, and the memory outlives the call.
    let region = unsafe {
        (functions.reg_mr)(
            pd.as_raw(),
            memory.as_ptr().cast(),
            64,
            relaxed.cast_signed(),
        )
    };
    assert!(region.is_null());
}

#[test]
fn a_region_can_have_another_address_for_the_device() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let register = fabric.library().functions().reg_mr_iova2.unwrap();
        let iova = 0x7000_0000_0000 + b.memory.address() % 4096;
        // SAFETY: the domain exists, and the memory outlives the region.
        let register = |iova| unsafe {
            register(
                b.pd.as_raw(),
                b.memory.as_ptr().cast(),
                LENGTH,
                iova,
                WRITABLE.bits(),
            )
        };
        // Both have to lie in a page at the same place.
        assert!(register(iova + 1).is_null());
        let region = register(iova);
        assert!(!region.is_null());
        a.memory.write(0, b"elsewhere");
        let remote = RemoteAddress {
            address: iova + 50,
            // SAFETY: the region exists.
            rkey: unsafe { (*region).rkey },
        };
        a.send(&mut [SendRequest::write(1, a.sge(0, 9), remote).signaled()])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(b.memory.read(50..59), b"elsewhere");
        let deregister = fabric.library().functions().dereg_mr;
        // SAFETY: the region exists, and is used for the last time.
        assert_eq!(unsafe { deregister(region) }, 0);
    });
}

#[test]
fn a_dmabuf_is_written_through_its_own_mapping() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let fd = file(3 * 4096);
        let iova = 0x5000_0000_0010;
        // SAFETY: the file is kept until the region is gone.
        let region = unsafe {
            b.pd.register_dmabuf(4096 + 16, 4096, iova, fd.as_fd(), WRITABLE)
        };
        let region = region.unwrap();
        a.memory.write(0, b"device memory");
        let remote = RemoteAddress {
            address: region.address() + 4,
            rkey: region.rkey(),
        };
        a.send(&mut [SendRequest::write(1, a.sge(0, 13), remote).signaled()])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        drop(region);
        let mut found = [0_u8; 13];
        // SAFETY: the descriptor is open, and the buffer as long as said.
        let read = unsafe {
            use std::os::fd::AsRawFd;
            libc::pread(fd.as_raw_fd(), found.as_mut_ptr().cast(), 13, 4096 + 20)
        };
        assert_eq!((read, &found), (13, b"device memory"));
    });
}

#[test]
fn a_dmabuf_that_is_none_is_refused() {
    let (_fabric, pd) = domain(DeviceSpec::roce("sim0"));
    let fd = file(4096);
    // SAFETY: the file is kept until the region is gone.
    let register = |offset, length, iova| unsafe {
        pd.register_dmabuf(offset, length, iova, fd.as_fd(), WRITABLE)
    };
    register(0, 4096, 0).unwrap();
    assert_eq!(errno(register(0, 4097, 0)), Some(libc::EINVAL));
    assert_eq!(errno(register(4096, 1, 0)), Some(libc::EINVAL));
    assert_eq!(errno(register(1, 1, 0)), Some(libc::EINVAL));
}

/// How programs find out whether DMA-BUFs are supported: by a descriptor that is none.
#[test]
fn offset_and_address_of_a_dmabuf_lie_in_a_page_at_the_same_place() {
    let (fabric, pd) = domain(DeviceSpec::roce("sim0"));
    let register = fabric.library().functions().reg_dmabuf_mr.unwrap();
    let fd = file(2 * 4096);
    // SAFETY: the domain exists; nothing is registered. (The verbs crate checks this, too.)
    let region = unsafe {
        use std::os::fd::AsRawFd;
        register(pd.as_raw(), 0, 4096, 8, fd.as_raw_fd(), 0)
    };
    assert!(region.is_null());
}

#[test]
fn support_for_dmabufs_can_be_probed() {
    for (device, expected) in [
        (DeviceSpec::roce("sim0"), libc::EBADF),
        (DeviceSpec::roce("sim0").without_dmabuf(), libc::EOPNOTSUPP),
    ] {
        let (fabric, pd) = domain(device);
        let register = fabric.library().functions().reg_dmabuf_mr.unwrap();
        // SAFETY: the domain exists; nothing is registered.
        assert!(unsafe { register(pd.as_raw(), 0, 4096, 0, -1, 0) }.is_null());
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(expected)
        );
    }
}

#[test]
fn fork_can_be_prepared_for_before_memory_is_registered() {
    let build = || two_roce().fork_matters().build().unwrap();
    let fabric = build();
    let library = fabric.library();
    assert_eq!(library.fork_status(), ForkStatus::Disabled);
    library.init_fork().unwrap();
    assert_eq!(library.fork_status(), ForkStatus::Enabled);
    library.init_fork().unwrap();

    let late = Pair::of(build(), &Setup::default());
    let library = late.fabric.library();
    assert_eq!(library.init_fork().unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!(library.fork_status(), ForkStatus::Disabled);

    // Where nothing is to be done it is nevertheless refused when it comes too late, unless it was
    // done before.
    let setup = Setup::default();
    let modern = Pair::of(two_roce().build().unwrap(), &setup);
    let library = modern.fabric.library();
    assert_eq!(library.fork_status(), ForkStatus::Unneeded);
    assert_eq!(library.init_fork().unwrap_err().errno(), Some(libc::EINVAL));
    let early = two_roce().build().unwrap();
    let library = early.library();
    library.init_fork().unwrap();
    let _pair = Pair::of(early, &setup);
    library.init_fork().unwrap();
    assert_eq!(library.fork_status(), ForkStatus::Unneeded);
    let old = two_roce()
        .without(OptionalFunction::IsForkInitialized)
        .build()
        .unwrap();
    assert_eq!(old.library().fork_status(), ForkStatus::NotReported);
}

/// When deregistering returns, the memory may be unmapped: no copy may be under way.
#[test]
fn deregistering_waits_for_copies() {
    let big = 8 << 20;
    let pair = Pair::free_running(&Setup::default());
    let Pair { a, b, .. } = &pair;
    for round in 0..20 {
        let target = Memory::new(big);
        let source = Memory::new(big);
        // SAFETY: both are freed after their regions are gone.
        let (from, to) = unsafe {
            (
                a.pd.register(source.as_ptr(), big, Access::empty())
                    .unwrap(),
                b.pd.register(target.as_ptr(), big, WRITABLE).unwrap(),
            )
        };
        source.write(0, &[round + 1; 64]);
        let sge = ibnet_verbs::Sge {
            address: from.address(),
            length: big as u32,
            lkey: from.lkey(),
        };
        let remote = RemoteAddress {
            address: to.address(),
            rkey: to.rkey(),
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                a.send(&mut [SendRequest::write(1, Some(sge), remote).signaled()])
                    .unwrap();
            });
            thread::sleep(Duration::from_micros(200 * u64::from(round)));
            to.deregister().unwrap();
            // Freed while nothing writes to it any more; a sanitizer would tell otherwise.
            drop(target);
        });
        match a.outcomes()[..] {
            [(1, WcStatus::SUCCESS)] => {}
            [(1, WcStatus::REM_ACCESS_ERR)] => {
                // Deregistered before the write began: both ends start anew.
                for (own, peer) in [(a, b), (b, a)] {
                    while own.context.next_event().unwrap().is_some() {}
                    own.qp.to_reset().unwrap();
                    own.connect_to(peer, &Setup::default()).unwrap();
                }
            }
            ref other => panic!("{other:?}"),
        }
    }
    pair.finish();
}
