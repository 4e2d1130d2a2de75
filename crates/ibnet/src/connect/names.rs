//! What error messages and the log call both ends of a connection.

use std::fmt;

use crate::wire::message::{DeviceOffer, Link, printable};

/// Both ends, for every error message and log line.
pub(crate) struct Names {
    /// The own devices, as they were offered.
    pub(crate) local: Vec<DeviceOffer>,
    /// The peer's devices, as they were offered.
    pub(crate) peer: Vec<DeviceOffer>,
    /// The peer's host, process and address.
    pub(crate) peer_process: String,
    /// The own and the peer's device of each path.
    pub(crate) paths: Vec<(usize, usize)>,
}

impl Names {
    /// Both ends of a path, by the numbers of their devices.
    pub(crate) fn of(&self, (local, peer): (usize, usize)) -> String {
        format!(
            "{} to {} ({})",
            describe(&self.local[local]),
            describe(&self.peer[peer]),
            self.peer_process
        )
    }

    /// How many paths there are, in words for the log.
    pub(crate) fn count_paths(&self) -> String {
        match self.paths.len() {
            1 => "1 path".to_owned(),
            count => format!("{count} paths"),
        }
    }

    /// The peer alone.
    pub(crate) fn peer(&self) -> String {
        let (_, peer) = self.paths.first().copied().unwrap_or_default();
        format!("{} ({})", describe(&self.peer[peer]), self.peer_process)
    }
}

impl fmt::Display for Names {
    /// Every pair of devices that the connection uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pairs = Vec::new();
        for pair in &self.paths {
            if !pairs.contains(pair) {
                pairs.push(*pair);
            }
        }
        let ends: Vec<String> = pairs
            .iter()
            .map(|&(local, peer)| {
                format!(
                    "{} to {}",
                    describe(&self.local[local]),
                    describe(&self.peer[peer])
                )
            })
            .collect();
        write!(f, "{} ({})", ends.join(", "), self.peer_process)
    }
}

/// Describes one end: device, GID or LID.
pub(crate) fn describe(offer: &DeviceOffer) -> String {
    let name = printable(&offer.name);
    match offer.link {
        Link::Ethernet => {
            let gid = offer.gid();
            let address = gid
                .ipv4_mapped()
                .map_or_else(|| gid.to_string(), |v4| v4.to_string());
            format!("{name}:{} GID {}={address}", offer.port, offer.gid_index)
        }
        Link::InfiniBand => format!("{name}:{} LID {}", offer.port, offer.lid),
    }
}
