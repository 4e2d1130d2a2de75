//! A transport for a program that has both ends of its connections in this process.

use std::error::Error;

use ibnet::{Config, Transport};

use crate::{Devices, Simulator, Wanted, check_name, check_real, say};

/// A transport, and the simulator that its devices may be of.
pub struct Scene {
    /// Over the devices that are wanted.
    pub transport: Transport,
    _simulator: Option<Simulator>,
}

impl Scene {
    /// Opens what is wanted, `simulated` devices if they are that, and only those that are in
    /// `names` unless it is empty. Prints the first lines of the program `title`: what it runs on
    /// and why.
    ///
    /// # Errors
    /// A setting of the environment that means nothing, or no such devices.
    pub fn open(
        title: &str,
        wanted: Wanted,
        simulated: usize,
        names: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        let mut config = Config::from_env()?;
        if !names.is_empty() {
            let list = format!("={}", names.join(","));
            config.hca = list.parse()?;
        }
        if wanted == Wanted::Real {
            names
                .iter()
                .try_for_each(|name| check_real(&config, name))?;
        }
        let devices = Devices::open_several(wanted, config.clone(), simulated)?;
        say!("# {title} {devices}");
        match devices {
            Devices::Real(transport) => Ok(Self {
                transport,
                _simulator: None,
            }),
            Devices::Simulated(simulator) => {
                let library = simulator.library();
                names
                    .iter()
                    .try_for_each(|name| check_name(&library, name))?;
                simulator.adapt(&mut config)?;
                Ok(Self {
                    transport: simulator.transport(config)?,
                    _simulator: Some(simulator),
                })
            }
        }
    }
}

/// The index of the device `name`, or of the device at `default`, or of the last if there are fewer.
///
/// # Errors
/// There is no such device.
pub fn index_of(
    transport: &Transport,
    name: Option<&str>,
    default: usize,
) -> Result<usize, String> {
    match name {
        Some(name) => transport.device(name).map_err(|error| error.to_string()),
        None => Ok(default.min(transport.devices().len().saturating_sub(1))),
    }
}
