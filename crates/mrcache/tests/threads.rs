//! Several threads on the same few ranges: what each has a lease on is alive and covers what it
//! asked for, and at the end nothing is left.
#![allow(clippy::unwrap_used)]

#[path = "common/ledger.rs"]
mod ledger;
#[path = "common/random.rs"]
mod random;

use std::sync::Barrier;
use std::thread;

use ibnet_mrcache::{Access, Cache, DomainId, Lease, LeaseError, Policy, Request};
use ledger::{Ledger, Refused, Token};
use random::Random;

const PAGE: usize = 4096;
const THREADS: u64 = 4;
const STEPS: u64 = 30_000;

#[test]
fn without_a_pool() {
    play(&Cache::new(Policy::WhileLeased));
}

#[test]
fn found_while_fully_leased() {
    play(&Cache::new(Policy::WhileFullyLeased));
}

#[test]
fn with_a_small_pool() {
    play(&Cache::new(Policy::KeepIdle {
        registrations: 3,
        bytes: 12 * PAGE,
    }));
}

fn play(cache: &Cache<Token>) {
    let (ledger, domain) = (Ledger::default(), DomainId::allocate());
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (ledger, start) = (&ledger, &start);
            scope.spawn(move || {
                start.wait();
                one_thread(cache, ledger, domain, seed);
            });
        }
    });
    cache.flush().unwrap();
    let statistics = cache.statistics();
    assert_eq!((statistics.live, statistics.idle), (0, 0));
    assert_eq!((statistics.live_bytes, statistics.idle_bytes), (0, 0));
    assert_eq!(statistics.registrations, statistics.deregistrations);
    assert!(statistics.hits > 0 && statistics.failed_registrations > 0);
    assert!(ledger.live().is_empty());
}

fn one_thread(cache: &Cache<Token>, ledger: &Ledger, domain: DomainId, seed: u64) {
    let mut random = Random::new(seed);
    let mut leases: Vec<Lease<Token>> = Vec::new();
    for _ in 0..STEPS {
        match random.below(16) {
            0..=7 => {
                let address = (1 + random.below(6) as usize) * PAGE;
                let length = (1 + random.below(4) as usize) * PAGE;
                let rights = 1 + random.below(3) as u32;
                let access = Access { rights, modes: 0 };
                let request = Request::host(domain, access, address, length);
                let fails = random.below(10) == 0;
                let lease = cache.lease(&request, |target| {
                    assert_eq!((target.start(), target.length()), (address, length));
                    if fails {
                        Err(Refused("no luck"))
                    } else {
                        Ok(ledger.register())
                    }
                });
                match lease {
                    Ok(lease) => {
                        assert!(lease.pages().contains(address, length));
                        assert!(lease.access().serves(access));
                        leases.push(lease);
                    }
                    Err(error) => assert_eq!(error, LeaseError::Register(Refused("no luck"))),
                }
            }
            8 => {
                let address = (1 + random.below(8) as usize) * PAGE;
                cache.invalidate(address, 1).unwrap();
            }
            9 => leases.extend(leases.last().cloned()),
            10 => drop(cache.flush()),
            _ if leases.is_empty() => {}
            step => {
                let lease = leases.swap_remove(random.below(leases.len() as u64) as usize);
                if random.below(64) == 0 {
                    assert!(ledger.live().contains(&lease.number));
                }
                if step == 11 {
                    lease.release().unwrap();
                }
            }
        }
        if leases.len() > 6 {
            leases.swap_remove(0);
        }
    }
}
