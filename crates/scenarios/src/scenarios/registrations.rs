//! Registrations: many of them, in the cache and in the device, and how long a look-up takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ibnet_mrcache::{Access, Cache, DomainId, Lease, Policy, Registration, Request, Target};
use ibnet_verbs::{MemoryRegion, ProtectionDomain};

use super::solo;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            limit: Duration::from_secs(300),
            ..solo("registrations/100000-in-random-order", &[random_order])
        },
        solo("registrations/look-up", &[look_up]),
    ]
}

const PAGE: usize = 4096;
/// Pages of each range. The next one begins a page later, so that none covers another.
const PAGES: usize = 2;

/// A memory region in the cache.
struct Registered(MemoryRegion);

impl Registration for Registered {
    type Error = String;

    fn deregister(self) -> Result<(), String> {
        self.0.deregister().map_err(|error| error.to_string())
    }
}

/// Overlapping ranges of some memory, to be registered with one device.
struct Ranges {
    // Deregistered before the memory goes.
    leases: Vec<Option<Lease<Registered>>>,
    cache: Cache<Registered>,
    domain: DomainId,
    pd: ProtectionDomain,
    first: usize,
    _memory: Vec<u8>,
}

impl Ranges {
    fn new(cast: &Cast, count: usize) -> Result<Self, Failure> {
        let library = cast.library()?;
        let devices = library.devices()?;
        let device = devices
            .iter()
            .find(|device| device.name() == cast.device())
            .ok_or_else(|| format!("there is no device {}", cast.device()))?;
        let memory = vec![0; (count + PAGES) * PAGE];
        Ok(Self {
            leases: (0..count).map(|_| None).collect(),
            cache: Cache::with_page_size(Policy::WhileLeased, PAGE),
            domain: DomainId::allocate(),
            pd: device.open()?.allocate_pd()?,
            first: (memory.as_ptr() as usize).next_multiple_of(PAGE),
            _memory: memory,
        })
    }

    /// `length` bytes in range `place`, for reading by the device.
    fn request(&self, place: usize, offset: usize, length: usize) -> Request {
        let address = self.first + place * PAGE + offset;
        Request::host(self.domain, Access::default(), address, length)
    }

    fn register(&mut self, place: usize) -> Result<(), Failure> {
        let lease = self
            .cache
            .lease(&self.request(place, 0, PAGES * PAGE), |target: &Target| {
                let start = target.start() as *mut u8;
                let access = ibnet_verbs::Access::empty();
                // SAFETY: the memory is freed after all leases are gone, and only read meanwhile.
                unsafe { self.pd.register(start, target.length(), access) }
                    .map(Registered)
                    .map_err(|error| error.to_string())
            });
        self.leases[place] = Some(lease?);
        Ok(())
    }

    /// A range is found by any part that no other range has as well, whatever else is there.
    fn expect_found(&self, place: usize) -> Result<(), Failure> {
        let request = self.request(place, PAGE - 1, 2);
        let (lease, own) = (self.cache.find(&request)?, &self.leases[place]);
        match (lease, own) {
            (Some(found), Some(own)) if Lease::same_registration(&found, own) => Ok(()),
            (found, _) => Err(format!("range {place} was sought, {found:?} found").into()),
        }
    }
}

/// Registers and deregisters, each in an order of its own; the device ends with what it began with.
fn random_order(cast: &mut Cast) -> Result<(), Failure> {
    let count = if cast.is_simulated() { 3_000 } else { 100_000 };
    let before = cast.resources()?;
    let mut ranges = Ranges::new(cast, count)?;
    let begin = Instant::now();
    for place in shuffled(count, 1) {
        ranges.register(place)?;
    }
    let registered = begin.elapsed();
    let peak = cast.resources()?;
    if let (Some(peak), Some(before)) = (peak.memory_regions(), before.memory_regions()) {
        ensure(peak == before + count as u64, || {
            format!("{count} ranges have made {before} memory regions {peak}")
        })?;
    }
    let order = shuffled(count, 2);
    let begin = Instant::now();
    for (step, place) in order.iter().enumerate() {
        let lease = ranges.leases[*place].take();
        lease.map_or(Ok(()), Lease::release)?;
        // What comes last is still there, whatever has gone.
        let left = &order[step + 1..];
        if let Some(last) = left.get(step % left.len().max(1)) {
            ranges.expect_found(*last)?;
        }
    }
    let deregistered = begin.elapsed();
    ensure(ranges.cache.statistics().live == 0, || {
        format!("{:?} at the end", ranges.cache)
    })?;
    drop(ranges);
    cast.expect_resources(&before)?;
    println!(
        "  {count} ranges in random order: registered in {:.1} s, deregistered in {:.1} s, then {}",
        registered.as_secs_f64(),
        deregistered.as_secs_f64(),
        cast.resources()?
    );
    Ok(())
}

/// What a look-up takes with many registrations that the device has really made.
fn look_up(cast: &mut Cast) -> Result<(), Failure> {
    const LOOK_UPS: usize = 200_000;
    let before = cast.resources()?;
    for count in [1_000, 10_000] {
        let mut ranges = Ranges::new(cast, count)?;
        for place in shuffled(count, 3) {
            ranges.register(place)?;
        }
        let requests: Vec<_> = shuffled(count, 4)
            .into_iter()
            .map(|place| ranges.request(place, PAGE - 1, 2))
            .collect();
        let begin = Instant::now();
        for step in 0..LOOK_UPS {
            let found = black_box(ranges.cache.find(&requests[step % count])?);
            if found.is_none() {
                return Err("a live registration was not found".into());
            }
        }
        let each = begin.elapsed().as_nanos() / LOOK_UPS as u128;
        println!("  look-up and release with {count} live registrations: {each} ns");
    }
    cast.expect_resources(&before)
}

/// The numbers below `count` in an order that `seed` decides (Fisher-Yates).
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut order: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(place, (state >> 33) as usize % (place + 1));
    }
    order
}
