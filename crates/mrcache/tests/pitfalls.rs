//! The faults of the seeds' registration cache, by their numbers, against this one.
//!
//! Pitfall 57 is also in `src/key.rs`, 58 in `src/request.rs` and 64 in `src/range.rs`. Pitfall 65
//! (a registration used with another device) is a matter of who uses the cache: see
//! `a_domain_is_part_of_the_key` here, and the check of each request in `ibnet::region`.
#![allow(clippy::unwrap_used)]

#[path = "common/ledger.rs"]
mod ledger;
#[path = "common/setup.rs"]
mod setup;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use ibnet_mrcache::{
    Access, Cache, DmaBuf, DomainId, InvalidRange, Lease, LeaseError, Policy, RangeProblem,
    Registration, Request, lease_all, release_all,
};
use ledger::{Refused, Token};
use setup::{PAGE, READ, Setup};

const WRITE: Access = Access {
    rights: 2,
    modes: 0,
};
const RELAXED: Access = Access {
    rights: 1,
    modes: 1 << 20,
};

/// Pitfall 56: deregistering one entry disturbed the order, and others were not found any more.
#[test]
fn pitfall_56_every_order_of_deregistration_leaves_the_others_findable() {
    let setup = Setup::new();
    for stride in [1, 7, 31, 63] {
        let mut leases: Vec<_> = (1..=64)
            .map(|page| Some(setup.lease(setup.host(page * PAGE, 1))))
            .collect();
        for step in 0..64 {
            leases[step * stride % 64] = None;
            for lease in leases.iter().flatten() {
                let again = setup.lease(setup.host(lease.pages().start() + 5, 10));
                assert!(Lease::same_registration(lease, &again));
            }
            let live = leases.iter().flatten().count();
            assert_eq!(setup.ledger.live().len(), live);
        }
    }
}

/// Pitfall 57: the key was an address range and nothing else.
#[test]
fn pitfall_57_everything_that_makes_a_registration_another_is_in_the_key() {
    let setup = Setup::new();
    let (one, two) = (
        DmaBuf::from_identity(9, 1, 1 << 20),
        DmaBuf::from_identity(9, 2, 1 << 20),
    );
    let domain = setup.domain;
    let buffer =
        |buffer, offset| Request::dmabuf(domain, READ, buffer, offset, 0x10_0000, 2 * PAGE);
    let different = [
        setup.host(0x10_0000, 2 * PAGE),
        Request::host(domain, WRITE, 0x10_0000, 2 * PAGE),
        Request::host(domain, RELAXED, 0x10_0000, 2 * PAGE),
        Request::host(DomainId::allocate(), READ, 0x10_0000, 2 * PAGE),
        buffer(one, 0),
        buffer(two, 0),
        buffer(one, PAGE as u64),
        buffer(one, 0).data_direct(true),
    ];
    let leases: Vec<_> = different.map(|request| setup.lease(request)).into();
    assert_eq!(setup.ledger.live().len(), different.len());
    for (request, lease) in different.iter().zip(&leases) {
        assert!(Lease::same_registration(lease, &setup.lease(*request)));
    }
}

/// Pitfall 57: an address that is reused while its old registration is still held hit that one.
#[test]
fn pitfall_57_memory_that_went_is_not_found() {
    let setup = Setup::new();
    let old = setup.lease(setup.host(0x10000, 4 * PAGE));
    let met = setup.cache.invalidate(0x10000 + 3 * PAGE, 1).unwrap();
    assert_eq!((met.live, met.leased), (1, 1));
    let new = setup.lease(setup.host(0x10000, PAGE));
    assert!(!Lease::same_registration(&old, &new));
    assert_eq!(setup.ledger.live().len(), 2);
    // The old one is given back with its last lease.
    old.release().unwrap();
    assert_eq!(setup.ledger.live(), [new.number].into());
}

/// Pitfall 57, where nobody invalidates: a lease on a part outlives that on the whole.
#[test]
fn pitfall_57_a_lease_on_a_part_does_not_keep_the_rest() {
    let setup = Setup::with_policy(Policy::WhileFullyLeased);
    let whole = setup.lease(setup.host(0x10000, 4 * PAGE));
    let part = setup.lease(setup.host(0x10000 + PAGE, 1));
    assert!(Lease::same_registration(&whole, &part));
    // A second lease on the whole keeps it found.
    let second = setup.lease(setup.host(0x10010, 4 * PAGE - 0x10));
    drop(whole);
    assert!(Lease::same_registration(
        &second,
        &setup.lease(setup.host(0x10000, 1))
    ));
    drop(second);
    // The first page may be other memory by now. What the part has keeps working.
    let new = setup.lease(setup.host(0x10000, 1));
    assert!(!Lease::same_registration(&part, &new));
    assert_eq!(setup.ledger.live(), [part.number, new.number].into());
}

/// Pitfall 57: drivers export the same memory with a new inode each time. Who vouches for the memory
/// finds it by its addresses, on the same terms as host memory.
#[test]
fn pitfall_57_a_dmabuf_of_a_user_who_vouches_is_named_by_its_address() {
    let setup = Setup::with_policy(Policy::WhileFullyLeased);
    const START: usize = 0x7f00_0000_0000;
    let export = |inode, offset, address, length| {
        let buffer = DmaBuf::from_identity(9, inode, 1 << 20);
        Request::dmabuf(setup.domain, READ, buffer, offset, address, length).by_address()
    };
    let whole = setup.lease(export(1, 0, START, 16 * PAGE));
    for request in [
        export(2, 0, START, 16 * PAGE),
        export(3, 0, START + 4 * PAGE, 2 * PAGE),
        export(4, 5 * PAGE as u64, START + 4 * PAGE + 1, 100),
    ] {
        assert!(Lease::same_registration(&whole, &setup.lease(request)));
    }
    // Neither of another kind, nor one whose user does not vouch, is the same.
    for other in [
        setup.host(START, PAGE),
        export(1, 0, START, PAGE).data_direct(true),
        Request::dmabuf(
            setup.domain,
            READ,
            DmaBuf::from_identity(9, 1, 1 << 20),
            0,
            START,
            PAGE,
        ),
    ] {
        assert!(!Lease::same_registration(&whole, &setup.lease(other)));
    }
    // A part does not keep the rest found, whose addresses may be other memory's once the whole is
    // given back.
    let part = setup.lease(export(5, 0, START, PAGE));
    drop(whole);
    let new = setup.lease(export(6, 0, START, 2 * PAGE));
    assert!(!Lease::same_registration(&part, &new));
    assert_eq!(setup.ledger.live(), [part.number, new.number].into());
    // Addresses that become other memory's are forgotten.
    let met = setup.cache.invalidate(START + PAGE, 1).unwrap();
    assert_eq!((met.live, met.leased), (1, 1));
}

/// Pitfall 58: the offset in the DMA-BUF did not follow the address when that was rounded down.
#[test]
fn pitfall_58_what_the_registrar_gets_agrees_within_a_page() {
    let setup = Setup::new();
    let buffer = DmaBuf::from_identity(9, 1, 0x10_0000 - 100);
    for within in [0, 1, 0x10, 0xfff] {
        let address = 0x7f00_0000_0000 + within;
        let request = Request::dmabuf(
            setup.domain,
            READ,
            buffer,
            0x3000 + within as u64,
            address,
            0x10_0000 - 0x3000 - 100 - within,
        );
        let lease = setup.cache.lease(&request, |target| {
            let offset = target.offset().unwrap();
            assert_eq!((target.start(), offset), (0x7f00_0000_0000, 0x3000));
            assert_eq!(offset + target.length() as u64, 0x10_0000 - 100);
            Ok(setup.ledger.register())
        });
        drop(lease.unwrap());
    }
    let skewed = Request::dmabuf(setup.domain, READ, buffer, 0, 0x7f00_0000_0010, 100);
    let refused = setup.cache.lease(&skewed, |_| Ok(setup.ledger.register()));
    assert!(matches!(
        refused,
        Err(LeaseError::Range(InvalidRange {
            problem: RangeProblem::Skewed(0),
            ..
        }))
    ));
}

/// Pitfall 59: a failure on device i leaked the registrations with devices 0 to i - 1.
#[test]
fn pitfall_59_a_failure_at_any_position_undoes_the_others() {
    let setup = Setup::new();
    let caches: Vec<Cache<Token>> = (0..4).map(|_| Cache::new(Policy::WhileLeased)).collect();
    for failing in 0..=4 {
        let devices = caches
            .iter()
            .map(|cache| (cache, setup.host(0x10000, 3 * PAGE)));
        let mut asked = Vec::new();
        let result = lease_all(devices, |position, target| {
            asked.push(position);
            assert_eq!(target.length(), 3 * PAGE);
            if position == failing {
                return Err(Refused("no memory"));
            }
            Ok(setup.ledger.register())
        });
        match result {
            Ok(leases) => {
                assert_eq!((failing, asked.len()), (4, 4));
                assert_eq!(setup.ledger.live().len(), 4);
                release_all(leases).unwrap();
            }
            Err(error) => {
                assert_eq!(error.position, failing);
                assert_eq!(error.error, LeaseError::Register(Refused("no memory")));
                assert_eq!(error.undo, None);
                assert_eq!(asked, (0..=failing).collect::<Vec<_>>());
            }
        }
        assert!(setup.ledger.live().is_empty());
    }
}

/// Pitfall 59: that undoing fails as well is not lost.
#[test]
fn pitfall_59_undoing_says_if_it_failed() {
    let setup = Setup::new();
    let devices = [setup.domain, DomainId::allocate(), DomainId::allocate()]
        .map(|domain| (&setup.cache, Request::host(domain, READ, 0x10000, PAGE)));
    let error = lease_all(devices, |position, _| match position {
        0 => Ok(setup.ledger.register()),
        1 => Ok(setup.ledger.register_stubborn()),
        _ => Err(Refused("no memory")),
    })
    .unwrap_err();
    assert_eq!(error.position, 2);
    assert_eq!(error.undo, Some(Refused("the device is stubborn")));
    assert!(setup.ledger.live().is_empty());
    assert_eq!(setup.cache.statistics().failed_deregistrations, 1);
}

/// Pitfall 60: deregistering stopped at the first device that failed.
#[test]
fn pitfall_60_all_devices_are_freed_and_the_first_error_is_reported() {
    let Setup { cache, ledger, .. } = Setup::new();
    let requests: Vec<_> = (0..4)
        .map(|_| Request::host(DomainId::allocate(), READ, 0x20000, PAGE))
        .collect();
    let devices = requests.iter().map(|request| (&cache, *request));
    let leases = lease_all(devices, |position, _| {
        Ok(match position {
            1 | 2 => ledger.register_stubborn(),
            _ => ledger.register(),
        })
    })
    .unwrap();
    assert_eq!(leases.len(), 4);
    assert_eq!(release_all(leases), Err(Refused("the device is stubborn")));
    assert!(ledger.live().is_empty(), "all four were tried");
    let statistics = cache.statistics();
    assert_eq!(statistics.failed_deregistrations, 2);
    assert_eq!(statistics.lost_bytes, 2 * PAGE as u64);
    assert_eq!((statistics.live, statistics.deregistrations), (0, 2));
    // What failed is not found again.
    assert!(cache.find(&requests[1]).unwrap().is_none());
}

/// Pitfall 61: the capacity was raised before the memory was there. Here no capacity is kept by hand; a
/// registration that fails half-way leaves nothing, however large the tables are.
#[test]
fn pitfall_61_growth_and_failures_alternate() {
    let setup = Setup::new();
    let mut leases = Vec::new();
    for page in 1..5000 {
        let request = setup.host(page * 2 * PAGE, PAGE);
        let refused = setup.cache.lease(&request, |_| Err(Refused("no memory")));
        assert!(refused.is_err());
        leases.push(setup.lease(request));
    }
    assert_eq!(setup.cache.statistics().live, leases.len() as u64);
    for (lease, page) in leases.iter().zip(1..) {
        assert_eq!(lease.pages().start(), page * 2 * PAGE);
        let found = setup.cache.find(&setup.host(page * 2 * PAGE, 1)).unwrap();
        assert!(Lease::same_registration(lease, &found.unwrap()));
    }
}

/// Pitfall 62: the lock was held while the device registered.
#[test]
fn pitfall_62_others_use_the_cache_while_one_registers() {
    let setup = Setup::new();
    let resident = setup.lease(setup.host(0x10000, PAGE));
    let (began, begun) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let setup = &setup;
        scope.spawn(move || {
            let lease = setup.cache.lease(&setup.host(0x90000, PAGE), |_| {
                began.send(()).unwrap();
                wait.recv().unwrap();
                Ok(setup.ledger.register())
            });
            drop(lease.unwrap());
        });
        begun.recv().unwrap();
        // A hit, a miss, a deregistration, an invalidation, and a use by the registrar itself.
        drop(setup.lease(setup.host(0x10000, 1)));
        let nested = setup.cache.lease(&setup.host(0x50000, PAGE), |_| {
            drop(setup.lease(setup.host(0x60000, PAGE)));
            Ok(setup.ledger.register())
        });
        nested.unwrap().release().unwrap();
        setup.cache.invalidate(0x30000, PAGE).unwrap();
        assert_eq!(setup.ledger.live(), [resident.number].into());
        go_on.send(()).unwrap();
    });
}

/// Pitfall 62: deregistering holds no lock either.
#[test]
fn pitfall_62_deregistration_may_use_the_cache() {
    struct Curious(Arc<Mutex<Option<Cache<Self>>>>, DomainId);
    impl Registration for Curious {
        type Error = String;
        fn deregister(self) -> Result<(), String> {
            let cache = self.0.lock().unwrap().clone();
            if let Some(cache) = cache {
                let own = Request::host(self.1, READ, 0x10000, 1);
                assert!(cache.find(&own).unwrap().is_none());
                cache.invalidate(0x10000, 1).unwrap();
            }
            Ok(())
        }
    }
    let cache = Cache::new(Policy::WhileLeased);
    let shared = Arc::new(Mutex::new(Some(cache.clone())));
    let domain = DomainId::allocate();
    let request = Request::host(domain, READ, 0x10000, 1);
    let lease = cache.lease(&request, |_| Ok(Curious(Arc::clone(&shared), domain)));
    lease.unwrap().release().unwrap();
    *shared.lock().unwrap() = None;
}

/// Pitfall 63: registrations outlived their protection domain, or were found in the next one.
#[test]
fn pitfall_63_a_registration_holds_its_domain_and_is_found_in_no_other() {
    /// A protection domain that must not go before what was registered in it.
    struct Pd(Arc<AtomicUsize>);
    impl Drop for Pd {
        fn drop(&mut self) {
            assert_eq!(self.0.load(Ordering::SeqCst), 0, "EBUSY");
        }
    }
    struct Mr(Arc<Pd>);
    impl Registration for Mr {
        type Error = String;
        fn deregister(self) -> Result<(), String> {
            self.0.0.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let cache = Cache::new(Policy::WhileLeased);
    let pd = Arc::new(Pd(Arc::clone(&count)));
    let first_life = DomainId::allocate();
    let request = Request::host(first_life, READ, 0x10000, 1);
    let lease = cache.lease(&request, |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Mr(Arc::clone(&pd)))
    });
    let lease = lease.unwrap();
    // Everything else goes first.
    drop((pd, cache.clone()));
    cache.invalidate_domain(first_life);
    let second_life = Request::host(DomainId::allocate(), READ, 0x10000, 1);
    assert!(cache.find(&second_life).unwrap().is_none());
    assert!(cache.find(&request).unwrap().is_none());
    drop(cache);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    lease.release().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// Pitfall 64: a length of zero, null and overflow reached the device.
#[test]
fn pitfall_64_degenerate_ranges_are_refused_before_anything_happens() {
    let setup = Setup::new();
    let whole = setup.lease(setup.host(usize::MAX - PAGE + 1, PAGE));
    assert_eq!(whole.pages().last(), usize::MAX);
    for (address, length) in [
        (0, 10),
        (0x1000, 0),
        (0, 0),
        (usize::MAX, 2),
        (0x1000, usize::MAX),
        (usize::MAX - PAGE + 1, PAGE + 1),
    ] {
        let request = setup.host(address, length);
        let refused = setup.cache.lease(&request, |_| unreachable!());
        assert!(matches!(refused, Err(LeaseError::Range(_))));
        assert!(setup.cache.find(&request).is_err());
        assert!(setup.cache.invalidate(address, length).is_err());
    }
    // The last byte of all is one like any other.
    let last = setup.lease(setup.host(usize::MAX, 1));
    assert!(Lease::same_registration(&whole, &last));
}

/// Pitfall 65: a handle was used with another device than it was made for.
#[test]
fn pitfall_65_a_domain_is_part_of_the_key() {
    let setup = Setup::new();
    let ours = setup.lease(setup.host(0x10000, PAGE));
    let theirs = Request::host(DomainId::allocate(), READ, 0x10000, PAGE);
    assert!(setup.cache.find(&theirs).unwrap().is_none());
    let theirs = setup.lease(theirs);
    assert_ne!(ours.number, theirs.number);
}

/// Pitfall 66: the search was linear, and a larger registration did not serve for what is in it. (That it
/// is not linear any more is what `cargo bench` shows.)
#[test]
fn pitfall_66_whatever_is_covered_is_a_hit() {
    let setup = Setup::new();
    let small = setup.lease(setup.host(0x10000, PAGE));
    let large = setup.lease(setup.host(0x10000 - 4 * PAGE, 16 * PAGE));
    assert_ne!(small.number, large.number);
    let right = setup.lease(setup.host(large.pages().last() + 1, PAGE));
    for (address, length) in [(0x10000, 2 * PAGE), (0x10000 - PAGE, 1), (0x14000, 10)] {
        assert_eq!(
            setup.lease(setup.host(address, length)).number,
            large.number
        );
    }
    // Without the large one the small one is still found, and what only the large one had is not.
    let number = large.number;
    drop(large);
    assert_eq!(setup.lease(setup.host(0x10010, 1)).number, small.number);
    assert!(
        setup
            .cache
            .find(&setup.host(0x14000, 10))
            .unwrap()
            .is_none()
    );
    assert!(!setup.ledger.live().contains(&number));
    // Adjacent registrations are not joined: no key serves for both.
    let left = setup.lease(setup.host(right.pages().start() - PAGE, PAGE));
    let across = setup.host(left.pages().start(), 2 * PAGE);
    assert!(setup.cache.find(&across).unwrap().is_none());
    // More rights are enough, fewer are not.
    let both = Access {
        rights: 3,
        modes: 0,
    };
    let strong = setup.lease(Request::host(setup.domain, both, 0x90000, PAGE));
    assert_eq!(setup.lease(setup.host(0x90000, 1)).number, strong.number);
}

/// Pitfall 67: pages of 4 KiB were assumed. (`fork` is the business of who opens devices.)
#[test]
fn pitfall_67_pages_are_the_systems_unless_the_program_knows_better() {
    let setup = Setup::new();
    let system = kernel_page_size();
    let cache = Cache::<Token>::new(Policy::WhileLeased);
    let length_of = |request: Request| {
        let lease = cache.lease(&request, |_| Ok(setup.ledger.register()));
        lease.unwrap().pages().length()
    };
    let address = 64 << 20;
    assert_eq!(length_of(setup.host(address, 1)), system);
    // Sizes beyond 32 bits are sizes like any other.
    assert_eq!(length_of(setup.host(address, 5 << 32)), 5 << 32);
    let large = Cache::<Token>::with_page_size(Policy::WhileLeased, 64 << 10);
    let lease = large.lease(&setup.host(address + 1, 1), |_| Ok(setup.ledger.register()));
    assert_eq!(lease.unwrap().pages().length(), 64 << 10);
}

/// The system's page size, from another source than the cache's.
fn kernel_page_size() -> usize {
    let map = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let line = map
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

/// Pitfall 68: every registration had all rights.
#[test]
fn pitfall_68_the_registrar_is_asked_for_what_was_wanted_and_no_more() {
    let setup = Setup::new();
    for access in [READ, WRITE, RELAXED] {
        let request = Request::host(DomainId::allocate(), access, 0x10000, 1);
        let lease = setup.cache.lease(&request, |target| {
            assert_eq!(target.access(), access);
            Ok(setup.ledger.register())
        });
        assert_eq!(lease.unwrap().access(), access);
    }
}

/// Pitfall 57: what is invalidated while it is registered goes to the caller alone.
#[test]
fn pitfall_57_what_is_invalidated_while_pending_is_not_found() {
    let setup = Setup::new();
    for invalidates in [false, true] {
        let request = setup.host(0x10000, 2 * PAGE);
        let lease = setup.cache.lease(&request, |_| {
            // Beside it, or in it.
            let address = 0x10000 + if invalidates { PAGE } else { 2 * PAGE };
            let met = setup.cache.invalidate(address, 1).unwrap();
            assert_eq!((met.pending, met.live), (usize::from(invalidates), 0));
            Ok(setup.ledger.register())
        });
        let lease = lease.unwrap();
        assert!(setup.ledger.live().contains(&lease.number));
        let found = setup.cache.find(&request).unwrap();
        assert_eq!(found.is_none(), invalidates);
    }
    assert!(setup.ledger.live().is_empty());
}
