//! Which paths the parts of a message take: the sender alone decides, message by message.
#![forbid(unsafe_code)]

use crate::config::PathPolicy;
use crate::connection::path::Path;
use crate::wire::message::MAX_PATHS;
use crate::wire::stripe::{Split, largest_whole, split};

/// The sender's choice of paths.
pub(crate) struct PathSelector {
    policy: PathPolicy,
    /// The paths that can be chosen.
    live: Vec<u8>,
    /// The most parts of a message.
    most: u32,
    /// Bytes that a part should have at least.
    least: u32,
    /// Round robin: the place in `live` of the path whose turn it is.
    next: usize,
    /// The paths of the message in hand.
    chosen: Box<[u8; MAX_PATHS]>,
}

impl PathSelector {
    /// For `paths` paths over `pairs` pairs of devices. A message is cut into as many parts as there
    /// are pairs, or with `over_all_paths` as there are paths (`split_data`).
    pub(crate) fn new(
        policy: PathPolicy,
        paths: usize,
        pairs: usize,
        over_all_paths: bool,
        least: u32,
    ) -> Self {
        let most = if over_all_paths { paths } else { pairs };
        Self {
            policy,
            live: (0..paths).map(|path| path as u8).collect(),
            most: most as u32,
            least,
            next: 0,
            chosen: Box::new([0; MAX_PATHS]),
        }
    }

    /// Cuts a message of `length` bytes into parts.
    #[inline]
    pub(crate) fn split(&self, length: u32) -> Split {
        split(length, self.most, self.least)
    }

    /// Bytes of the largest message that is not cut.
    pub(crate) fn largest_whole(&self) -> u32 {
        largest_whole(self.most, self.least)
    }

    /// The path for a message that is not cut. The next one takes the path after it.
    #[inline]
    pub(crate) fn choose_one(&mut self, paths: &[Path]) -> usize {
        if self.policy == PathPolicy::LeastOutstanding {
            self.choose(1, paths);
            self.path(0)
        } else {
            usize::from(self.live[self.next])
        }
    }

    /// Chooses a path for each of `parts` parts, no path twice as long as there are enough. One must be live.
    #[inline]
    pub(crate) fn choose(&mut self, parts: u32, paths: &[Path]) {
        if self.live.is_empty() {
            return;
        }
        if self.live.len() > 1 {
            match self.policy {
                PathPolicy::RoundRobin => self.in_turn(parts as usize),
                PathPolicy::LeastOutstanding => {
                    self.least_busy(parts as usize, |path| paths[path].in_flight());
                }
            }
        } else {
            // With fewer paths than parts these share one.
            self.chosen[..parts as usize].fill(self.live[0]);
        }
    }

    /// Whether any path is live.
    pub(crate) fn has_any(&self) -> bool {
        !self.live.is_empty()
    }

    /// Path `path` has failed.
    pub(crate) fn remove(&mut self, path: usize) {
        self.live.retain(|live| usize::from(*live) != path);
        self.next = 0;
    }

    /// Path `path` is live again.
    pub(crate) fn add(&mut self, path: usize) {
        self.remove(path);
        self.live.push(path as u8);
        self.live.sort_unstable();
    }

    /// The path of part `part` of the message in hand.
    #[inline]
    pub(crate) fn path(&self, part: u32) -> usize {
        usize::from(self.chosen[part as usize])
    }

    /// The message in hand goes in `parts` parts: the next one takes the paths after these.
    #[inline]
    pub(crate) fn sent(&mut self, parts: u32) {
        self.next += parts as usize;
        if self.next == self.live.len() {
            self.next = 0;
        } else if self.next > self.live.len() {
            // The turns go round; with no path there is none.
            self.next %= self.live.len().max(1);
        }
    }

    fn in_turn(&mut self, parts: usize) {
        let mut path = self.next;
        for chosen in &mut self.chosen[..parts] {
            *chosen = self.live[path];
            path += 1;
            if path == self.live.len() {
                path = 0;
            }
        }
    }

    /// The `parts` paths with the fewest requests under way; among equals, those whose turn it is.
    fn least_busy(&mut self, parts: usize, in_flight: impl Fn(usize) -> u32) {
        let mut taken = 0_u128;
        for part in 0..parts {
            if part % self.live.len() == 0 {
                taken = 0;
            }
            let best = (0..self.live.len())
                .map(|step| (self.next + step) % self.live.len())
                .map(|place| usize::from(self.live[place]))
                .filter(|path| taken & (1 << path) == 0)
                .min_by_key(|path| in_flight(*path))
                .unwrap_or(0);
            taken |= 1 << best;
            self.chosen[part] = best as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(policy: PathPolicy, paths: usize) -> PathSelector {
        PathSelector::new(policy, paths, paths, false, 65_536)
    }

    #[test]
    fn every_path_has_its_turn() {
        let mut selector = selector(PathPolicy::RoundRobin, 3);
        let mut taken = Vec::new();
        for _ in 0..4 {
            selector.in_turn(2);
            taken.extend([selector.path(0), selector.path(1)]);
            selector.sent(2);
        }
        assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0, 1]);
        for parts in [1, 2, 3] {
            selector.in_turn(parts);
            let mut paths: Vec<_> = (0..parts).map(|part| selector.path(part as u32)).collect();
            paths.sort_unstable();
            paths.dedup();
            assert_eq!(paths.len(), parts, "a path was taken twice");
        }
    }

    #[test]
    fn the_least_busy_come_first_and_none_twice() {
        let mut selector = selector(PathPolicy::LeastOutstanding, 4);
        let busy = [5, 1, 7, 1];
        selector.least_busy(3, |path| busy[path]);
        assert_eq!([0, 1, 2].map(|part| selector.path(part)), [1, 3, 0]);
        // Among equals the turn decides.
        selector.sent(2);
        selector.least_busy(2, |_| 0);
        assert_eq!([0, 1].map(|part| selector.path(part)), [2, 3]);
        let mut most = PathSelector::new(PathPolicy::LeastOutstanding, MAX_PATHS, 1, true, 128);
        most.least_busy(MAX_PATHS, |_| 0);
        assert_eq!(most.path(127), 127);
    }

    #[test]
    fn settings_bound_the_parts() {
        let parts = |selector: &PathSelector, length| selector.split(length).parts;
        let by_device = PathSelector::new(PathPolicy::RoundRobin, 8, 2, false, 65_536);
        assert_eq!(parts(&by_device, 1 << 20), 2);
        let by_path = PathSelector::new(PathPolicy::RoundRobin, 8, 2, true, 65_536);
        assert_eq!(parts(&by_path, 1 << 20), 8);
        assert_eq!(parts(&by_path, 131_071), 1);
    }
}
