//! [`DeviceInfo`]: what is known of a device, physical or virtual.

use std::path::PathBuf;

use ibnet_verbs::LinkLayer;

use super::pci::PciAddress;

/// What a device of unknown speed counts for in a sum or a comparison, in Mb/s: one SDR lane, the
/// slowest link that there is. It then never takes the place of one that is known to be fast.
pub(crate) const LOWEST_SPEED_MBPS: u32 = 2_500;

/// What is known of a device: of a *physical* one, which is one port of an RDMA device, or of a
/// *virtual* one, which [`Transport::merge`](crate::Transport::merge) made of several.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name of the RDMA device, for instance `mlx5_0`. Of a virtual device its members' names,
    /// joined by `+`; a member whose RDMA device has more than one port in use counts as
    /// `name:port` there.
    pub name: String,
    /// Port number, from 1. Of a virtual device that of its first member.
    pub port: u8,
    /// The physical devices that it is made of, as indices into
    /// [`Transport::devices`](crate::Transport::devices): a physical one of itself alone.
    pub members: Vec<usize>,
    /// InfiniBand or Ethernet (RoCE).
    pub link_layer: LinkLayer,
    /// Speed in Mb/s; 0 if it is not known. Of a virtual device the sum, in which a member of
    /// unknown speed counts 2500 (one SDR lane); 0 only if no member's is known.
    pub speed_mbps: u32,
    /// The directory in sysfs of the PCI device that carries the traffic; `None` for a software
    /// device. All ports of one card have the same, and so have virtual functions that are folded
    /// into their physical one ([`Config::merge_vfs`](crate::Config::merge_vfs)). Of a virtual device that of its first
    /// member.
    pub pci_path: Option<PathBuf>,
    /// The PCI function itself, before anything is folded.
    pub pci_function: Option<PciAddress>,
    /// If it is a virtual function: the physical one that it belongs to, unless the machine does
    /// not show it, as in a virtual machine.
    pub physical_function: Option<PciAddress>,
    /// Which port of its card this is, from 0: counted over all functions and ports in use
    /// that share `pci_path`, so that no two have the same. Without a PCI path counted over the
    /// ports of the same `guid`.
    pub port_ordinal: u32,
    /// System image GUID in host byte order: equal for all ports of one adapter. 0 where nobody gave
    /// it one.
    pub guid: u64,
    /// GUID of the port in host byte order, by its first GID; the node's where that is empty. Of a
    /// virtual device that of its first member.
    pub port_guid: u64,
    /// The rail that the user put it on ([`HcaFilter`](crate::HcaFilter)). Of a virtual device only if
    /// all members agree.
    pub rail: Option<u8>,
    /// The plane that the user put it on ([`HcaFilter`](crate::HcaFilter)). Of a virtual device
    /// only if all members agree.
    pub plane: Option<u8>,
    /// Whether it can reach GPU memory through a peer-memory module of the kernel (NVIDIA or AMD).
    pub peer_memory: bool,
    /// Whether it can register DMA-BUFs.
    pub dmabuf: bool,
    /// Whether data received into GPU memory must be flushed whatever the GPU: on mlx5's Data
    /// Direct path. A virtual device must if a member must.
    pub force_flush: bool,
    /// Whether registrations may ask for relaxed PCI ordering ([`Config::relaxed_ordering`](crate::Config::relaxed_ordering)).
    pub relaxed_ordering: bool,
    /// Connections that the device can have at once: its number of queue pairs.
    pub max_connections: u32,
    /// Bytes of the largest message.
    pub max_message: usize,
    /// Bytes of the largest path MTU that is active on the port.
    pub mtu: u32,
    /// Version of the device's firmware.
    pub firmware: String,
}

impl DeviceInfo {
    /// Whether it is made of several physical devices.
    pub fn is_virtual(&self) -> bool {
        self.members.len() > 1
    }

    /// The link layer, as people call it.
    pub(crate) fn link_name(&self) -> String {
        match self.link_layer {
            LinkLayer::InfiniBand => "InfiniBand".to_owned(),
            LinkLayer::Ethernet => "Ethernet".to_owned(),
            other => other.to_string(),
        }
    }

    /// The speed in Mb/s with which to compare it: 2500, one SDR lane, if it is not known.
    pub fn counted_speed_mbps(&self) -> u32 {
        match self.speed_mbps {
            0 => LOWEST_SPEED_MBPS,
            known => known,
        }
    }

    /// `name:port`, as users write it.
    pub fn label(&self) -> String {
        format!("{}:{}", self.name, self.port)
    }
}
