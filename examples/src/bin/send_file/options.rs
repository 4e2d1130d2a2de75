//! The command line.

use ibnet_examples::{Arguments, SIMULATOR_ALONE, Wanted};

pub(crate) const HELP: &str = "\
Sends a file over RDMA and makes sure that its copy is the same.

usage: send_file FILE --output COPY [options]        both ends on this host
       send_file --listen --output COPY [options]    the receiver of two hosts; prints a handle
       send_file --connect HANDLE FILE [options]     the sender

  --simulator         use simulated devices, sim0 and sim1, whatever this host has
  --no-simulator      fail if there is no real device; implied by --listen, by --connect and by
                      devices that are named without --simulator
  --device NAME       RDMA device to use (default: the first that NCCL_IB_HCA admits)
  --peer-device NAME  device of the receiver, if it is on this host (default: the same)
  --chunk BYTES       bytes of a message, 64 to 67108864 (default 1048576)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Both { file: String, output: String },
    Listen { output: String },
    Connect { handle: String, file: String },
    Help,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) wanted: Wanted,
    pub(crate) device: Option<String>,
    pub(crate) peer_device: Option<String>,
    pub(crate) chunk: usize,
}

impl Options {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Self, String> {
        let help = arguments.flag("--help") | arguments.flag("-h");
        let (simulator, no_simulator) = arguments.simulator_flags();
        let device = arguments.value("--device")?;
        let peer_device = arguments.value("--peer-device")?;
        let chunk = arguments.number("--chunk", 1 << 20, 64, 64 << 20)?;
        let listen = arguments.flag("--listen");
        let handle = arguments.value("--connect")?;
        let output = arguments.value("--output")?;
        let is_alone = listen || handle.is_some();
        if simulator && is_alone {
            return Err(SIMULATOR_ALONE.into());
        }
        let names_real = device.is_some() || peer_device.is_some();
        let wanted = Wanted::from_flags(simulator, no_simulator, is_alone || names_real)?;
        let mut files = arguments.rest()?.into_iter();
        let role = match (help, listen, handle, files.next(), output) {
            (true, ..) => Role::Help,
            (_, false, None, Some(file), Some(output)) => Role::Both { file, output },
            (_, true, None, None, Some(output)) => Role::Listen { output },
            (_, false, Some(handle), Some(file), None) => Role::Connect { handle, file },
            _ => return Err("a file, where its copy goes, or one of them and the peer".into()),
        };
        if let Some(another) = files.next() {
            return Err(format!("one file at a time, and not {another}"));
        }
        Ok(Self {
            role,
            wanted,
            device,
            peer_device,
            chunk,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(Arguments::of_line(line))
    }

    #[test]
    fn each_role_has_what_it_needs() {
        let role = |line| parse(line).unwrap().role;
        let (file, output) = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            role("a --output b"),
            Role::Both {
                file: file.clone(),
                output: output.clone()
            }
        );
        assert_eq!(role("--listen --output b"), Role::Listen { output });
        let handle = "00".to_owned();
        assert_eq!(role("--connect 00 a"), Role::Connect { handle, file });
        assert_eq!(role("--help"), Role::Help);
        assert_eq!(parse("--listen --output b").unwrap().wanted, Wanted::Real);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("a", "where its copy goes"),
            ("--output b", "a file"),
            ("a c --output b", "not c"),
            ("--listen a --output b", "one of them"),
            ("--connect 00 a --output b", "one of them"),
            ("a --output b --chunk 63", "from 64"),
            ("a --output b --wat", "--wat"),
            ("--listen --output b --simulator", "--simulator"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.contains(named), "{line}: {problem}");
        }
    }
}
