//! Devices: what can be used, and what is known of it.
//!
//! One [`Device`] here is one *port* of an RDMA device, because that is what NCCL counts. All ports
//! of one RDMA device share its context and protection domain. Virtual devices, made of several
//! ports, are in [`nic`].

mod card;
mod describe;
mod discover;
mod gpu_direct;
mod info;
pub(crate) mod nic;
mod opening;
mod pci;
mod port;
pub(crate) mod prefix;
pub(crate) mod registrations;
mod speed;
#[cfg(test)]
mod test_folder;

use std::sync::Arc;

use ibnet_verbs::DeviceAttributes;

pub(crate) use discover::{Found, discover};
pub use info::DeviceInfo;
pub use pci::{NotPciAddress, PciAddress};
pub(crate) use port::LocalPort;
pub use port::PortReport;

use crate::device::registrations::Registrations;
use crate::error::Error;
use crate::events::DeviceToken;
use crate::wire::message::{DeviceOffer, Link};
use crate::wire::stripe;

/// A port of an opened device.
pub(crate) struct Device {
    pub(crate) info: DeviceInfo,
    pub(crate) pd: ibnet_verbs::ProtectionDomain,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) token: DeviceToken,
    pub(crate) registrations: Registrations,
    /// Whether memory of a GPU is registered for mlx5's Data Direct function
    /// ([`ibnet_verbs::ProtectionDomain::register_dmabuf_data_direct`]).
    pub(crate) data_direct: bool,
    port: Arc<port::PortCache>,
}

/// Requests of the sending queue: about one for each message that can be under way; what a message
/// of the largest size needs must fit. One less than a power of two, because drivers round up what
/// they need for one more.
pub(crate) const SEND_QUEUE_DEPTH: u32 = 255;

/// The largest message that a sending queue of this device can hold, in bytes: sizes have 31 bits
/// in NCCL's interface, and two requests are left for the size record and the immediate.
fn max_message(max_message_size: u32, max_qp_wr: u32) -> usize {
    let writes = SEND_QUEUE_DEPTH.min(max_qp_wr).saturating_sub(2).max(1) as usize;
    let largest = stripe::largest_write(max_message_size) as usize;
    largest.saturating_mul(writes).min(i32::MAX as usize)
}

impl Device {
    /// `name:port`, as users write it.
    pub(crate) fn label(&self) -> String {
        self.info.label()
    }

    /// The state of the port, and the GID and partition to use now. Cheap unless something has
    /// changed.
    pub(crate) fn local_port(&self) -> Result<LocalPort, Error> {
        self.port.local_port()
    }

    /// If the address of `offer`, with which a connection was made, has gone from the port since:
    /// what that means, in words.
    pub(crate) fn lost_address(&self, offer: &DeviceOffer) -> Option<String> {
        let gid = offer.gid();
        self.port.has_lost(offer.gid_index, gid).then(|| {
            let address = gid
                .ipv4_mapped()
                .map_or_else(|| gid.to_string(), |v4| v4.to_string());
            format!(
                "the address {address} has gone from GID {} of {} since the connection was made: it \
                 was removed from its network interface, or the table was filled anew; connections \
                 made from now on use what is there",
                offer.gid_index,
                self.label()
            )
        })
    }

    /// Why a connection over this device cannot go on, if that is so: its port is down, or the address of `offer`,
    /// with which it was made, is gone.
    pub(crate) fn is_down(&self, offer: &DeviceOffer) -> Option<String> {
        match self.local_port() {
            Ok(_) => self.lost_address(offer),
            Err(error) => Some(error.to_string()),
        }
    }

    /// What would be used now, and why. Nothing is taken from earlier.
    pub(crate) fn report(&self) -> Result<PortReport, Error> {
        self.port.report()
    }

    /// What to tell the peer of this device.
    pub(crate) fn offer(&self, local: &LocalPort) -> DeviceOffer {
        DeviceOffer {
            name: self.info.name.chars().take(64).collect(),
            port: self.info.port,
            link: Link::from(local.port.link_layer),
            lid: local.port.lid,
            gid: local.gid.0,
            gid_index: local.gid_index,
            prefix_length: local.prefix_length,
            roce_version: local.roce_version,
            rail: self.info.rail,
            // A driver with an unknown MTU gets the smallest, which every port can do.
            mtu: local.port.active_mtu.bytes().unwrap_or(256),
            max_message: local.port.max_message_size,
            // Whoever introduces it knows the setting.
            reorders: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_message_is_honest() {
        // Never more than 31 bits, never more than the queue can hold.
        assert_eq!(max_message(1 << 31, 16_384), i32::MAX as usize);
        assert_eq!(max_message(1 << 23, 16_384), 253 << 23);
        assert_eq!(max_message(1 << 20, 16_384), 253 << 20);
        assert_eq!(max_message(4096, 10), 8 * 4096);
        assert!(
            max_message(1 << 23, 16_384) > 1 << 30,
            "1 GiB fits on Soft-RoCE"
        );
    }
}
