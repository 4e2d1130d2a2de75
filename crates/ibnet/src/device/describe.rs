//! What the log says of a device: one line, which operators look for.

use ibnet_verbs::LinkLayer;

use super::info::DeviceInfo;
use super::{Device, LocalPort};

impl DeviceInfo {
    /// The link layer, as NCCL calls it.
    fn short_link_name(&self) -> String {
        match self.link_layer {
            LinkLayer::InfiniBand => "IB".to_owned(),
            LinkLayer::Ethernet => "RoCE".to_owned(),
            other => other.to_string(),
        }
    }

    /// What of it matters to a job: how fast it is, which memory it can reach and how, and where it
    /// is plugged in.
    pub(crate) fn abilities(&self) -> String {
        let mut parts = vec![
            match self.speed_mbps {
                0 => "unknown speed".to_owned(),
                speed => format!("{speed} Mb/s"),
            },
            format!(
                "relaxed ordering {}",
                if self.relaxed_ordering { "on" } else { "off" }
            ),
            match (self.peer_memory, self.dmabuf) {
                (true, true) => "GPU memory through a peer-memory module or as DMA-BUF",
                (true, false) => "GPU memory through a peer-memory module",
                (false, true) => "GPU memory as DMA-BUF",
                (false, false) => {
                    "no GPU memory, which is copied through the host's (no peer-memory module is \
                     loaded, and no DMA-BUF can be registered)"
                }
            }
            .to_owned(),
        ];
        if self.force_flush {
            parts.push("every receive into it is flushed".to_owned());
        }
        for (word, number) in [("rail", self.rail), ("plane", self.plane)] {
            if let Some(number) = number {
                parts.push(format!("{word} {number}"));
            }
        }
        parts.join(", ")
    }
}

impl Device {
    /// The whole line; `handshake` says over which interface connections are made.
    pub(crate) fn describe(&self, handshake: &str) -> String {
        let info = &self.info;
        let address = match self.local_port() {
            Ok(local) => address(&local),
            Err(error) => error.to_string(),
        };
        format!(
            "{}/{}: {address}, {}, handshake {handshake}; MTU {}, messages to {} bytes, firmware {}, \
             PCI {}",
            self.label(),
            info.short_link_name(),
            info.abilities(),
            info.mtu,
            info.max_message,
            info.firmware,
            info.pci_path
                .as_ref()
                .map_or_else(|| "none".into(), |path| path.to_string_lossy()),
        )
    }
}

/// By which address peers reach the port.
fn address(local: &LocalPort) -> String {
    let gid = match local.gid.ipv4_mapped() {
        Some(v4) => v4.to_string(),
        None => local.gid.to_string(),
    };
    let gid = format!("GID {} {gid}", local.gid_index);
    match (local.port.link_layer, local.roce_version) {
        (LinkLayer::InfiniBand, _) if local.gid.is_zero() => format!("LID {}", local.port.lid),
        (LinkLayer::InfiniBand, _) => format!("LID {}, {gid}", local.port.lid),
        (_, Some(version)) => format!("{gid} RoCEv{version}"),
        (_, None) => gid,
    }
}
