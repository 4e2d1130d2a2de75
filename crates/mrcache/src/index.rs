//! [`Index`]: finds what covers a range, among everything that is comparable to it.
//!
//! What differs in domain, memory or modes is never comparable, and has [`Ranges`] of its own; so
//! has each set of rights. A look-up goes through the sets that are enough, of which a program has a
//! handful (sending, receiving, reading).

use std::collections::BTreeMap;

use crate::access::Access;
use crate::memory::{DmaBuf, Domain, Key, Space};
use crate::pages::PageRange;
use crate::ranges::{Ranges, Span};
use crate::request::Wanted;

/// Values by key and range.
pub(crate) struct Index<T>(BTreeMap<Key, Ranges<T>>);

/// What is invalidated.
#[derive(Clone, Copy)]
pub(crate) enum Selection {
    /// What its address names, from a first to a last byte, in all domains.
    Addresses(usize, usize),
    /// Everything of a DMA-BUF that its inode names, in all domains.
    Buffer(DmaBuf),
    /// Everything of a domain.
    Domain(Domain),
}

impl<T> Index<T> {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A value whose range covers what is wanted and whose access serves.
    pub(crate) fn covering(&self, wanted: &Wanted) -> Option<&T> {
        let key = wanted.key;
        let all = Access {
            rights: u32::MAX,
            ..key.access
        };
        let span = (wanted.first as u64, wanted.last as u64);
        self.0
            .range(key..=Key { access: all, ..key })
            .filter(|(other, _)| other.serves(&key))
            .find_map(|(_, ranges)| ranges.covering(span))
    }

    /// Adds a value. There is none of the same key and range.
    pub(crate) fn insert(&mut self, key: &Key, pages: PageRange, value: T) {
        let ranges = self.0.entry(*key).or_insert_with(Ranges::new);
        ranges.insert(span(pages), value);
    }

    /// Takes out the value of exactly this key and range.
    pub(crate) fn remove(&mut self, key: &Key, pages: PageRange) -> Option<T> {
        let ranges = self.0.get_mut(key)?;
        let value = ranges.remove(span(pages));
        if ranges.is_empty() {
            self.0.remove(key);
        }
        value
    }

    /// Takes out everything that is selected.
    pub(crate) fn take(&mut self, selection: Selection) -> Vec<T> {
        let mut taken = Vec::new();
        self.0.retain(|key, ranges| {
            if selection.includes(key) {
                ranges.take(selection.span(), &mut taken);
            }
            !ranges.is_empty()
        });
        taken
    }
}

fn span(pages: PageRange) -> Span {
    (pages.start() as u64, pages.last() as u64)
}

impl Selection {
    /// Whether it has any of these pages.
    pub(crate) fn meets(&self, key: &Key, pages: PageRange) -> bool {
        let (own, other) = (self.span(), span(pages));
        self.includes(key) && own.0 <= other.1 && own.1 >= other.0
    }

    fn includes(&self, key: &Key) -> bool {
        match (*self, key.space) {
            (Self::Addresses(..), space) => space.is_named_by_address(),
            (Self::Buffer(buffer), Space::DmaBuf { device, inode, .. }) => {
                (buffer.device, buffer.inode) == (device, inode)
            }
            (Self::Buffer(_), _) => false,
            (Self::Domain(domain), _) => domain == key.domain,
        }
    }

    fn span(&self) -> Span {
        match *self {
            Self::Addresses(first, last) => (first as u64, last as u64),
            Self::Buffer(_) | Self::Domain(_) => (0, u64::MAX),
        }
    }
}
