//! By which numbers NCCL calls the devices.
//!
//! Physical devices come first and keep their numbers. Virtual ones follow, in the order in which NCCL
//! made them *since it last began to count*. That is once in the life of the transport for API version
//! 11 and newer. Users of older versions say nothing when they unload the plugin, which stays in memory
//! with its devices, and call `init` again when they load it again. What they do then differs:
//!
//! - NCCL 2.27 has forgotten all numbers, takes `devices` as the number of physical devices, and makes its
//!   virtual ones again, other ones perhaps. So `devices` may show the physical ones only, and what is
//!   made gets the numbers that follow.
//! - NCCL 2.24 to 2.26, and any with `NCCL_NET_PLUGIN_REF_COUNT` set (which keeps the plugin loaded), remember
//!   the numbers from before, and use them without making anything again.
//!
//! Both get what they expect, without anybody's telling which one it is: a number that has not been given
//! anew means what it meant before.

/// Devices of type `T` by their numbers, from 0.
pub(super) struct Numbering<T> {
    physical: Vec<T>,
    /// Virtual devices since counting last began.
    made: Vec<T>,
    /// Those from before, by the numbers that they had last.
    earlier: Vec<T>,
}

impl<T: Clone> Numbering<T> {
    /// Nothing but physical devices.
    pub(super) fn of(physical: Vec<T>) -> Self {
        Self {
            physical,
            made: Vec::new(),
            earlier: Vec::new(),
        }
    }

    /// How many NCCL is told of.
    pub(super) fn len(&self) -> usize {
        self.physical.len() + self.made.len()
    }

    /// The physical devices.
    pub(super) fn physical(&self) -> &[T] {
        &self.physical
    }

    /// The device of this number.
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        let Some(index) = number.checked_sub(self.physical.len()) else {
            return self.physical.get(number);
        };
        self.made.get(index).or_else(|| self.earlier.get(index))
    }

    /// The number of the first device that NCCL is told of and that `is_it`.
    pub(super) fn position(&self, is_it: impl FnMut(&T) -> bool) -> Option<usize> {
        self.physical.iter().chain(&self.made).position(is_it)
    }

    /// Adds a virtual device: its number.
    pub(super) fn add(&mut self, device: T) -> usize {
        self.made.push(device);
        self.len() - 1
    }

    /// NCCL counts anew, unless it remembers the numbers from before.
    pub(super) fn begin_anew(&mut self) {
        let made = std::mem::take(&mut self.made);
        // Numbers that nobody has given since mean what they meant.
        let older = self.earlier.split_off(made.len().min(self.earlier.len()));
        self.earlier = made;
        self.earlier.extend(older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(numbering: &Numbering<&'static str>) -> Vec<&'static str> {
        (0..)
            .map_while(|number| numbering.get(number).copied())
            .collect()
    }

    #[test]
    fn virtual_devices_follow_the_physical_ones() {
        let mut numbering = Numbering::of(vec!["a", "b", "c"]);
        assert_eq!(numbering.len(), 3);
        assert_eq!(numbering.add("a+b"), 3);
        assert_eq!(numbering.add("b+c"), 4);
        assert_eq!(numbering.len(), 5);
        assert_eq!(all(&numbering), ["a", "b", "c", "a+b", "b+c"]);
        assert_eq!(numbering.position(|name| *name == "b+c"), Some(4));
        assert_eq!(numbering.position(|name| *name == "a+c"), None);
        assert_eq!(numbering.physical(), ["a", "b", "c"]);
    }

    #[test]
    fn whoever_counts_anew_finds_the_physical_devices_only() {
        let mut numbering = Numbering::of(vec!["a", "b"]);
        numbering.add("a+b");
        numbering.add("b+a");
        numbering.begin_anew();
        assert_eq!(numbering.len(), 2);
        assert_eq!(numbering.position(|name| *name == "b+a"), None);
        assert_eq!(numbering.add("b+a"), 2, "the first number that is free");
        assert_eq!(numbering.get(2), Some(&"b+a"));
        assert_eq!(numbering.len(), 3);
    }

    #[test]
    fn whoever_remembers_finds_what_was_there() {
        let mut numbering = Numbering::of(vec!["a"]);
        for name in ["one", "two", "three"] {
            numbering.add(name);
        }
        for _ in 0..2 {
            numbering.begin_anew();
            assert_eq!(all(&numbering), ["a", "one", "two", "three"]);
            assert_eq!(numbering.len(), 1);
        }
        numbering.add("other");
        numbering.begin_anew();
        assert_eq!(all(&numbering), ["a", "other", "two", "three"]);
        assert_eq!(numbering.get(4), None);
    }
}
