//! How an end of a connection introduces itself: its process, its devices and the state of their
//! ports at this moment.

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::device::LocalPort;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::wire::message::{Link, MAX_NAME, PeerInfo};

/// For how long the answers of the devices are good. What happens to a port during a handshake is noticed by that.
const FRESH: Duration = Duration::from_secs(1);

/// The own side of a handshake.
#[derive(Clone)]
pub(crate) struct Introduction {
    /// When the devices were asked.
    at: Instant,
    /// The port of each device.
    pub(crate) locals: Vec<LocalPort>,
    pub(crate) info: PeerInfo,
}

/// Asks every device of `nic` for the state of its port, because addresses come and go.
pub(crate) fn introduce(nic: &Nic, config: &Config) -> Result<Introduction, Error> {
    let at = Instant::now();
    let mut locals = Vec::new();
    let mut devices = Vec::new();
    for device in nic.members() {
        let local = device.local_port()?;
        let mut offer = device.offer(&local);
        // InfiniBand's fabrics are usually set up for adaptive routing, Ethernet's are not.
        offer.reorders = config
            .adaptive_routing
            .unwrap_or(offer.link == Link::InfiniBand);
        devices.push(offer);
        locals.push(local);
    }
    let info = PeerInfo {
        host: host_name(),
        process: std::process::id(),
        devices,
    };
    Ok(Introduction { at, locals, info })
}

impl Introduction {
    /// The same; asked for anew if it took long to reach the peer.
    pub(crate) fn renewed(&self, nic: &Nic, config: &Config) -> Result<Self, Error> {
        if self.at.elapsed() < FRESH {
            Ok(self.clone())
        } else {
            introduce(nic, config)
        }
    }
}

/// The name of this host, as far as it fits into a message.
fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
