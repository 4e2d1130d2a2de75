//! What the figures were measured on. Nothing here names a host.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) processor: String,
    /// How many processors there are.
    pub(crate) processors: usize,
    /// The kernel's version.
    pub(crate) kernel: String,
    /// Whether the processor says that it is a virtual machine's.
    pub(crate) is_virtual: bool,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            kernel: kernel.trim().to_owned(),
            ..Self::from_cpuinfo(&cpuinfo)
        }
    }

    fn from_cpuinfo(text: &str) -> Self {
        let value = |line: &str| {
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
        };
        let first = |key: &str| {
            text.lines()
                .find(|line| line.starts_with(key))
                .and_then(value)
        };
        let is_processor = |line: &&str| line.starts_with("processor");
        Self {
            processor: first("model name").unwrap_or_else(|| "unknown".to_owned()),
            processors: text.lines().filter(is_processor).count(),
            kernel: String::new(),
            is_virtual: first("flags")
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let kind = if self.is_virtual { " (virtual)" } else { "" };
        format!(
            "{} x {}{kind}, Linux {}",
            self.processors, self.processor, self.kernel
        )
    }
}

/// Today in UTC: 2026-01-31.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let (year, month, day) = date(since.map_or(0, |since| since.as_secs() / 86_400));
    format!("{year:04}-{month:02}-{day:02}")
}

/// The date so many days after 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_453), (2025, 12, 31));
        assert_eq!(date(20_454), (2026, 1, 1));
    }

    #[test]
    fn a_machine_is_read() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: fpu hypervisor\n\
            \nprocessor\t: 1\nmodel name\t: Some CPU @ 2 GHz\n";
        let machine = Machine::from_cpuinfo(text);
        assert_eq!(
            (machine.processor.as_str(), machine.processors),
            ("Some CPU @ 2 GHz", 2)
        );
        assert!(machine.is_virtual);
        assert!(!Machine::from_cpuinfo("").is_virtual);
    }
}
