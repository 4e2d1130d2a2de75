//! [`Service`]: service level and traffic class, by which the network tells the packets of connections apart.
#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest service level (InfiniBand specification, volume 1, section 7.6.5).
pub(crate) const MAX_LEVEL: u8 = 15;

/// What the packets of a connection carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// 0 to [`MAX_LEVEL`]. On Ethernet the priority of a VLAN tag.
    pub(crate) level: u8,
    /// On InfiniBand only in packets with a global route.
    pub(crate) traffic_class: u8,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            level,
            traffic_class,
        } = self;
        write!(f, "service level {level}, traffic class {traffic_class}")
    }
}
