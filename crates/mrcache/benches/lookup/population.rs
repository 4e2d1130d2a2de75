//! A cache that is full of registrations, and what to ask it for.

use std::fmt;

use ibnet_mrcache::{Access, Cache, DomainId, Lease, Policy, Registration, Request};

use crate::random::Random;
use crate::weight::allocated;

const PAGE: u64 = 4096;
/// Queries are prepared, so that choosing them is not measured.
const QUERIES: usize = 1 << 18;

/// A registration that costs nothing.
pub(crate) struct Free(#[expect(dead_code, reason = "as large as two keys are")] u64);

impl Registration for Free {
    type Error = String;

    fn deregister(self) -> Result<(), String> {
        Ok(())
    }
}

/// How the registered ranges lie.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Anywhere, without touching each other.
    Apart,
    /// Anywhere, with lengths over five orders of magnitude: overlapping, nested, all mixed.
    Nested,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apart => "apart",
            Self::Nested => "nested",
        })
    }
}

pub(crate) struct Population {
    cache: Cache<Free>,
    domain: DomainId,
    leases: Vec<Lease<Free>>,
    /// No range reaches it.
    beyond: u64,
}

impl Population {
    /// `size` registrations, and how many bytes the cache has allocated for each.
    pub(crate) fn weighed(shape: Shape, size: usize) -> (Self, usize) {
        let mut random = Random::new(42);
        let ranges = match shape {
            Shape::Apart => apart(&mut random, size),
            Shape::Nested => nested(&mut random, size),
        };
        let beyond = ranges.iter().map(|(start, pages)| start + pages).max();
        let mut population = Self {
            cache: Cache::new(Policy::WhileLeased),
            domain: DomainId::allocate(),
            leases: Vec::with_capacity(size),
            beyond: beyond.unwrap() * PAGE,
        };
        let before = allocated();
        for (start, pages) in ranges {
            let lease = population.lease(start * PAGE, pages * PAGE);
            population.leases.push(lease);
        }
        assert_eq!(population.cache.statistics().live, size as u64);
        let bytes = (allocated() - before) / size;
        (population, bytes)
    }

    fn lease(&self, address: u64, length: u64) -> Lease<Free> {
        let access = Access {
            rights: 1,
            modes: 0,
        };
        let request = Request::host(self.domain, access, address as usize, length as usize);
        self.cache.lease(&request, |_| Ok(Free(address))).unwrap()
    }

    /// Random parts of random registrations.
    pub(crate) fn queries(&self, seed: u64) -> Vec<Request> {
        let mut random = Random::new(seed);
        (0..QUERIES)
            .map(|_| {
                let lease = &self.leases[random.below(self.leases.len() as u64) as usize];
                let length = lease.pages().length() as u64;
                let offset = random.below(length);
                Request::host(
                    self.domain,
                    Access {
                        rights: 1,
                        modes: 0,
                    },
                    lease.pages().start() + offset as usize,
                    1 + random.below(length - offset) as usize,
                )
            })
            .collect()
    }

    /// Ranges that begin anywhere and reach beyond everything that is registered.
    pub(crate) fn misses(&self, seed: u64) -> Vec<Request> {
        let mut random = Random::new(seed);
        (0..QUERIES)
            .map(|_| {
                let start = PAGE + random.below(self.beyond);
                let length = self.beyond - start.min(self.beyond) + 2 * PAGE;
                Request::host(
                    self.domain,
                    Access {
                        rights: 1,
                        modes: 0,
                    },
                    start as usize,
                    length as usize,
                )
            })
            .collect()
    }

    pub(crate) fn hit(&self, request: &Request) -> Lease<Free> {
        let lease = self.cache.lease(request, |_| Err("a miss".to_owned()));
        lease.unwrap()
    }

    pub(crate) fn miss(&self, request: &Request) -> Lease<Free> {
        let mut missed = false;
        let lease = self.cache.lease(request, |_| {
            missed = true;
            Ok(Free(0))
        });
        assert!(missed);
        lease.unwrap()
    }
}

/// First page and pages of each, in no order.
fn apart(random: &mut Random, size: usize) -> Vec<(u64, u64)> {
    let mut page = 1;
    let mut ranges: Vec<_> = (0..size)
        .map(|_| {
            let (start, pages) = (page + random.below(16), 1 + random.below(16));
            page = start + pages;
            (start, pages)
        })
        .collect();
    for place in (1..size).rev() {
        ranges.swap(place, random.below(place as u64 + 1) as usize);
    }
    ranges
}

/// The same with small ones first: otherwise they would be hits in the large ones.
fn nested(random: &mut Random, size: usize) -> Vec<(u64, u64)> {
    let space = 16 * size as u64;
    let mut ranges = std::collections::BTreeSet::new();
    while ranges.len() < size {
        let start = 1 + random.below(space);
        let most = 1 << random.below(17);
        ranges.insert((1 + random.below(most), start));
    }
    // In the order of their sizes.
    ranges
        .into_iter()
        .map(|(pages, start)| (start, pages))
        .collect()
}
