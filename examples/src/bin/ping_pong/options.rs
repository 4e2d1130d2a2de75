//! The command line.

use ibnet_examples::{SIMULATOR_ALONE, Wanted};

pub(crate) const HELP: &str = "\
Latency and bandwidth between two ends, through the safe interface of ibnet.

usage: ping_pong [options]                    both ends on this host
       ping_pong --listen [options]           the first of two hosts; prints a handle
       ping_pong --connect HANDLE [options]   the second

  --simulator         use simulated devices, sim0 and sim1, whatever this host has
  --no-simulator      fail if there is no real device; implied by --listen, by --connect and by
                      devices that are named without --simulator
  --device NAME       RDMA device to use (default: the first that NCCL_IB_HCA admits)
  --peer-device NAME  device of the other end, if it is on this host (default: the same)
  --iters N           round trips for each size (default 1000); both hosts need the same
  --window N          messages under way in the bandwidth test (default 16); likewise
  --max-size BYTES    largest message, at least 8 (default 4194304); likewise";

/// Bytes of the smallest message that is measured.
pub(crate) const SMALLEST: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Both,
    Listen,
    Connect(String),
    Help,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) wanted: Wanted,
    pub(crate) device: Option<String>,
    pub(crate) peer_device: Option<String>,
    pub(crate) iterations: usize,
    pub(crate) window: usize,
    pub(crate) max_size: usize,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            role: Role::Both,
            wanted: Wanted::Any,
            device: None,
            peer_device: None,
            iterations: 1000,
            window: 16,
            max_size: 4 << 20,
        };
        let (mut simulator, mut no_simulator) = (false, false);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--help" | "-h" => options.role = Role::Help,
                "--listen" => options.role = Role::Listen,
                "--connect" => options.role = Role::Connect(value()?),
                "--simulator" => simulator = true,
                "--no-simulator" => no_simulator = true,
                "--device" => options.device = Some(value()?),
                "--peer-device" => options.peer_device = Some(value()?),
                "--iters" => options.iterations = number(&argument, &value()?, 1, 10_000_000)?,
                // 256 requests can be outstanding; one place stays free.
                "--window" => options.window = number(&argument, &value()?, 1, 255)?,
                "--max-size" => {
                    options.max_size = number(&argument, &value()?, SMALLEST, i32::MAX as usize)?;
                }
                other => return Err(format!("unknown option {other}")),
            }
        }
        let is_alone = matches!(options.role, Role::Listen | Role::Connect(_));
        let names_real = options.device.is_some() || options.peer_device.is_some();
        if simulator && is_alone {
            return Err(SIMULATOR_ALONE.into());
        }
        options.wanted = Wanted::from_flags(simulator, no_simulator, is_alone || names_real)?;
        Ok(options)
    }

    /// The device of the other end on this host, if one is named.
    pub(crate) fn device_of_peer(&self) -> Option<&str> {
        self.peer_device.as_deref().or(self.device.as_deref())
    }

    /// The options for the peer that this process starts itself.
    pub(crate) fn for_peer(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (name, value) in [
            ("--iters", self.iterations),
            ("--window", self.window),
            ("--max-size", self.max_size),
        ] {
            arguments.extend([name.to_owned(), value.to_string()]);
        }
        if let Some(device) = self.device_of_peer() {
            arguments.extend(["--device".to_owned(), device.to_owned()]);
        }
        arguments
    }
}

fn number(option: &str, text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "{option} {text}: expected a number from {least} to {most}"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_peer_measures_the_same() {
        let options = parse("--iters 7 --window 3 --max-size 100 --peer-device b0").unwrap();
        let peer = Options::parse(options.for_peer().into_iter()).unwrap();
        assert_eq!((peer.iterations, peer.window, peer.max_size), (7, 3, 100));
        assert_eq!(peer.device.as_deref(), Some("b0"));
    }

    #[test]
    fn the_simulator_is_for_those_who_name_nothing_real() {
        let wanted = |line| parse(line).unwrap().wanted;
        assert_eq!(wanted("--iters 5"), Wanted::Any);
        assert_eq!(wanted("--no-simulator"), Wanted::Real);
        assert_eq!(wanted("--device mlx5_0"), Wanted::Real);
        assert_eq!(wanted("--peer-device mlx5_0"), Wanted::Real);
        assert_eq!(wanted("--listen"), Wanted::Real);
        assert_eq!(wanted("--connect 00"), Wanted::Real);
        assert_eq!(wanted("--peer-device sim1 --simulator"), Wanted::Simulated);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("--simulator --no-simulator", "--no-simulator"),
            ("--simulator --listen", "--simulator"),
            ("--iters 0", "--iters"),
            ("--window 256", "255"),
            ("--max-size 7", "from 8"),
            ("--wat", "--wat"),
            ("--iters", "value"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.contains(named), "{problem}");
        }
    }
}
