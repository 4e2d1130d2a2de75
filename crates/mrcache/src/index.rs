//! [`Index`]: finds what covers a range, among everything that is comparable to it.
//!
//! Ranges of different domains, spaces or modes are never comparable: each combination is a *group*. In
//! a group there is a tree for each set of rights that occurs. A look-up goes through those whose
//! rights are enough; a program has a handful of them (sending, receiving, reading), and with n
//! rights there cannot be more than 2^n, so that this is a constant.
//!
//! All DMA-BUFs of a group that are told apart by inode share one tree: their places are ordered by
//! buffer first.

use std::collections::BTreeMap;

use crate::memory::{BufferId, Domain, Key, Space};
use crate::tree::{Interval, Place, Tree};

/// Values by key and range. Locking is the user's business.
pub(crate) struct Index<T> {
    /// What its address names.
    addresses: Groups<u64, T>,
    buffers: Groups<BufferPlace, T>,
}

/// An address in a mapping of a DMA-BUF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BufferPlace {
    buffer: BufferId,
    address: u64,
}

impl Place for BufferPlace {
    /// The address: no interval leaves its buffer.
    type End = u64;

    fn end(self) -> u64 {
        self.address
    }

    fn at(self, address: u64) -> Self {
        Self { address, ..self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    domain: Domain,
    modes: u32,
    is_host: bool,
    data_direct: bool,
    /// The file system of DMA-BUFs that are told apart by inode; 0 for all else.
    device: u64,
}

struct Groups<P: Place, T>(BTreeMap<GroupKey, Vec<Class<P, T>>>);

struct Class<P: Place, T> {
    rights: u32,
    tree: Tree<P, T>,
}

/// Which entries are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection {
    /// Memory that its address names and that shares a byte with the interval, in all domains.
    Addresses(Interval<u64>),
    /// Everything of a DMA-BUF, in all domains.
    Buffer { device: u64, inode: u64 },
    /// Everything of a domain.
    Domain(Domain),
}

impl<T> Index<T> {
    pub(crate) fn new() -> Self {
        Self {
            addresses: Groups(BTreeMap::new()),
            buffers: Groups(BTreeMap::new()),
        }
    }

    /// A value whose range contains `wanted` and whose access serves.
    #[inline]
    pub(crate) fn cover(&self, key: &Key, wanted: Interval<u64>) -> Option<&T> {
        let rights = key.access.rights;
        match key.space {
            Space::Host | Space::Vouched { .. } => {
                self.addresses.cover(&group_of(key), rights, &wanted)
            }
            Space::DmaBuf { buffer, .. } => {
                self.buffers
                    .cover(&group_of(key), rights, &in_buffer(buffer, wanted))
            }
        }
    }

    /// Puts a value in. There is none of the same key and range.
    pub(crate) fn insert(&mut self, key: &Key, range: Interval<u64>, value: T) {
        let rights = key.access.rights;
        match key.space {
            Space::Host | Space::Vouched { .. } => {
                self.addresses.insert(group_of(key), rights, range, value)
            }
            Space::DmaBuf { buffer, .. } => {
                self.buffers
                    .insert(group_of(key), rights, in_buffer(buffer, range), value)
            }
        }
    }

    /// Takes the value of exactly this key and range out.
    pub(crate) fn remove(&mut self, key: &Key, range: Interval<u64>) -> Option<T> {
        let rights = key.access.rights;
        match key.space {
            Space::Host | Space::Vouched { .. } => {
                self.addresses.remove(&group_of(key), rights, &range)
            }
            Space::DmaBuf { buffer, .. } => {
                self.buffers
                    .remove(&group_of(key), rights, &in_buffer(buffer, range))
            }
        }
    }

    /// Takes everything out that is selected.
    pub(crate) fn take(&mut self, selection: Selection) -> Vec<T> {
        let mut taken = Vec::new();
        match selection {
            Selection::Addresses(interval) => {
                self.addresses.take(|_| true, &interval, &mut taken);
            }
            Selection::Buffer { device, inode } => {
                let whole = Interval {
                    first: lowest_of(inode),
                    last: highest_of(inode),
                };
                self.buffers
                    .take(|group| group.device == device, &whole, &mut taken);
            }
            Selection::Domain(domain) => {
                let whole = Interval {
                    first: 0,
                    last: u64::MAX,
                };
                self.addresses
                    .take(|group| group.domain == domain, &whole, &mut taken);
                let whole = Interval {
                    first: lowest_of(0),
                    last: highest_of(u64::MAX),
                };
                self.buffers
                    .take(|group| group.domain == domain, &whole, &mut taken);
            }
        }
        taken
    }

    /// Heap bytes that the index takes, without what its values refer to.
    pub(crate) fn bytes(&self) -> usize {
        self.addresses.bytes() + self.buffers.bytes()
    }
}

#[inline]
fn group_of(key: &Key) -> GroupKey {
    let (device, data_direct) = match key.space {
        Space::Host => (0, false),
        Space::Vouched { data_direct } => (0, data_direct),
        Space::DmaBuf {
            device,
            data_direct,
            ..
        } => (device, data_direct),
    };
    GroupKey {
        domain: key.domain,
        modes: key.access.modes,
        is_host: key.space == Space::Host,
        data_direct,
        device,
    }
}

#[inline]
fn in_buffer(buffer: BufferId, range: Interval<u64>) -> Interval<BufferPlace> {
    let place = |address| BufferPlace { buffer, address };
    Interval {
        first: place(range.first),
        last: place(range.last),
    }
}

fn lowest_of(inode: u64) -> BufferPlace {
    BufferPlace {
        buffer: BufferId { inode, skew: 0 },
        address: 0,
    }
}

fn highest_of(inode: u64) -> BufferPlace {
    BufferPlace {
        buffer: BufferId {
            inode,
            skew: u64::MAX,
        },
        address: u64::MAX,
    }
}

impl<P: Place, T> Groups<P, T> {
    #[inline]
    fn cover(&self, group: &GroupKey, rights: u32, wanted: &Interval<P>) -> Option<&T> {
        self.0
            .get(group)?
            .iter()
            .filter(|class| class.rights & rights == rights)
            .find_map(|class| class.tree.cover(wanted))
    }

    fn insert(&mut self, group: GroupKey, rights: u32, range: Interval<P>, value: T) {
        let classes = self.0.entry(group).or_default();
        let place = classes
            .iter()
            .position(|class| class.rights == rights)
            .unwrap_or_else(|| {
                let tree = Tree::new();
                classes.push(Class { rights, tree });
                classes.len() - 1
            });
        classes[place].tree.insert(range, value);
    }

    fn remove(&mut self, group: &GroupKey, rights: u32, range: &Interval<P>) -> Option<T> {
        let classes = self.0.get_mut(group)?;
        let place = classes.iter().position(|class| class.rights == rights)?;
        let value = classes[place].tree.remove(range)?;
        if classes[place].tree.is_empty() {
            classes.swap_remove(place);
        }
        if classes.is_empty() {
            self.0.remove(group);
        }
        Some(value)
    }

    fn take(
        &mut self,
        is_meant: impl Fn(&GroupKey) -> bool,
        wanted: &Interval<P>,
        taken: &mut Vec<T>,
    ) {
        self.0.retain(|group, classes| {
            if !is_meant(group) {
                return true;
            }
            classes.retain_mut(|class| {
                for interval in class.tree.overlapping(wanted) {
                    taken.extend(class.tree.remove(&interval));
                }
                !class.tree.is_empty()
            });
            !classes.is_empty()
        });
    }

    fn bytes(&self) -> usize {
        self.0
            .values()
            .map(|classes| {
                let trees: usize = classes.iter().map(|class| class.tree.bytes()).sum();
                trees + classes.capacity() * size_of::<Class<P, T>>() + size_of::<GroupKey>()
            })
            .sum()
    }
}
