//! The cache against a naive model of it, driven by bytes: random ones, or a fuzzer's.
//!
//! The model is a list that is searched from end to end. After each step the cache must have
//! registered, found and given back exactly what the model says.

use std::collections::BTreeSet;

use ibnet_mrcache::{
    Access, Cache, DmaBuf, DomainId, Lease, LeaseError, Policy, RangeProblem, Request,
};

use crate::ledger::{Ledger, Refused, Token};

const PAGE: u64 = 4096;
/// Pages that the host's ranges lie in, at two ends of the address space.
const PAGES: u64 = 24;
/// No more leases at once, so that the lists stay short.
const LEASES: usize = 40;
/// The last page of the DMA-BUFs is a broken one.
const BUFFER_SIZE: u64 = PAGES * PAGE - 1000;

/// Plays all of `bytes`. Gives how many steps they were.
pub(crate) fn play(bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let mut game = Game::new(bytes.next());
    let mut steps = 0;
    while !bytes.0.is_empty() {
        game.step(&mut bytes);
        game.check();
        steps += 1;
    }
    game.end();
    steps
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// Zero when there are no more.
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        let number = u64::from(self.next()) << 8 | u64::from(self.next());
        number % bound
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Host,
    Buffer {
        inode: u64,
        skew: u64,
        data_direct: bool,
    },
}

struct Entry {
    number: u64,
    domain: usize,
    rights: u32,
    modes: u32,
    space: Space,
    first: u64,
    last: u64,
    leases: usize,
    full_leases: usize,
    is_findable: bool,
    is_stubborn: bool,
}

struct Game {
    cache: Cache<Token>,
    ledger: Ledger,
    domains: [DomainId; 2],
    policy: Policy,
    /// Bytes of a page.
    page: u64,

    // The model.
    entries: Vec<Entry>,
    /// Numbers of idle entries, the oldest first.
    idle_order: Vec<u64>,
    leases: Vec<(Lease<Token>, u64, bool)>,
    lost: u64,
    hits: u64,
    misses: u64,
    failures: u64,
    evictions: u64,
    invalidations: u64,
}

/// What one request wants, in the model's words.
struct Wanted {
    domain: usize,
    rights: u32,
    modes: u32,
    space: Space,
    address: u64,
    length: u64,
    page: u64,
}

impl Game {
    fn new(settings: u8) -> Self {
        let policy = match settings % 4 {
            0 => Policy::WhileLeased,
            1 => Policy::WhileFullyLeased,
            _ => Policy::KeepIdle {
                registrations: usize::from(settings / 4 % 8),
                bytes: (1 + usize::from(settings / 32)) * 6 * PAGE as usize,
            },
        };
        let page = if settings >= 192 { 4 * PAGE } else { PAGE };
        Self {
            cache: Cache::with_page_size(policy, page as usize),
            ledger: Ledger::default(),
            domains: [DomainId::allocate(), DomainId::allocate()],
            policy,
            page,
            entries: Vec::new(),
            idle_order: Vec::new(),
            leases: Vec::new(),
            lost: 0,
            hits: 0,
            misses: 0,
            failures: 0,
            evictions: 0,
            invalidations: 0,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let step = bytes.next();
        match step % 16 {
            _ if self.leases.len() >= LEASES => self.drop_one(bytes, false),
            0..=6 => self.lease(bytes),
            7..=9 => self.drop_one(bytes, false),
            10 => self.drop_one(bytes, true),
            11 => self.clone_one(bytes),
            12 => self.invalidate_host(bytes),
            13 => self.invalidate_other(bytes),
            14 => self.flush(),
            _ => self.drop_one(bytes, true),
        }
    }

    fn wanted(&self, bytes: &mut Bytes<'_>) -> Wanted {
        let how = bytes.next();
        let kind = bytes.next();
        // Twice, so that lengths are mostly small.
        let most = 1 + bytes.below(PAGES);
        let length = bytes.below(most * PAGE);
        let place = bytes.below(PAGES * PAGE + 1);
        let (space, address) = if kind.is_multiple_of(4) {
            // In the second skew nothing can be registered.
            let skew = [
                0x7000_0000,
                0x7000_0000 + 0x10,
                0x8000_0000,
                PAGE.wrapping_neg(),
            ][usize::from(kind / 4 % 4)];
            let space = Space::Buffer {
                inode: u64::from(kind / 16 % 2),
                skew,
                data_direct: kind >= 128,
            };
            (space, place.wrapping_add(skew))
        } else if kind >= 200 {
            (Space::Host, u64::MAX - place)
        } else {
            (Space::Host, place)
        };
        Wanted {
            domain: usize::from(how.is_multiple_of(8)),
            rights: u32::from(how / 8 % 4),
            modes: u32::from(how / 32 == 0) << 8,
            space,
            address,
            length,
            page: self.page,
        }
    }

    fn request(&self, wanted: &Wanted) -> Request {
        let domain = self.domains[wanted.domain];
        let access = Access {
            rights: wanted.rights,
            modes: wanted.modes,
        };
        let (address, length) = (wanted.address as usize, wanted.length as usize);
        match wanted.space {
            Space::Host => Request::host(domain, access, address, length),
            Space::Buffer {
                inode,
                skew,
                data_direct,
            } => {
                let buffer = DmaBuf::from_identity(5, inode, BUFFER_SIZE);
                let offset = wanted.address.wrapping_sub(skew);
                Request::dmabuf(domain, access, buffer, offset, address, length)
                    .data_direct(data_direct)
            }
        }
    }

    fn lease(&mut self, bytes: &mut Bytes<'_>) {
        let wanted = self.wanted(bytes);
        let luck = bytes.next();
        let (will_fail, is_stubborn) = (luck < 16, luck > 240);
        let request = self.request(&wanted);
        let ledger = self.ledger.clone();
        let mut target = None;
        let result = self.cache.lease(&request, |asked| {
            target = Some(*asked);
            match (will_fail, is_stubborn) {
                (true, _) => Err(Refused("no luck")),
                (_, true) => Ok(ledger.register_stubborn()),
                _ => Ok(ledger.register()),
            }
        });

        if let Some(expected) = wanted.problem() {
            assert!(
                matches!(&result, Err(LeaseError::Range(range)) if range.problem == expected),
                "{request:?}: {result:?}"
            );
            assert!(target.is_none());
            return;
        }
        let candidates: Vec<u64> = self
            .entries
            .iter()
            .filter(|entry| entry.serves(&wanted))
            .map(|entry| entry.number)
            .collect();
        if !candidates.is_empty() {
            let lease = result.unwrap();
            assert!(
                target.is_none(),
                "{request:?} was registered though covered"
            );
            assert!(candidates.contains(&lease.number), "{request:?}: {lease:?}");
            self.hits += 1;
            self.note_lease(lease, &wanted);
            return;
        }
        let (first, last) = wanted.pages();
        if first == 0 && last == u64::MAX {
            assert!(matches!(result, Err(LeaseError::Range(_))));
            return;
        }
        let target = target.expect("nothing covers it");
        assert_eq!(target.start() as u64, first);
        assert_eq!(target.length() as u64, last - first + 1);
        if let (Space::Buffer { skew, .. }, Some(offset)) = (wanted.space, target.offset()) {
            assert_eq!(offset, first.wrapping_sub(skew));
            assert!(offset + target.length() as u64 <= BUFFER_SIZE);
        }
        self.misses += 1;
        if will_fail {
            assert_eq!(result.err(), Some(LeaseError::Register(Refused("no luck"))));
            self.failures += 1;
            return;
        }
        let lease = result.unwrap();
        self.entries.push(Entry {
            number: lease.number,
            domain: wanted.domain,
            rights: wanted.rights,
            modes: wanted.modes,
            space: wanted.space,
            first,
            last,
            leases: 0,
            full_leases: 0,
            is_findable: true,
            is_stubborn,
        });
        self.note_lease(lease, &wanted);
    }

    fn note_lease(&mut self, lease: Lease<Token>, wanted: &Wanted) {
        let number = lease.number;
        self.idle_order.retain(|idle| *idle != number);
        let must_be_full = self.policy == Policy::WhileFullyLeased;
        let entry = self.entry(number);
        let (first, last) = wanted.pages();
        let is_full = must_be_full
            && entry.space == Space::Host
            && first <= entry.first
            && last >= entry.last;
        entry.leases += 1;
        entry.full_leases += usize::from(is_full);
        assert_eq!(lease.pages().start() as u64, entry.first);
        assert_eq!(lease.pages().last() as u64, entry.last);
        self.leases.push((lease, number, is_full));
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        let entry = self.entries.iter_mut().find(|entry| entry.number == number);
        entry.expect("leased entries are alive")
    }

    fn drop_one(&mut self, bytes: &mut Bytes<'_>, release: bool) {
        if self.leases.is_empty() {
            return;
        }
        let place = bytes.below(self.leases.len() as u64) as usize;
        let (lease, number, is_full) = self.leases.swap_remove(place);
        let entry = self.entry(number);
        entry.leases -= 1;
        entry.full_leases -= usize::from(is_full);
        if is_full && entry.full_leases == 0 {
            entry.is_findable = false;
        }
        let (is_last, stubborn) = (entry.leases == 0, entry.is_stubborn);
        let is_findable = entry.is_findable;
        let keeps = is_last && is_findable && matches!(self.policy, Policy::KeepIdle { .. });
        if keeps {
            self.idle_order.push(number);
            self.evict();
        } else if is_last {
            self.give_back(number);
        }
        if !release {
            drop(lease);
            return;
        }
        let result = lease.release();
        // One that is evicted at once because it alone exceeds the limits counts as given back here.
        let is_gone = !self.entries.iter().any(|entry| entry.number == number);
        assert_eq!(result.is_err(), is_gone && stubborn);
    }

    fn evict(&mut self) {
        let Policy::KeepIdle {
            registrations,
            bytes: most,
        } = self.policy
        else {
            return;
        };
        loop {
            let bytes: u64 = self
                .entries
                .iter()
                .filter(|entry| self.idle_order.contains(&entry.number))
                .map(Entry::length)
                .sum();
            if self.idle_order.len() <= registrations && bytes <= most as u64 {
                return;
            }
            let oldest = self.idle_order.remove(0);
            self.evictions += 1;
            self.give_back(oldest);
        }
    }

    fn give_back(&mut self, number: u64) {
        let place = self
            .entries
            .iter()
            .position(|entry| entry.number == number)
            .expect("it is alive");
        self.lost += u64::from(self.entries.swap_remove(place).is_stubborn);
    }

    fn clone_one(&mut self, bytes: &mut Bytes<'_>) {
        if self.leases.is_empty() {
            return;
        }
        let place = bytes.below(self.leases.len() as u64) as usize;
        let (lease, number, is_full) = &self.leases[place];
        let (lease, number, is_full) = (lease.clone(), *number, *is_full);
        let entry = self.entry(number);
        entry.leases += 1;
        entry.full_leases += usize::from(is_full);
        self.leases.push((lease, number, is_full));
    }

    fn invalidate_host(&mut self, bytes: &mut Bytes<'_>) {
        let wanted = self.wanted(bytes);
        let result = self
            .cache
            .invalidate(wanted.address as usize, wanted.length as usize);
        let last = match wanted.length.checked_sub(1) {
            Some(before) if wanted.address > 0 => wanted.address.checked_add(before),
            _ => None,
        };
        let Some(last) = last else {
            assert!(result.is_err());
            return;
        };
        let met = self.invalidate(|entry| {
            entry.space == Space::Host && entry.first <= last && entry.last >= wanted.address
        });
        let invalidated = result.unwrap();
        assert_eq!((invalidated.live, invalidated.leased), met);
        assert_eq!(invalidated.pending, 0);
    }

    fn invalidate_other(&mut self, bytes: &mut Bytes<'_>) {
        let which = u64::from(bytes.next());
        let (met, invalidated) = if which.is_multiple_of(2) {
            let inode = which / 2 % 2;
            let met = self.invalidate(
                |entry| matches!(entry.space, Space::Buffer { inode: own, .. } if own == inode),
            );
            let buffer = DmaBuf::from_identity(5, inode, 0);
            (met, self.cache.invalidate_dmabuf(buffer))
        } else {
            let domain = usize::from(which < 16);
            let met = self.invalidate(|entry| entry.domain == domain);
            (met, self.cache.invalidate_domain(self.domains[domain]))
        };
        assert_eq!((invalidated.live, invalidated.leased), met);
    }

    /// How many entries are met, and how many of them are leased.
    fn invalidate(&mut self, is_met: impl Fn(&Entry) -> bool) -> (usize, usize) {
        let (mut met, mut leased, mut unleased) = (0, 0, Vec::new());
        for entry in &mut self.entries {
            if !entry.is_findable || !is_met(entry) {
                continue;
            }
            met += 1;
            entry.is_findable = false;
            if entry.leases > 0 {
                leased += 1;
            } else {
                unleased.push(entry.number);
            }
        }
        for number in unleased {
            self.idle_order.retain(|idle| *idle != number);
            self.give_back(number);
        }
        self.invalidations += met as u64;
        (met, leased)
    }

    fn flush(&mut self) {
        let idle = std::mem::take(&mut self.idle_order);
        let lost = self.lost;
        for number in &idle {
            self.give_back(*number);
        }
        match self.cache.flush() {
            Ok(count) => assert_eq!((count, self.lost), (idle.len(), lost)),
            Err(_) => assert!(self.lost > lost),
        }
    }

    /// Whether the cache and the model agree.
    fn check(&self) {
        let live: BTreeSet<u64> = self.entries.iter().map(|entry| entry.number).collect();
        assert_eq!(self.ledger.live(), live);
        let statistics = self.cache.statistics();
        let bytes = |entries: &mut dyn Iterator<Item = &Entry>| entries.map(Entry::length).sum();
        let is_idle = |entry: &&Entry| self.idle_order.contains(&entry.number);
        assert_eq!(statistics.live, live.len() as u64);
        assert_eq!(
            statistics.live_bytes,
            bytes(&mut self.entries.iter()),
            "live bytes"
        );
        assert_eq!(statistics.idle, self.idle_order.len() as u64);
        assert_eq!(
            statistics.idle_bytes,
            bytes(&mut self.entries.iter().filter(is_idle)),
            "idle bytes"
        );
        assert_eq!(statistics.hits, self.hits);
        assert_eq!(statistics.misses, self.misses);
        assert_eq!(statistics.waits, 0);
        assert_eq!(statistics.failed_registrations, self.failures);
        assert_eq!(statistics.registrations, self.misses - self.failures);
        assert_eq!(statistics.evictions, self.evictions);
        assert_eq!(statistics.invalidations, self.invalidations);
        assert_eq!(statistics.failed_deregistrations, self.lost);
    }

    /// The cache goes before its leases, which stay valid.
    fn end(mut self) {
        drop(self.cache);
        for number in std::mem::take(&mut self.idle_order) {
            self.entries.retain(|entry| entry.number != number);
        }
        let live: BTreeSet<u64> = self.entries.iter().map(|entry| entry.number).collect();
        assert_eq!(self.ledger.live(), live);
        self.leases.clear();
        assert!(self.ledger.live().is_empty());
    }
}

impl Entry {
    fn length(&self) -> u64 {
        self.last - self.first + 1
    }

    fn serves(&self, wanted: &Wanted) -> bool {
        self.is_findable
            && self.domain == wanted.domain
            && self.space == wanted.space
            && self.modes == wanted.modes
            && self.rights & wanted.rights == wanted.rights
            && self.first <= wanted.address
            && self.last >= wanted.address + (wanted.length - 1)
    }
}

impl Wanted {
    /// How a request that makes no sense is refused.
    fn problem(&self) -> Option<RangeProblem> {
        if self.address == 0 {
            return Some(RangeProblem::Null);
        }
        if self.length == 0 {
            return Some(RangeProblem::Empty);
        }
        if self.address.checked_add(self.length - 1).is_none() {
            return Some(RangeProblem::Overflow);
        }
        if let Space::Buffer { skew, .. } = self.space {
            let offset = self.address.wrapping_sub(skew);
            if offset.saturating_add(self.length) > BUFFER_SIZE {
                return Some(RangeProblem::OutsideBuffer(offset));
            }
            if skew % self.page != 0 {
                return Some(RangeProblem::Skewed(offset));
            }
        }
        None
    }

    /// First and last byte of what would be registered, or a full lease is on.
    fn pages(&self) -> (u64, u64) {
        let within = self.page - 1;
        let first = self.address & !within;
        let last = (self.address + (self.length - 1)) | within;
        match self.space {
            Space::Host => (first, last),
            Space::Buffer { skew, .. } => {
                let end = (BUFFER_SIZE - 1).wrapping_add(skew);
                (first, if end >= first { last.min(end) } else { last })
            }
        }
    }
}
