//! The command line.

use std::time::Duration;

use ibnet_examples::{Arguments, Wanted};

pub(crate) const HELP: &str = "\
Awaits messages on many connections at once, and measures what waiting costs.

usage: idle_receivers [options]

  --simulator         use simulated devices, sim0 and sim1, whatever this host has
  --no-simulator      fail if there is no real device; implied by --device
  --device NAME       RDMA device to use (default: the first that NCCL_IB_HCA admits, and the second
                      for the receivers)
  --connections N     1 to 1000 (default 64)
  --messages N        messages of each connection (default 100)
  --idle MILLISECONDS how long nothing is sent (default 1000)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) wanted: Wanted,
    pub(crate) device: Option<String>,
    pub(crate) connections: usize,
    pub(crate) messages: u32,
    pub(crate) idle: Duration,
}

impl Options {
    /// None if the help is wanted.
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Option<Self>, String> {
        if arguments.flag("--help") | arguments.flag("-h") {
            return Ok(None);
        }
        let (simulator, no_simulator) = arguments.simulator_flags();
        let device = arguments.value("--device")?;
        let names_real = device.is_some();
        let idle = arguments.number("--idle", 1000, 1, 3_600_000)?;
        let options = Self {
            wanted: Wanted::from_flags(simulator, no_simulator, names_real)?,
            device,
            connections: arguments.number("--connections", 64, 1, 1000)?,
            messages: arguments.number("--messages", 100, 1, 1_000_000)? as u32,
            idle: Duration::from_millis(idle as u64),
        };
        arguments.end()?;
        Ok(Some(options))
    }
}
