//! [`Slab`]: objects under small numbers, which their C handles carry.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A number that names an object of one kind.
pub(crate) trait Key: Copy {
    fn new(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(u32);

        impl Key for $name {
            fn new(index: usize) -> Self {
                // A fabric holds far fewer than 2^32 objects: each takes memory.
                Self(index as u32)
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

keys! {
    /// A device of the fabric, from the first that the builder was given.
    DeviceId
    /// An open device.
    ContextId
    PdId
    /// A memory region of one device.
    RegionId
    CqId
    ChannelId
    QpId
}

/// Objects under numbers. Numbers of removed objects are used again.
#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
    key: PhantomData<K>,
}

impl<K: Key, T> Slab<K, T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            key: PhantomData,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[index] = Some(value);
        K::new(index)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let removed = self.entries.get_mut(key.index())?.take();
        if removed.is_some() {
            self.free.push(key.index());
        }
        removed
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        self.entries.get(key.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.entries.get_mut(key.index())?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let pairs = self.entries.iter().enumerate();
        pairs.filter_map(|(index, entry)| Some((K::new(index), entry.as_ref()?)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }
}

/// The object, which must exist: a program that uses a handle after destroying its object ends
/// here rather than in memory of something else.
impl<K: Key, T> Index<K> for Slab<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: K) -> &T {
        match self.get(key) {
            Some(value) => value,
            None => gone(key.index()),
        }
    }
}

impl<K: Key, T> IndexMut<K> for Slab<K, T> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut T {
        match self.get_mut(key) {
            Some(value) => value,
            None => gone(key.index()),
        }
    }
}

#[cold]
fn gone(index: usize) -> ! {
    panic!("simulated object {index} was used after it was destroyed")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_used_again_and_counted() {
        let mut slab: Slab<QpId, &str> = Slab::new();
        let (first, second) = (slab.insert("a"), slab.insert("b"));
        assert_eq!((slab[first], slab[second], slab.len()), ("a", "b", 2));
        assert_eq!(slab.remove(first), Some("a"));
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.insert("c"), first);
        let names: Vec<_> = slab.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["c", "b"]);
    }

    #[test]
    #[should_panic(expected = "after it was destroyed")]
    fn using_a_removed_object_is_noticed() {
        let mut slab: Slab<CqId, u32> = Slab::new();
        let key = slab.insert(1);
        slab.remove(key);
        let _ = slab[key];
    }
}
