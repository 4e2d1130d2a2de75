//! What `ibv_devinfo -v` prints: a section for each device, in it one for each port, with the table
//! of GIDs at its end.

use ibnet_verbs::{GidType, LinkLayer};

use super::kernels_type;
use super::parse::{Refused, gid, index_number, link_layer_named, port_number};
use ibnet_gid::Entry;

/// Where in the text a line is.
#[derive(Default)]
pub(super) struct Devinfo {
    /// Inside the section of this device.
    device: Option<String>,
    /// Inside that of a port of InfiniBand.
    is_infiniband: bool,
}

/// What a line is.
pub(super) enum Line {
    /// No line of `ibv_devinfo`.
    NotOfIt,
    /// A line of it that says nothing about GIDs.
    Ignored,
    /// The first line about a port.
    Port(Option<(String, u8)>),
    LinkLayer(LinkLayer),
    Entry(Entry),
}

impl Devinfo {
    pub(super) fn line<'a>(&mut self, line: &'a str) -> Result<Line, Refused<'a>> {
        if let Some(rest) = line.strip_prefix("GID[") {
            return Ok(Line::Entry(entry(rest, self.is_infiniband)?));
        }
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        if key == "hca_id" {
            self.device = Some(value.to_owned());
            self.is_infiniband = false;
            return Ok(Line::Ignored);
        }
        let Some(device) = &self.device else {
            return Ok(Line::NotOfIt);
        };
        match key {
            "port" => {
                self.is_infiniband = false;
                Ok(Line::Port(Some((device.clone(), port_number(value)?))))
            }
            "link_layer" => {
                let link_layer = link_layer_named(value)?;
                self.is_infiniband = link_layer == LinkLayer::InfiniBand;
                Ok(Line::LinkLayer(link_layer))
            }
            // Another form begins.
            _ if line.starts_with("DEV ") || line.contains("/ports/") || is_title(line) => {
                *self = Self::default();
                Ok(Line::NotOfIt)
            }
            _ => Ok(Line::Ignored),
        }
    }
}

/// `mlx5_0:1 Ethernet`
fn is_title(line: &str) -> bool {
    line.split_once(char::is_whitespace)
        .is_some_and(|(place, link_layer)| {
            place.contains(':') && link_layer_named(link_layer.trim()).is_ok()
        })
}

/// `  3]:  ::ffff:10.1.2.3, RoCE v2`
fn entry(text: &str, is_infiniband: bool) -> Result<Entry, Refused<'_>> {
    let (index, rest) = text.split_once("]:").ok_or((text, "an index and ]:"))?;
    let (address, gid_type) = match rest.split_once(',') {
        Some((address, name)) => (address, kernels_type(name.trim())),
        // Ports of InfiniBand have no types, and those of RoCE had none in old releases.
        None => (rest, is_infiniband.then_some(GidType::InfiniBand)),
    };
    Ok(Entry {
        index: index_number(index.trim())?,
        gid: gid(address.trim())?,
        gid_type,
        netdev: None,
        unreadable: None,
    })
}
