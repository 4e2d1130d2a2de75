//! Service level and traffic class: by which the network tells the packets of connections apart.
//!
//! InfiniBand sorts packets by the service level (4 bits; the subnet manager maps it to virtual lanes),
//! RoCE by the traffic class (8 bits: DSCP and ECN of the IP header). NCCL has one number for both, the
//! traffic class of the communicator (`ncclConfig_t.trafficClass`): "IB networks use service level, RoCE
//! networks use type of service".
//!
//! The sender decides for both directions and tells the receiver in the handshake: what is
//! acknowledged and announced against the data belongs to the same flow.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::config::Config;
use crate::device::nic::Nic;
use crate::wire::message::Link;
use crate::wire::service::{MAX_LEVEL, Service};

/// Of a sender's data over `link`, if its application asks for the traffic class `wish`. The
/// environment's settings win.
pub(crate) fn of_data(config: &Config, link: Link, wish: Option<u8>) -> Service {
    // Never cut to four bits: another level than the one asked for may have no lane at all (pitfall
    // 43).
    let wanted_level = wish.filter(|class| link == Link::InfiniBand && *class <= MAX_LEVEL);
    Service {
        level: config.service_level.or(wanted_level).unwrap_or(0),
        traffic_class: config.traffic_class.or(wish).unwrap_or(0),
    }
}

/// Of the announcements of a receiver whose sender's data has this.
pub(crate) fn of_cts(service: Service, config: &Config) -> Service {
    Service {
        traffic_class: config.fifo_traffic_class.unwrap_or(service.traffic_class),
        ..service
    }
}

/// In words, with what the devices of `nic` send instead: an administrator can set a traffic class
/// for all packets of a port of mlx5.
pub(crate) fn describe(service: Service, nic: &Nic, config: &Config) -> String {
    let mut text = service.to_string();
    if nic.link() != Link::Ethernet {
        return text;
    }
    for device in nic.members() {
        let (name, port) = (device.pd.context().device_name(), device.info.port);
        let Some((class, file)) = imposed_class(&config.sysfs, name, port) else {
            continue;
        };
        if class != service.traffic_class {
            text += &format!("; but {name}:{port} sends {class} ({file})");
        }
    }
    text
}

/// The traffic class that mlx5's driver puts into all RoCE packets of a port, and the file that says
/// so. The first line is `Global tclass=106` if one is set; rules for single addresses follow.
fn imposed_class(sysfs: &Path, device: &str, port: u8) -> Option<(u8, String)> {
    let file = sysfs.join(format!("class/infiniband/{device}/tc/{port}/traffic_class"));
    let text = fs::read_to_string(&file).ok()?;
    let class = text.lines().find_map(|line| {
        let number = line.trim().strip_prefix("Global tclass=")?;
        number.trim().parse().ok()
    })?;
    Some((class, file.display().to_string()))
}

/// Traffic classes of which it was told that they are not the service level.
#[derive(Default)]
pub(crate) struct Complaints(Mutex<BTreeSet<u8>>);

impl Complaints {
    /// Tells, once for each, that an application which asks for the traffic class `wish` on `link` gets
    /// another service level.
    pub(crate) fn tell(&self, config: &Config, link: Link, wish: Option<u8>) {
        let Some(class) = wish.filter(|_| link == Link::InfiniBand) else {
            return;
        };
        let level = of_data(config, link, wish).level;
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if level == class || !told.insert(class) {
            return;
        }
        let why = match config.service_level {
            Some(_) => "`service_level` wins",
            None => "there are 0 to 15",
        };
        tracing::warn!(
            "traffic class {class} is asked for, which on InfiniBand is the service level: {why}, and \
             service level {level} is used"
        );
    }
}
