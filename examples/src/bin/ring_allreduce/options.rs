//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ibnet_examples::Wanted;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
A checked ring all-reduce of float32 by several ranks through the network plugin. It runs on the
machine's RDMA devices, each rank a process, or, where there are none, on simulated ones, each rank
a thread.

usage: ring_allreduce [options]

  --simulator      use simulated devices, sim0 and sim1, whatever the machine has
  --no-simulator   fail if there is no real device; implied by --plugin and by --devices
                   without --simulator
  --plugin PATH    the plugin to load (default: the one beside this program; on simulated
                   devices it is linked in)
  --ranks N        ranks, 2 to 64 (default 4)
  --size SIZES     bytes: one size, FROM:TO (doubling), or a list with commas;
                   K, M and G are powers of 1024 (default 8,1K,64K,1M,16M)
  --iters N        timed rounds of each size (default 10)
  --warmup N       rounds before them (default 2)
  --devices LIST   names or numbers of devices, given to the ranks in turn
                   (default: all that the plugin has)
  --check          check the result of every round, not only of the last one of each size
  --no-check       check nothing
  --timeout SECS   give up when nothing happens for so long (default 60)
  --verbose        show what the plugin logs beside warnings";

/// Bytes of one size at most: three buffers of it are needed in each rank.
const MAX_SIZE: usize = 16 << 30;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    /// Start the ranks.
    Launch(Options),
    /// Be this rank.
    Rank(usize, Options),
}

/// When results are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Never,
    /// After the last round of each size.
    Last,
    Always,
}

/// What ranks and launcher must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) wanted: Wanted,
    pub(crate) plugin: Option<PathBuf>,
    pub(crate) ranks: usize,
    /// Bytes, each a multiple of 4 and at least 4.
    pub(crate) sizes: Vec<usize>,
    pub(crate) iterations: u32,
    pub(crate) warmup: u32,
    pub(crate) devices: Vec<String>,
    pub(crate) check: Check,
    pub(crate) timeout: Duration,
    pub(crate) verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wanted: Wanted::Any,
            plugin: None,
            ranks: 4,
            sizes: vec![8, 1 << 10, 64 << 10, 1 << 20, 16 << 20],
            iterations: 10,
            warmup: 2,
            devices: Vec::new(),
            check: Check::Last,
            timeout: Duration::from_secs(60),
            verbose: false,
        }
    }
}

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
        let mut arguments = arguments;
        let mut options = Self::default();
        let mut rank = None;
        let (mut simulator, mut no_simulator) = (false, false);
        while let Some(name) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{name} needs a value"))
            };
            match name.as_str() {
                "-h" | "--help" => return Ok(Command::Help),
                "--simulator" => simulator = true,
                "--no-simulator" => no_simulator = true,
                "--plugin" => options.plugin = Some(value()?.into()),
                "--ranks" => options.ranks = number(&name, &value()?, 2, 64)?,
                "--size" => options.sizes = sizes(&value()?)?,
                "--iters" => options.iterations = number(&name, &value()?, 1, 1_000_000)?,
                "--warmup" => options.warmup = number(&name, &value()?, 0, 1_000_000)?,
                "--devices" => options.devices = list(&value()?),
                "--check" => options.check = Check::Always,
                "--no-check" => options.check = Check::Never,
                "--timeout" => {
                    options.timeout = Duration::from_secs(number(&name, &value()?, 1, 86_400)?);
                }
                "--verbose" => options.verbose = true,
                // How the launcher calls itself again.
                "--rank" => rank = Some(number(&name, &value()?, 0, 63)?),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        let names_real = options.plugin.is_some() || !options.devices.is_empty();
        if simulator && options.plugin.is_some() {
            return Err("--plugin is for real devices; with --simulator it is linked in".into());
        }
        options.wanted = Wanted::from_flags(simulator, no_simulator, names_real)?;
        match rank {
            None => Ok(Command::Launch(options)),
            Some(rank) if rank < options.ranks => Ok(Command::Rank(rank, options)),
            Some(rank) => Err(format!("there is no rank {rank} of {}", options.ranks)),
        }
    }

    /// The arguments with which rank `rank`, as a process, parses the same options. Processes are for
    /// real devices.
    pub(crate) fn for_rank(&self, rank: usize) -> Vec<String> {
        let mut arguments = vec![
            "--no-simulator".to_owned(),
            "--rank".to_owned(),
            rank.to_string(),
            "--ranks".to_owned(),
            self.ranks.to_string(),
            "--size".to_owned(),
            self.sizes
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(","),
            "--iters".to_owned(),
            self.iterations.to_string(),
            "--warmup".to_owned(),
            self.warmup.to_string(),
            "--timeout".to_owned(),
            self.timeout.as_secs().to_string(),
        ];
        if !self.devices.is_empty() {
            arguments.extend(["--devices".to_owned(), self.devices.join(",")]);
        }
        match self.check {
            Check::Never => arguments.push("--no-check".to_owned()),
            Check::Last => {}
            Check::Always => arguments.push("--check".to_owned()),
        }
        if self.verbose {
            arguments.push("--verbose".to_owned());
        }
        arguments
    }

    /// The largest size in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// The plugin to load: the one named, or the one beside this program.
    pub(crate) fn find_plugin(&self) -> Result<PathBuf, String> {
        if let Some(path) = &self.plugin {
            // A name without a folder is looked for as the system looks for libraries.
            return if path.components().count() == 1 || path.is_file() {
                Ok(path.clone())
            } else {
                Err(format!("there is no plugin {}", path.display()))
            };
        }
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder = program.parent().unwrap_or_else(|| Path::new("."));
        // As it is installed; as cargo builds it for another package; as cargo builds it by itself.
        let places = [
            "libnccl-net-ibnet.so",
            "deps/libncclnet_ffi.so",
            "libncclnet_ffi.so",
            // As the test machine lays programs and libraries out.
            "../lib/libnccl-net-ibnet.so",
        ];
        places
            .iter()
            .map(|place| folder.join(place))
            .find(|path| path.is_file())
            .ok_or_else(|| {
                format!(
                    "there is no plugin in {}: looked for {}; give it with --plugin",
                    folder.display(),
                    places.join(", ")
                )
            })
    }
}

fn number<T>(name: &str, text: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    text.parse()
        .ok()
        .filter(|number| (&least..=&most).contains(&number))
        .ok_or_else(|| format!("{name} {text}: expected a number from {least} to {most}"))
}

fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// One size, a doubling range or a list. Each is rounded down to whole elements.
fn sizes(text: &str) -> Result<Vec<usize>, String> {
    if let Some((from, to)) = text.split_once(':') {
        let (from, to) = (size(from)?, size(to)?);
        if from > to {
            return Err(format!(
                "--size {text}: the first is larger than the second"
            ));
        }
        let doubling = std::iter::successors(Some(from), |size| size.checked_mul(2));
        return Ok(doubling.take_while(|size| *size <= to).collect());
    }
    list(text)
        .iter()
        .map(|item| size(item))
        .collect::<Result<Vec<_>, _>>()
        .and_then(|sizes| {
            if sizes.is_empty() {
                Err("--size needs at least one size".to_owned())
            } else {
                Ok(sizes)
            }
        })
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.trim().char_indices().last() {
        Some((end, 'K' | 'k')) => (&text.trim()[..end], 1 << 10),
        Some((end, 'M' | 'm')) => (&text.trim()[..end], 1 << 20),
        Some((end, 'G' | 'g')) => (&text.trim()[..end], 1 << 30),
        _ => (text.trim(), 1),
    };
    let bytes = digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    bytes
        .map(|bytes| bytes / 4 * 4)
        .filter(|bytes| (4..=MAX_SIZE).contains(bytes))
        .ok_or_else(|| format!("size {text}: expected 4 to {MAX_SIZE} bytes, with K, M or G"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(sizes("8:64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(sizes("8:63"), Ok(vec![8, 16, 32]));
        assert_eq!(sizes("1K"), Ok(vec![1024]));
        assert_eq!(sizes("1k, 2M,4"), Ok(vec![1024, 2 << 20, 4]));
        assert_eq!(sizes("1023"), Ok(vec![1020]), "whole elements");
        for wrong in [
            "",
            "3",
            "-4",
            "8:4",
            "x",
            "1T",
            "99999999999999999999",
            "17G",
            ":",
        ] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rank_gets_what_the_launcher_got() {
        let Ok(Command::Launch(options)) =
            parse("--ranks 3 --size 4:1M --iters 5 --warmup 0 --devices a0,b0 --check --verbose")
        else {
            panic!("a launch")
        };
        let again = Options::parse(options.for_rank(2).into_iter());
        assert_eq!(again, Ok(Command::Rank(2, options)));
    }

    #[test]
    fn the_simulator_is_for_those_who_name_nothing_real() {
        let wanted = |line| match parse(line) {
            Ok(Command::Launch(options)) => Ok(options.wanted),
            Ok(_) => panic!("a launch"),
            Err(problem) => Err(problem),
        };
        assert_eq!(wanted("--ranks 2"), Ok(Wanted::Any));
        assert_eq!(wanted("--no-simulator"), Ok(Wanted::Real));
        assert_eq!(wanted("--devices mlx5_0"), Ok(Wanted::Real));
        assert_eq!(wanted("--plugin x.so"), Ok(Wanted::Real));
        assert_eq!(wanted("--simulator"), Ok(Wanted::Simulated));
        assert_eq!(wanted("--devices sim1 --simulator"), Ok(Wanted::Simulated));
        assert!(wanted("--simulator --no-simulator").is_err());
        assert!(wanted("--simulator --plugin x.so").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--ranks 1",
            "--ranks 65",
            "--iters 0",
            "--rank 4",
            "--sizes 8",
            "--size",
            "x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(parse("--ranks 2 --help"), Ok(Command::Help));
    }
}
