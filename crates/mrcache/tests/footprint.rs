//! How much memory the cache allocates for each registration of 8 bytes: at most 200 bytes in any order,
//! and at most 320 for each DMA-BUF that has a single one.
#![allow(clippy::unwrap_used)]

#[path = "common/random.rs"]
mod random;
#[path = "../benches/lookup/weight.rs"]
mod weight;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ibnet_mrcache::{Access, Cache, DmaBuf, DomainId, Policy, Registration, Request};
use random::Random;
use weight::allocated;

struct Free(#[expect(dead_code, reason = "as large as two keys are")] u64);

impl Registration for Free {
    type Error = String;

    fn deregister(self) -> Result<(), String> {
        Ok(())
    }
}

const COUNT: usize = 50_000;

/// One test at a time, as all allocations count.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes leases, keeps them or not, and says how many bytes the cache has allocated for each.
fn bytes_each(cache: &Cache<Free>, keeps: bool, request: impl Fn(usize) -> Request) -> usize {
    let mut leases = Vec::with_capacity(COUNT);
    let before = allocated();
    for place in 0..COUNT {
        leases.push(cache.lease(&request(place), |_| Ok(Free(0))).unwrap());
    }
    if !keeps {
        leases.clear();
    }
    assert_eq!(cache.statistics().live, COUNT as u64);
    let bytes = (allocated() - before) / COUNT;
    assert!(bytes > size_of::<Free>());
    bytes
}

#[test]
fn host_memory_in_any_order() {
    let _turn = turn();
    let (domain, access) = (
        DomainId::allocate(),
        Access {
            rights: 1,
            modes: 0,
        },
    );
    let host = |page: usize| Request::host(domain, access, (1 + 2 * page) << 12, 4096);
    let mut random = Random::new(1);
    let mut shuffled: Vec<usize> = (0..COUNT).collect();
    for place in (1..COUNT).rev() {
        shuffled.swap(place, random.below(place as u64 + 1) as usize);
    }
    let orders: [&dyn Fn(usize) -> Request; 3] = [
        &|place| host(place),
        &|place| host(COUNT - place),
        &|place| host(shuffled[place]),
    ];
    for order in orders {
        let bytes = bytes_each(&Cache::new(Policy::WhileLeased), true, order);
        println!("host memory: {bytes} bytes");
        assert!(bytes <= 200, "{bytes} bytes for each registration");
    }
}

#[test]
fn a_pool_adds_its_list() {
    let _turn = turn();
    let cache = Cache::new(Policy::KeepIdle {
        registrations: 2 * COUNT,
        bytes: usize::MAX,
    });
    let (domain, access) = (
        DomainId::allocate(),
        Access {
            rights: 1,
            modes: 0,
        },
    );
    let host = |page: usize| Request::host(domain, access, (1 + 2 * page) << 12, 4096);
    let bytes = bytes_each(&cache, false, host);
    assert_eq!(cache.statistics().idle, COUNT as u64);
    println!("idle host memory: {bytes} bytes");
    assert!(bytes <= 200, "{bytes} bytes for each registration");
}

#[test]
fn each_in_a_dma_buf_of_its_own() {
    let _turn = turn();
    let (domain, access) = (
        DomainId::allocate(),
        Access {
            rights: 1,
            modes: 0,
        },
    );
    let mut random = Random::new(2);
    let inodes: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
    let bytes = bytes_each(&Cache::new(Policy::WhileLeased), true, |place| {
        let buffer = DmaBuf::from_identity(7, inodes[place], 1 << 20);
        Request::dmabuf(domain, access, buffer, 0, 0x10_0000, 4096)
    });
    println!("DMA-BUFs: {bytes} bytes");
    assert!(bytes <= 320, "{bytes} bytes for each registration");
}
