//! Simulated devices, and which of the settings for the devices of the host they are used with.

use ibnet::{Config, Error, Transport};
use ibnet_simverbs::{BuildError, DeviceSpec, Fabric};

use crate::say;

/// RoCE devices that exist in this process only, `sim0`, `sim1` and so on, joined by a network.
pub struct Simulator {
    fabric: Fabric,
    devices: usize,
    reason: Option<Error>,
}

impl Simulator {
    pub(crate) fn new(devices: usize, reason: Option<Error>) -> Result<Self, BuildError> {
        let builder = (0..devices).fold(Fabric::builder(), |builder, number| {
            builder.device(DeviceSpec::roce(name(number)))
        });
        Ok(Self {
            fabric: builder.build()?,
            devices,
            reason,
        })
    }

    /// Why real devices are not used, if that is not the user's wish.
    pub fn reason(&self) -> Option<&Error> {
        self.reason.as_ref()
    }

    /// The devices as a library of verbs. It has none when the simulator is gone.
    pub fn library(&self) -> ibnet_verbs::Library {
        self.fabric.library()
    }

    /// A transport over the devices.
    ///
    /// # Errors
    /// As for [`Transport::with_library`].
    pub fn transport(&self, config: Config) -> Result<Transport, Error> {
        Transport::with_library(self.library(), config)
    }

    /// Leaves out what `config` has of rules that fit only the devices of the host, and prints why
    /// there is a simulator and what was left out.
    ///
    /// # Errors
    /// There is no transport with what remains.
    pub fn adapt(&self, config: &mut Config) -> Result<(), Error> {
        if let Some(reason) = &self.reason {
            say!("# because: {reason}");
        }
        let ignored = self.leave_out(config)?;
        if !ignored.is_empty() {
            let ignored = ignored.join(" ");
            say!("# ignored, because it is for the devices of this host: {ignored}");
        }
        Ok(())
    }

    /// The variables that were left out of the settings: a filter that admits no simulated device,
    /// and rules for GIDs with which one of the devices has none.
    fn leave_out(&self, config: &mut Config) -> Result<Vec<&'static str>, Error> {
        let defaults = Config::default();
        let mut ignored = Vec::new();
        if !(0..self.devices).any(|number| config.hca.admits(&name(number), 1)) {
            ignored.push("NCCL_IB_HCA");
            config.hca = defaults.hca;
        }
        let wanted = (0..self.devices).filter(|number| config.hca.admits(&name(*number), 1));
        let offered = match self.transport(config.clone()) {
            Ok(transport) => transport.devices().len(),
            Err(Error::NoDevices { .. }) => 0,
            Err(error) => return Err(error),
        };
        if offered < wanted.count() {
            let mut leave_out = |variable, is_set: bool| ignored.extend(is_set.then_some(variable));
            leave_out("NCCL_IB_GID_INDEX", config.gid_index != defaults.gid_index);
            leave_out(
                "NCCL_IB_ADDR_RANGE",
                config.gid.ranges != defaults.gid.ranges,
            );
            leave_out(
                "IBNET_GID_NETDEVS",
                config.gid.netdevs != defaults.gid.netdevs,
            );
            config.gid_index = defaults.gid_index;
            config.gid.ranges = defaults.gid.ranges;
            config.gid.netdevs = defaults.gid.netdevs;
        }
        Ok(ignored)
    }
}

/// What the simulated device of this number is called.
fn name(number: usize) -> String {
    format!("sim{number}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What is ignored of these variables, and the names of the devices that there are without.
    fn adapted(variables: &[(&str, &str)]) -> (Vec<&'static str>, Vec<String>) {
        let mut config = Config::from_variables(&|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
        .unwrap();
        let simulator = Simulator::new(2, None).unwrap();
        let ignored = simulator.leave_out(&mut config).unwrap();
        let transport = simulator.transport(config).unwrap();
        for device in 0..transport.devices().len() {
            let reports = transport.port_reports(device).unwrap();
            assert!(reports.iter().all(|port| port.gid.is_ok()), "{variables:?}");
        }
        let names = transport.devices().into_iter().map(|device| device.name);
        (ignored, names.collect())
    }

    #[test]
    fn rules_for_the_devices_of_the_host_are_left_out() {
        for (name, value) in [
            ("NCCL_IB_HCA", "mlx5_0:1"),
            ("NCCL_IB_HCA", "^sim"),
            ("NCCL_IB_GID_INDEX", "77"),
            ("NCCL_IB_ADDR_RANGE", "203.0.113.0/24"),
            ("IBNET_GID_NETDEVS", "bond7"),
        ] {
            let (ignored, names) = adapted(&[(name, value)]);
            assert_eq!(ignored, [name]);
            assert_eq!(names, ["sim0", "sim1"]);
        }
        let both = [("NCCL_IB_HCA", "mlx5_0"), ("NCCL_IB_GID_INDEX", "77")];
        assert_eq!(adapted(&both).0.len(), 2);
    }

    #[test]
    fn rules_that_fit_stay() {
        let (ignored, names) = adapted(&[("NCCL_IB_HCA", "=sim1")]);
        assert!(ignored.is_empty(), "{ignored:?}");
        assert_eq!(names, ["sim1"]);
        // A rule for other ports is none for these.
        for rule in ["mlx5_0=77", "0"] {
            let (ignored, _) = adapted(&[("NCCL_IB_GID_INDEX", rule)]);
            assert!(ignored.is_empty(), "{ignored:?}");
        }
    }
}
