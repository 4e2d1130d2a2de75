//! What a process and its devices hold: descriptors, threads, and the kernel's RDMA objects.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use crate::play::Failure;

/// KiB of this process's memory that are resident, if the kernel counts them.
pub(crate) fn resident_kib() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Counts of everything that could leak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    descriptors: usize,
    threads: usize,
    /// From `rdma resource show DEVICE`: object, number. Empty where there is no such tool.
    objects: BTreeMap<String, u64>,
}

impl Resources {
    /// Counts now, the objects being those of everybody on `devices`.
    pub(crate) fn count<'a>(devices: impl Iterator<Item = &'a str>) -> Result<Self, Failure> {
        let mut sum = BTreeMap::new();
        for device in devices {
            for (object, number) in objects(device)? {
                *sum.entry(object).or_default() += number;
            }
        }
        Ok(Self {
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            threads: fs::read_dir("/proc/self/task")?.count(),
            objects: sum,
        })
    }

    /// Counts of simulated objects. Descriptors and threads are those of a process that plays
    /// several roles, so they are not counted for one of them.
    pub(crate) fn simulated(objects: BTreeMap<String, u64>) -> Self {
        Self {
            descriptors: 0,
            threads: 0,
            objects,
        }
    }

    /// Whether there is no more of anything than in `before`. There may be less: another process
    /// on the same device may have ended since.
    pub(crate) fn is_at_most(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self
                .objects
                .iter()
                .all(|(object, number)| before.objects.get(object).is_some_and(|was| number <= was))
    }

    /// Queue pairs of everybody on the devices, if they could be counted.
    pub(crate) fn queue_pairs(&self) -> Option<u64> {
        // The kernel's name and the simulator's.
        ["qp", "qps"]
            .iter()
            .find_map(|name| self.objects.get(*name).copied())
    }

    /// How many memory regions there are; none if they could not be counted.
    pub(crate) fn memory_regions(&self) -> Option<u64> {
        // As the kernel's tool calls them, or the simulator.
        let mut counts = ["mr", "mrs"].iter().map(|name| self.objects.get(*name));
        counts.find_map(Option::<&u64>::copied)
    }

    /// Whether the kernel's objects could be counted.
    pub(crate) fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads",
            self.descriptors, self.threads
        )?;
        for (object, number) in &self.objects {
            write!(f, ", {number} {object}")?;
        }
        Ok(())
    }
}

fn objects(device: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let Ok(output) = Command::new("rdma")
        .args(["resource", "show", device])
        .output()
    else {
        return Ok(BTreeMap::new());
    };
    if !output.status.success() {
        return Err(format!(
            "rdma resource show {device}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into());
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads a line such as `1: rxe0: pd 2 cq 1 qp 1 cm_id 0 mr 0 ctx 1 srq 0`.
fn parse(text: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let (_, counts) = text
        .trim()
        .split_once(": ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .ok_or_else(|| format!("unexpected output of rdma: {text:?}"))?;
    let words: Vec<&str> = counts.split_whitespace().collect();
    words
        .chunks_exact(2)
        .map(|pair| Ok((pair[0].to_owned(), pair[1].parse::<u64>()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_tools_line_is_read() {
        let objects = parse("1: rxe0: pd 2 cq 3 qp 4 cm_id 0 mr 5 ctx 1 srq 0\n").unwrap();
        assert_eq!(objects["qp"], 4);
        assert_eq!(objects["mr"], 5);
        assert_eq!(objects.len(), 7);
        assert!(parse("").is_err());
    }
}
