//! The command line.

use std::time::Duration;

use ibnet_examples::{Arguments, Wanted};

pub(crate) const HELP: &str = "\
Sends over one port, then over two ports as one device, and counts what each carried.

usage: virtual_device [options]

  --simulator          use simulated devices, sim0 to sim3, whatever this host has
  --no-simulator       fail if there are no real devices; implied by devices that are named
                       without --simulator
  --devices A,B        the two ports of the sender (default: the first two that NCCL_IB_HCA admits)
  --peer-devices C,D   the two ports of the receiver (default: the next two, or the last)
  --size BYTES         bytes of a message, 8 to 1073741824 (default 1048576)
  --messages N         messages of each measurement (default 64)";

/// How long a connection may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) wanted: Wanted,
    pub(crate) devices: Vec<String>,
    pub(crate) peer_devices: Vec<String>,
    pub(crate) size: usize,
    pub(crate) messages: usize,
}

impl Options {
    /// None if the help is wanted.
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Option<Self>, String> {
        if arguments.flag("--help") | arguments.flag("-h") {
            return Ok(None);
        }
        let (simulator, no_simulator) = arguments.simulator_flags();
        let devices = two("--devices", arguments.value("--devices")?)?;
        let peer_devices = two("--peer-devices", arguments.value("--peer-devices")?)?;
        let names_real = !devices.is_empty() || !peer_devices.is_empty();
        let options = Self {
            wanted: Wanted::from_flags(simulator, no_simulator, names_real)?,
            devices,
            peer_devices,
            size: arguments.number("--size", 1 << 20, 8, 1 << 30)?,
            messages: arguments.number("--messages", 64, 1, 1_000_000)?,
        };
        arguments.end()?;
        Ok(Some(options))
    }

    /// All devices that are named, if those of both ends are.
    pub(crate) fn names(&self) -> Vec<String> {
        if self.devices.is_empty() || self.peer_devices.is_empty() {
            return Vec::new();
        }
        [&self.devices[..], &self.peer_devices[..]].concat()
    }
}

fn two(option: &str, value: Option<String>) -> Result<Vec<String>, String> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    if names.len() == 2 {
        Ok(names)
    } else {
        Err(format!("{option} {value}: expected two names"))
    }
}
