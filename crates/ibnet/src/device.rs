//! Devices: finding the ports that can be used, and what is known of each.
//!
//! One [`Device`] here is one *port* of an RDMA device, because that is what NCCL counts. All ports
//! of one RDMA device share its context and protection domain.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mrcache::Cache;
use verbs::{Context, DeviceAttributes, LinkLayer, MemoryRegion, PortAttributes, PortState};

use crate::config::Config;
use crate::error::Error;
use crate::handshake::message::{DeviceOffer, Link};
use crate::memory::page_size;
use crate::monitor::{DeviceToken, Monitor};
use crate::stripe;

/// What is known of a device port.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name of the RDMA device, for instance `mlx5_0`.
    pub name: String,
    /// Port number, from 1.
    pub port: u8,
    /// InfiniBand or Ethernet (RoCE).
    pub link_layer: LinkLayer,
    /// Speed in Mb/s; 0 if the driver reports one that is not known.
    pub speed_mbps: u32,
    /// The PCI device's directory in sysfs; `None` for a software device.
    pub pci_path: Option<PathBuf>,
    /// System image GUID in host byte order: equal for all ports of one adapter.
    pub guid: u64,
    /// Connections that the device can have at once: its number of queue pairs.
    pub max_connections: u32,
    /// Bytes of the largest message.
    pub max_message: usize,
    /// Bytes of the largest path MTU that is active on the port.
    pub mtu: u32,
    /// Version of the device's firmware.
    pub firmware: String,
}

/// A port of an opened device.
pub(crate) struct Device {
    pub(crate) info: DeviceInfo,
    pub(crate) pd: verbs::ProtectionDomain,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) token: DeviceToken,
    /// Registrations, told apart by their access flags.
    pub(crate) registrations: Cache<u32, MemoryRegion>,
    gid_policy: gid::Policy,
}

/// The state of a port at the moment of a connection attempt. It is asked for each time, because
/// addresses come and go (pitfall 7).
pub(crate) struct LocalPort {
    pub(crate) port: PortAttributes,
    pub(crate) gid: verbs::Gid,
    pub(crate) gid_index: u8,
}

/// Requests of the sending queue; what a message of the largest size needs must fit.
pub(crate) const SEND_QUEUE_DEPTH: u32 = 512;

/// Opens every device of `library` and lists the ports that can be used.
///
/// # Errors
/// [`Error::NoDevices`] with the reason for each device or port that was left out.
pub(crate) fn discover(
    library: &verbs::Library,
    config: &Config,
    monitor: &Monitor,
) -> Result<Vec<Arc<Device>>, Error> {
    let mut left_out = Vec::new();
    let mut found = Vec::new();
    let list = library.devices().map_err(|error| Error::NoDevices {
        reason: error.to_string(),
    })?;
    for device in &list {
        match open_ports(device, config, monitor, &mut left_out) {
            Ok(ports) => found.extend(ports),
            Err(error) => {
                tracing::warn!(device = device.name(), %error, "device left out");
                left_out.push(error.to_string());
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let reason = if list.is_empty() {
        "libibverbs sees none; is the driver loaded, and is /dev/infiniband there \
         (in containers it must be passed in)? A limit of open files that is too low looks the \
         same"
            .to_owned()
    } else {
        left_out.join("; ")
    };
    Err(Error::NoDevices { reason })
}

/// The usable ports of one device. What is left out is noted with its reason.
fn open_ports(
    device: &verbs::Device,
    config: &Config,
    monitor: &Monitor,
    left_out: &mut Vec<String>,
) -> Result<Vec<Arc<Device>>, Error> {
    if device.transport() != verbs::Transport::InfiniBand {
        // iWARP and the others have no RDMA write with immediate, which carries every message.
        let reason = format!(
            "{}: it speaks {}, not InfiniBand or RoCE",
            device.name(),
            device.transport()
        );
        tracing::info!("{reason}");
        left_out.push(reason);
        return Ok(Vec::new());
    }
    let context = device.open()?;
    let attributes = context.attributes()?;
    let name = device.name();
    let mut usable = Vec::new();
    for port in 1..=attributes.phys_port_count {
        let reason = if !config.hca.admits(name, port) {
            "not asked for by NCCL_IB_HCA".to_owned()
        } else {
            match port_attributes(&context, port) {
                Ok(state) if state.state != PortState::ACTIVE => {
                    format!("its state is {}", state.state)
                }
                Ok(state) if stripe::largest_write(state.max_message_size) == 0 => {
                    format!(
                        "it allows messages of {} bytes only",
                        state.max_message_size
                    )
                }
                Ok(state) => {
                    usable.push((port, state));
                    continue;
                }
                Err(error) => error.to_string(),
            }
        };
        tracing::info!("{name}:{port} left out: {reason}");
        left_out.push(format!("{name}:{port}: {reason}"));
    }
    if usable.is_empty() {
        return Ok(Vec::new());
    }

    let pd = context.allocate_pd()?;
    let token = monitor.watch_device(&context)?;
    let registrations = Cache::with_page_size(page_size());
    Ok(usable
        .into_iter()
        .map(|(port, state)| {
            Arc::new(Device {
                info: describe(device, &context, &attributes, port, &state),
                pd: pd.clone(),
                attributes: attributes.clone(),
                token,
                registrations: registrations.clone(),
                gid_policy: gid::Policy {
                    index: config.gid_index,
                },
            })
        })
        .collect())
}

fn describe(
    device: &verbs::Device,
    context: &Context,
    attributes: &DeviceAttributes,
    port: u8,
    state: &PortAttributes,
) -> DeviceInfo {
    let speed = match context.port_speed(port) {
        Ok(Some(speed)) => Some(speed),
        Ok(None) => state.speed(),
        Err(error) => {
            tracing::debug!(%error, "the speed comes from the port's lanes instead");
            state.speed()
        }
    };
    if speed.is_none() {
        tracing::info!(
            "{}:{port}: the driver reports no known speed",
            device.name()
        );
    }
    DeviceInfo {
        name: device.name().to_owned(),
        port,
        link_layer: state.link_layer,
        speed_mbps: speed.map_or(0, |speed| u32::try_from(speed).unwrap_or(u32::MAX)),
        pci_path: pci_path(device.sysfs_path()),
        guid: attributes.sys_image_guid,
        max_connections: attributes.max_qp,
        max_message: max_message(state.max_message_size, attributes.max_qp_wr),
        mtu: state.active_mtu.bytes().unwrap_or(0),
        firmware: attributes.firmware.clone(),
    }
}

/// The port's attributes. A driver that names no link layer means InfiniBand: it is older than the
/// other kinds.
fn port_attributes(context: &Context, port: u8) -> Result<PortAttributes, verbs::Error> {
    let mut attributes = context.port(port)?;
    if attributes.link_layer == LinkLayer::Unspecified {
        attributes.link_layer = LinkLayer::InfiniBand;
    }
    Ok(attributes)
}

/// The largest message that a sending queue of this device can hold, in bytes: sizes have 31 bits
/// in NCCL's interface, and two requests are left for the size record and the immediate.
fn max_message(max_message_size: u32, max_qp_wr: u32) -> usize {
    let writes = SEND_QUEUE_DEPTH.min(max_qp_wr).saturating_sub(2).max(1) as usize;
    let largest = stripe::largest_write(max_message_size) as usize;
    largest.saturating_mul(writes).min(i32::MAX as usize)
}

/// The device's directory in sysfs, resolved, if it belongs to a PCI device.
fn pci_path(sysfs: &Path) -> Option<PathBuf> {
    let resolved = sysfs.join("device").canonicalize().ok()?;
    is_pci_address(resolved.file_name()?.to_str()?).then_some(resolved)
}

/// Whether `name` reads `domain:bus:device.function`.
fn is_pci_address(name: &str) -> bool {
    let hexadecimal = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let [domain, bus, device, function] = parts[..] else {
        return false;
    };
    name.matches('.').count() == 1
        && hexadecimal(domain, 4, 8)
        && hexadecimal(bus, 2, 2)
        && hexadecimal(device, 2, 2)
        && hexadecimal(function, 1, 1)
}

impl Device {
    /// `name:port`, as users write it.
    pub(crate) fn label(&self) -> String {
        format!("{}:{}", self.info.name, self.info.port)
    }

    /// Whether `other` is a port of the same opened device, so that registrations are shared.
    pub(crate) fn shares_registrations_with(&self, other: &Self) -> bool {
        self.token == other.token
    }

    /// Asks the driver for the state of the port and chooses the GID to use now.
    pub(crate) fn local_port(&self) -> Result<LocalPort, Error> {
        let context = self.pd.context();
        let port = port_attributes(context, self.info.port)?;
        if port.state != PortState::ACTIVE {
            return Err(Error::NoDevices {
                reason: format!("{}: its state is {}", self.label(), port.state),
            });
        }
        let entries = context.gid_entries(self.info.port)?;
        let selection = gid::select(&entries, port.link_layer, &self.gid_policy);
        let (gid, index) = match selection {
            Ok(selection) => {
                tracing::debug!("{}: GIDs: {selection}", self.label());
                (selection.entry.gid, selection.entry.index)
            }
            // InfiniBand addresses by LID; a GID is only needed across subnets.
            Err(_) if port.link_layer == LinkLayer::InfiniBand && !port.grh_required => {
                (verbs::Gid([0; 16]), 0)
            }
            Err(error) => {
                return Err(Error::NoGid {
                    device: self.label(),
                    source: Arc::new(error),
                });
            }
        };
        let gid_index = u8::try_from(index).map_err(|_| {
            Error::InvalidArgument(format!(
                "{}: GID index {index} does not fit into a queue pair's address",
                self.label()
            ))
        })?;
        Ok(LocalPort {
            port,
            gid,
            gid_index,
        })
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
            // A driver with an unknown MTU gets the smallest, which every port can do.
            mtu: local.port.active_mtu.bytes().unwrap_or(256),
            max_message: local.port.max_message_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_parsed_not_guessed() {
        // Pitfall 9: a device without a PCI address has no path.
        for (name, is_one) in [
            ("0000:3b:00.0", true),
            ("10000:01:00.1", true),
            ("0000:3b:1f.7", true),
            ("virtual", false),
            ("rxe0", false),
            ("0000:3b:00", false),
            ("0000.3b.00.0", false),
            ("0000:3g:00.0", false),
            ("", false),
        ] {
            assert_eq!(is_pci_address(name), is_one, "{name}");
        }
        assert_eq!(pci_path(Path::new("/nonexistent")), None);
    }

    #[test]
    fn the_largest_message_is_honest() {
        // Pitfall 73: never more than 31 bits, never more than the queue can hold.
        assert_eq!(max_message(1 << 31, 16_384), i32::MAX as usize);
        assert_eq!(max_message(1 << 23, 16_384), i32::MAX as usize);
        assert_eq!(max_message(1 << 20, 16_384), 510 << 20);
        assert_eq!(max_message(4096, 10), 8 * 4096);
        assert!(
            max_message(1 << 23, 16_384) > 1 << 30,
            "1 GiB fits on Soft-RoCE"
        );
    }
}
