//! How much memory the cache takes for each registration: at most 200 bytes, whatever their kind and
//! order, with a registration of 8 bytes.
#![allow(clippy::unwrap_used)]

#[path = "common/random.rs"]
mod random;

use mrcache::{Access, Cache, DmaBuf, Domain, IdleLimits, Registration, Request};
use random::Random;

struct Free(#[expect(dead_code, reason = "as large as two keys are")] u64);

impl Registration for Free {
    type Error = String;

    fn deregister(self) -> Result<(), String> {
        Ok(())
    }
}

const COUNT: usize = 50_000;

fn bytes_each(cache: &Cache<Free>, request: impl Fn(usize) -> Request) -> usize {
    let leases: Vec<_> = (0..COUNT)
        .map(|place| {
            let lease = cache.lease(&request(place), |_| Ok(Free(0)));
            lease.unwrap()
        })
        .collect();
    let bytes = cache.overhead() / leases.len();
    assert!(bytes > size_of::<Free>());
    bytes
}

#[test]
fn host_memory_in_any_order() {
    let (domain, access) = (Domain::unique(), Access::new(1));
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
        let bytes = bytes_each(&Cache::new(), order);
        println!("host memory: {bytes} bytes");
        assert!(bytes <= 200, "{bytes} bytes for each registration");
    }
}

#[test]
fn a_pool_adds_its_list() {
    let limits = IdleLimits {
        entries: 2 * COUNT,
        bytes: usize::MAX,
    };
    let cache = Cache::builder().idle(limits).build();
    let (domain, access) = (Domain::unique(), Access::new(1));
    let host = |page: usize| Request::host(domain, access, (1 + 2 * page) << 12, 4096);
    bytes_each(&cache, host);
    assert_eq!(cache.statistics().idle, COUNT as u64);
    let bytes = cache.overhead() / COUNT;
    println!("idle host memory: {bytes} bytes");
    assert!(bytes <= 200, "{bytes} bytes for each registration");
}

#[test]
fn each_in_a_dma_buf_of_its_own() {
    let (domain, access) = (Domain::unique(), Access::new(1));
    let mut random = Random::new(2);
    let inodes: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
    let bytes = bytes_each(&Cache::new(), |place| {
        let buffer = DmaBuf::from_identity(7, inodes[place], 1 << 20);
        Request::dmabuf(domain, access, buffer, 0, 0x10_0000, 4096)
    });
    println!("DMA-BUFs: {bytes} bytes");
    assert!(bytes <= 200, "{bytes} bytes for each registration");
}
