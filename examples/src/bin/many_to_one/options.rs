//! The command line.

use ibnet_examples::{Arguments, Wanted};

pub(crate) const HELP: &str = "\
Many threads send to one receiver, which serves all of them on one thread.

usage: many_to_one [options]

  --simulator         use simulated devices, sim0 and sim1, whatever this host has
  --no-simulator      fail if there is no real device; implied by --device
  --device NAME       RDMA device to use (default: the first that NCCL_IB_HCA admits, and the second
                      for the receiver)
  --senders N         connections to the receiver, 1 to 1000 (default 8)
  --messages N        messages of each sender, at least 1 (default 1000)
  --size BYTES        bytes of a message, at least 8 (default 4096)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) wanted: Wanted,
    pub(crate) device: Option<String>,
    pub(crate) senders: usize,
    pub(crate) messages: usize,
    pub(crate) size: usize,
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
        let options = Self {
            wanted: Wanted::from_flags(simulator, no_simulator, names_real)?,
            device,
            senders: arguments.number("--senders", 8, 1, 1000)?,
            messages: arguments.number("--messages", 1000, 1, 1_000_000_000)?,
            size: arguments.number("--size", 4096, 8, 1 << 30)?,
        };
        arguments.end()?;
        Ok(Some(options))
    }
}
