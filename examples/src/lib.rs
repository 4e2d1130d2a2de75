//! Where the examples run: on the machine's RDMA devices, or on simulated ones.
//!
//! Simulated devices belong to the process, so that all ends of all connections must be threads of
//! it. What else differs is nothing: the same code runs on both.

mod arguments;
mod console;
mod log;
mod parent;
mod scene;
mod simulator;

use std::fmt;

use ibnet::{Config, Error, HcaFilter, Transport};

pub use arguments::Arguments;
pub use console::{conclude, options_of, print_error, print_line, refuse};
pub use log::{show_warnings, showing_warnings};
pub use parent::die_with_parent;
pub use scene::{Scene, index_of};
pub use simulator::Simulator;

/// Why the simulator cannot have its two ends in two processes.
pub const SIMULATOR_ALONE: &str = "--simulator cannot go with --listen or --connect: simulated devices \
     exist in one process only, which must have both ends";

/// Which devices the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Real ones if there are any, simulated ones otherwise.
    Any,
    /// Real ones.
    Real,
    /// Simulated ones.
    Simulated,
}

impl Wanted {
    /// From the options `--simulator` and `--no-simulator`, and whether the other options are about
    /// real devices where neither is given, because they name some.
    ///
    /// # Errors
    /// Both options are given.
    pub fn from_flags(
        simulator: bool,
        no_simulator: bool,
        names_real: bool,
    ) -> Result<Self, String> {
        match (simulator, no_simulator) {
            (true, true) => Err("--simulator and --no-simulator exclude each other".to_owned()),
            (true, false) => Ok(Self::Simulated),
            (false, true) => Ok(Self::Real),
            (false, false) if names_real => Ok(Self::Real),
            (false, false) => Ok(Self::Any),
        }
    }
}

/// Says so if a device that the user names is not there. The transport knows only that `NCCL_IB_HCA`,
/// by which it is told the name, admits none.
///
/// # Errors
/// There is no such device in the library, but others are.
pub fn check_name(library: &ibnet_verbs::Library, name: &str) -> Result<(), String> {
    // What else is wrong is told when the devices are opened.
    let Ok(devices) = library.devices() else {
        return Ok(());
    };
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    // A name may carry a port (`mlx5_0:1`).
    let wanted = name.split(':').next().unwrap_or_default();
    if names.is_empty() || names.contains(&wanted) {
        return Ok(());
    }
    let names = names.join(", ");
    Err(format!(
        "there is no RDMA device {wanted}; there are {names}"
    ))
}

/// As [`check_name`], for the devices of this host, as `config` has them opened.
///
/// # Errors
/// This host has devices, but not the one that is named.
pub fn check_real(config: &Config, name: &str) -> Result<(), String> {
    let library = match &config.library {
        Some(path) => ibnet_verbs::Library::load_from(path),
        None => ibnet_verbs::Library::load(),
    };
    // That there is no library is told when the devices are opened.
    library.map_or(Ok(()), |library| check_name(&library, name))
}

/// What there is to run on.
pub enum Devices {
    /// The machine's devices, open.
    Real(Transport),
    /// Simulated devices.
    Simulated(Simulator),
}

impl Devices {
    /// Opens what is wanted. `config` says which of the machine's devices may be used.
    ///
    /// # Errors
    /// Real devices are wanted and none can be used, or they are there and something else is wrong,
    /// such as a setting; or the simulator cannot be made.
    pub fn open(wanted: Wanted, config: Config) -> Result<Self, Box<dyn std::error::Error>> {
        Self::open_several(wanted, config, 2)
    }

    /// As [`open`](Self::open), with `count` devices if they are simulated.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_several(
        wanted: Wanted,
        config: Config,
        count: usize,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        if wanted == Wanted::Simulated {
            return Ok(Self::Simulated(Simulator::new(count, None)?));
        }
        match Transport::open(config.clone()) {
            Ok(transport) => Ok(Self::Real(transport)),
            Err(reason @ (Error::LibraryMissing(_) | Error::NoDevices { .. }))
                if wanted == Wanted::Any && !has_others(&config) =>
            {
                Ok(Self::Simulated(Simulator::new(count, Some(reason))?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether only `NCCL_IB_HCA` keeps the devices of this host from being used, which is the user's to
/// mend.
fn has_others(config: &Config) -> bool {
    let mut unfiltered = config.clone();
    unfiltered.hca = HcaFilter::default();
    config.hca != unfiltered.hca && Transport::open(unfiltered).is_ok()
}

/// For the first line of a program's output: what it runs on.
impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real(_) => "on real devices",
            Self::Simulated(_) => "on simulated devices",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Settings with which no machine has a usable device.
    fn no_device() -> Config {
        let mut config = Config::default();
        config.library = Some("/no/such/libibverbs.so".into());
        config
    }

    #[test]
    fn without_a_device_there_is_the_simulator_and_why() {
        let devices = Devices::open(Wanted::Any, no_device()).unwrap();
        assert_eq!(devices.to_string(), "on simulated devices");
        let Devices::Simulated(simulator) = devices else {
            panic!("no machine has such a device")
        };
        let reason = simulator.reason().unwrap().to_string();
        assert!(reason.contains("/no/such/libibverbs.so"), "{reason}");
        let transport = simulator.transport(Config::default()).unwrap();
        let names: Vec<_> = transport
            .devices()
            .into_iter()
            .map(|device| device.name)
            .collect();
        assert_eq!(names, ["sim0", "sim1"]);
    }

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let Devices::Simulated(simulator) = Devices::open(Wanted::Simulated, no_device()).unwrap()
        else {
            panic!("simulated ones are wanted")
        };
        let library = simulator.library();
        assert_eq!(check_name(&library, "sim1"), Ok(()));
        assert_eq!(check_name(&library, "sim1:1"), Ok(()));
        let problem = check_name(&library, "sim").unwrap_err();
        assert_eq!(problem, "there is no RDMA device sim; there are sim0, sim1");
        drop(simulator);
        // Of a machine without devices, opening them tells more.
        assert_eq!(check_name(&library, "sim1"), Ok(()));
    }

    #[test]
    fn a_wish_is_a_wish() {
        assert!(Devices::open(Wanted::Real, no_device()).is_err());
        let devices = Devices::open(Wanted::Simulated, no_device()).unwrap();
        assert!(matches!(devices, Devices::Simulated(simulator) if simulator.reason().is_none()));
    }

    #[test]
    fn what_the_user_must_mend_is_not_hidden_by_the_simulator() {
        let config = Config::default().retry_count(99);
        let error = Devices::open(Wanted::Any, config).err().unwrap();
        assert!(error.to_string().contains("retry_count=99"), "{error}");
    }
}
