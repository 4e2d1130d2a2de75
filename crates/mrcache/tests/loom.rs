//! Every order in which a few threads can meet, explored by loom.
//!
//! ```console
//! $ RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release -p ibnet-mrcache --test loom \
//!       --target-dir target/loom
//! ```
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use ibnet_mrcache::{Access, Cache, DomainId, Lease, LeaseError, Policy, Registration, Request};
use loom::sync::atomic::AtomicBool;
use loom::thread;

/// What the device holds. The counts are no part of what is explored.
#[derive(Default)]
struct Device {
    live: AtomicUsize,
    made: AtomicUsize,
}

struct Token(std::sync::Arc<Device>);

impl Registration for Token {
    type Error = &'static str;

    fn deregister(self) -> Result<(), &'static str> {
        let before = self.0.live.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "deregistered twice");
        Ok(())
    }
}

#[derive(Clone)]
struct World {
    cache: Cache<Token>,
    device: std::sync::Arc<Device>,
    domain: DomainId,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            cache: Cache::new(policy),
            device: std::sync::Arc::default(),
            domain: DomainId::allocate(),
        }
    }

    fn keeping(registrations: usize) -> Self {
        let bytes = usize::MAX;
        Self::new(Policy::KeepIdle {
            registrations,
            bytes,
        })
    }

    fn request(&self, address: usize, length: usize) -> Request {
        Request::host(
            self.domain,
            Access {
                rights: 1,
                modes: 0,
            },
            address,
            length,
        )
    }

    fn lease(&self, address: usize, length: usize) -> Lease<Token> {
        let request = self.request(address, length);
        let lease = self.cache.lease(&request, |_| Ok(self.register()));
        lease.unwrap()
    }

    fn register(&self) -> Token {
        self.device.live.fetch_add(1, Ordering::SeqCst);
        self.device.made.fetch_add(1, Ordering::SeqCst);
        Token(std::sync::Arc::clone(&self.device))
    }

    fn live(&self) -> usize {
        self.device.live.load(Ordering::SeqCst)
    }

    fn made(&self) -> usize {
        self.device.made.load(Ordering::SeqCst)
    }
}

#[test]
fn two_threads_register_once_and_both_get_it() {
    loom::model(|| {
        let world = World::new(Policy::WhileLeased);
        let other = world.clone();
        let theirs = thread::spawn(move || other.lease(0x1000, 0x1000));
        let ours = world.lease(0x1000, 0x1000);
        let theirs = theirs.join().unwrap();
        assert!(Lease::same_registration(&ours, &theirs));
        assert_eq!((world.made(), world.live()), (1, 1));
        drop(ours);
        assert_eq!(world.live(), 1);
        drop(theirs);
        assert_eq!(world.live(), 0);
    });
}

#[test]
fn each_lease_is_on_something_live_whoever_gives_back() {
    loom::model(|| {
        let world = World::new(Policy::WhileLeased);
        let other = world.clone();
        let theirs = thread::spawn(move || {
            let lease = other.lease(0x1000, 0x1000);
            assert!(other.live() > 0);
            lease.release().unwrap();
        });
        let lease = world.lease(0x1000, 0x1000);
        assert!(world.live() > 0);
        drop(lease);
        theirs.join().unwrap();
        assert_eq!(world.live(), 0);
        assert_eq!(world.cache.statistics().live, 0);
    });
}

#[test]
fn a_failure_wakes_those_who_wait_and_the_next_tries_again() {
    loom::model(|| {
        let world = World::new(Policy::WhileLeased);
        let other = world.clone();
        let attempt = |world: &World| {
            let request = world.request(0x1000, 0x1000);
            let attempts = &world.device.made;
            world.cache.lease(&request, |_| {
                attempts.fetch_add(1, Ordering::SeqCst);
                Err("no memory")
            })
        };
        let theirs = thread::spawn(move || attempt(&other).err());
        let ours = attempt(&world).err();
        let expected = Some(LeaseError::Register("no memory"));
        assert_eq!(ours, expected);
        assert_eq!(theirs.join().unwrap(), expected);
        assert!((1..=2).contains(&world.made()));
        drop(world.lease(0x1000, 0x1000));
        assert_eq!(world.live(), 0);
    });
}

#[test]
fn a_part_waits_for_the_whole() {
    loom::model(|| {
        let world = World::new(Policy::WhileLeased);
        let other = world.clone();
        let whole = thread::spawn(move || other.lease(0x1000, 0x4000));
        let part = world.lease(0x2000, 0x1000);
        let whole = whole.join().unwrap();
        // The part came first and was too small for the whole, or is in it.
        assert_eq!(world.live(), world.made());
        assert_eq!(world.live() == 1, Lease::same_registration(&whole, &part));
        drop((whole, part));
        assert_eq!(world.live(), 0);
    });
}

#[test]
fn what_was_invalidated_while_pending_is_not_found() {
    loom::model(|| {
        let world = World::new(Policy::WhileLeased);
        let other = world.clone();
        let began = loom::sync::Arc::new(AtomicBool::new(false));
        let theirs = thread::spawn({
            let began = loom::sync::Arc::clone(&began);
            move || {
                let request = other.request(0x1000, 0x1000);
                let lease = other.cache.lease(&request, |_| {
                    began.store(true, Ordering::SeqCst);
                    Ok(other.register())
                });
                lease.unwrap()
            }
        });
        let is_old = began.load(Ordering::SeqCst);
        world.cache.invalidate(0x1000, 1).unwrap();
        let ours = world.lease(0x1000, 0x1000);
        let theirs = theirs.join().unwrap();
        if is_old {
            assert!(!Lease::same_registration(&ours, &theirs));
        }
        drop((ours, theirs));
        assert_eq!(world.live(), 0);
    });
}

#[test]
fn what_somebody_has_a_lease_on_is_found() {
    let worlds = [
        || World::new(Policy::WhileLeased),
        || World::new(Policy::WhileFullyLeased),
        || World::keeping(4),
    ];
    for world in worlds {
        loom::model(move || {
            let world = world();
            let lease = world.lease(0x1000, 0x1000);
            let theirs = thread::spawn(move || drop(lease));
            let ours = world.lease(0x1000, 0x1000);
            theirs.join().unwrap();
            let again = world.cache.find(&world.request(0x1000, 0x1000)).unwrap();
            assert!(again.is_some_and(|again| Lease::same_registration(&again, &ours)));
            assert_eq!(world.cache.statistics().idle, 0);
            let World { cache, device, .. } = world;
            drop((ours, cache));
            assert_eq!(device.live.load(Ordering::SeqCst), 0);
        });
    }
}

#[test]
fn an_idle_registration_is_found_or_evicted_but_not_both() {
    loom::model(|| {
        let world = World::keeping(1);
        drop(world.lease(0x1000, 0x1000));
        assert_eq!(world.live(), 1);
        let other = world.clone();
        let theirs = thread::spawn(move || {
            // Evicts the first, if that is idle at the moment.
            drop(other.lease(0x8000, 0x1000));
        });
        let ours = world.lease(0x1000, 0x1000);
        assert!(world.live() > 0);
        drop(ours);
        theirs.join().unwrap();
        let statistics = world.cache.statistics();
        assert_eq!((statistics.idle, statistics.live), (1, 1));
        let World { cache, device, .. } = world;
        drop(cache);
        assert_eq!(device.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_cache_that_closes_leaves_nothing_behind() {
    loom::model(|| {
        let world = World::keeping(4);
        let lease = world.lease(0x1000, 0x1000);
        let World { cache, device, .. } = world;
        let theirs = thread::spawn(move || drop(lease));
        drop(cache);
        theirs.join().unwrap();
        assert_eq!(device.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn what_has_no_full_lease_is_not_found() {
    loom::model(|| {
        let world = World::new(Policy::WhileFullyLeased);
        let whole = world.lease(0x1000, 0x4000);
        let other = world.clone();
        let theirs = thread::spawn(move || other.lease(0x2000, 0x1000));
        drop(whole);
        // From here on the rest of the whole may be other memory.
        let rest = world.lease(0x3000, 0x1000);
        let theirs = theirs.join().unwrap();
        assert!(!Lease::same_registration(&rest, &theirs));
        assert_eq!(rest.pages().length(), 0x1000);
        drop((rest, theirs));
        assert_eq!(world.live(), 0);
    });
}
