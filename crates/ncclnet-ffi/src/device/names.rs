//! Strings that C keeps for as long as the process lives, and what makes devices distinct to NCCL.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ibnet::{DeviceInfo, PciAddress};

use crate::fault::Fault;

/// Every string that was ever given to C. There are as many as there are device names and paths,
/// however often they are asked for and however often the plugin is initialised.
static STRINGS: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());

/// `text` as a C string that lives as long as the process: the same one every time.
pub(super) fn permanent(text: &str) -> Result<&'static CStr, Fault> {
    let mut strings = STRINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(string) = strings.get(text) {
        return Ok(string);
    }
    let string = CString::new(text)
        .map_err(|_| Fault::internal(format!("the name {text:?} has a zero byte in it")))?;
    let string: &'static CStr = Box::leak(string.into_boxed_c_str());
    strings.insert(text.to_owned(), string);
    Ok(string)
}

/// The name of device `index` for NCCL, which takes it as a key: the device's own, with the port
/// where more than one port of the device is in use. `devices` has (name, port) of all.
pub(super) fn unique_name(devices: &[(&str, u8)], index: usize) -> String {
    let (name, port) = devices[index];
    let ports = devices.iter().filter(|(other, _)| *other == name).count();
    if ports > 1 {
        format!("{name}:{port}")
    } else {
        name.to_owned()
    }
}

/// What tells whether two devices have one link, or two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'a> {
    /// That of the adapter, which all its ports have in common; zero where nobody gave it one.
    system_guid: u64,
    /// That of the port.
    port_guid: u64,
    port: u8,
    /// The folder in sysfs of the card that it is on.
    card: Option<&'a Path>,
    /// The physical PCI function that it belongs to.
    function: Option<PciAddress>,
}

impl<'a> Link<'a> {
    pub(super) fn of(info: &'a DeviceInfo) -> Self {
        Self {
            system_guid: info.guid,
            port_guid: info.port_guid,
            port: info.port,
            card: info.pci_path.as_deref(),
            function: info.physical_function.or(info.pci_function),
        }
    }

    /// Whether both are on one card, as far as PCI tells.
    fn shares_card(&self, other: &Self) -> bool {
        self.card == other.card || self.function.is_some() && self.function == other.function
    }

    /// The GUID for NCCL: the system's, unless that is zero, or another adapter of `all` has the same:
    /// a copied or a virtual one. Cards that have a port in common are one adapter, in two slots.
    fn guid(&self, all: &[Self]) -> u64 {
        let has_port = |card: &Self, port_guid| {
            let mut ports = all.iter().filter(|link| link.shares_card(card));
            ports.any(|port| port.port_guid == port_guid)
        };
        let is_same_adapter = |other: &Self| {
            let mut ports = all.iter().filter(|link| link.shares_card(other));
            other.shares_card(self) || ports.any(|port| has_port(self, port.port_guid))
        };
        let is_shared = all
            .iter()
            .any(|other| other.system_guid == self.system_guid && !is_same_adapter(other));
        match self.system_guid {
            0 => self.port_guid,
            _ if is_shared => self.port_guid,
            guid => guid,
        }
    }
}

/// GUID and port number of device `index` of `links` for NCCL.
///
/// NCCL takes equal GUID and port for the same link, and counts its bandwidth once. Two functions of
/// one card have the GUID of the card and are both port 1, but are two links: the second one gets the
/// next free number, as in NCCL's own transport. A card that is plugged into two slots (Socket Direct)
/// has the same link in both, and is two cards with one GUID here.
pub(super) fn unique_link(links: &[Link<'_>], index: usize) -> (u64, i32) {
    let mut given = Vec::with_capacity(index + 1);
    for link in &links[..=index] {
        let guid = link.guid(links);
        // Without a GUID nothing says that it is the same link.
        let card = link.card.filter(|_| guid != 0);
        let mut port = i32::from(link.port);
        while given.contains(&(guid, card, port)) {
            port += 1;
        }
        given.push((guid, card, port));
    }
    let (guid, _, port) = given[index];
    (guid, port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_string_is_leaked_once() {
        let first = permanent("mlx5_17").unwrap();
        assert_eq!(first, c"mlx5_17");
        assert_eq!(permanent("mlx5_17").unwrap().as_ptr(), first.as_ptr());
        assert_ne!(permanent("mlx5_18").unwrap().as_ptr(), first.as_ptr());
        assert!(permanent("mlx5\0").is_err());
    }

    #[test]
    fn the_port_is_part_of_a_name_only_where_it_must_be() {
        let devices = [("mlx5_0", 1), ("mlx4_0", 1), ("mlx4_0", 2)];
        let names: Vec<String> = (0..3).map(|index| unique_name(&devices, index)).collect();
        assert_eq!(names, ["mlx5_0", "mlx4_0:1", "mlx4_0:2"]);
    }

    /// System GUID, port GUID, port and PCI folder; each folder is a card.
    fn told(links: &[(u64, u64, u8, &str)]) -> Vec<(u64, i32)> {
        let links: Vec<Link<'_>> = links
            .iter()
            .map(|&(system_guid, port_guid, port, card)| Link {
                system_guid,
                port_guid,
                port,
                card: (!card.is_empty()).then(|| Path::new(card)),
                function: None,
            })
            .collect();
        (0..links.len())
            .map(|index| unique_link(&links, index))
            .collect()
    }

    #[test]
    fn no_two_links_are_the_same_to_nccl() {
        // Functions and ports of two cards.
        let devices = [
            (7, 71, 1, "a"),
            (7, 72, 1, "a"),
            (8, 81, 1, "b"),
            (7, 73, 2, "a"),
            (8, 82, 2, "b"),
            (7, 74, 1, "a"),
        ];
        let links = [(7, 1), (7, 2), (8, 1), (7, 3), (8, 2), (7, 4)];
        assert_eq!(told(&devices), links);
    }

    #[test]
    fn a_card_in_two_slots_has_one_link() {
        let devices = [
            (7, 71, 1, "17:00"),
            (7, 72, 2, "17:00"),
            (7, 71, 1, "a0:00"),
            (7, 72, 2, "a0:00"),
        ];
        assert_eq!(told(&devices), [(7, 1), (7, 2), (7, 1), (7, 2)]);
        assert_eq!(told(&devices[..3]), [(7, 1), (7, 2), (7, 1)]);
    }

    #[test]
    fn a_guid_that_adapters_share_is_not_theirs() {
        // Of zeros, or the same on different cards.
        for guid in [0, 7] {
            let devices = [
                (guid, 71, 1, "17:00"),
                (guid, 72, 1, "a0:00"),
                (9, 9, 1, "b0:00"),
            ];
            assert_eq!(told(&devices), [(71, 1), (72, 1), (9, 1)], "{guid}");
        }
        // Software devices without any GUID.
        let devices = [(0, 0, 1, ""), (0, 0, 1, ""), (0, 0, 1, "17:00")];
        assert_eq!(told(&devices), [(0, 1), (0, 2), (0, 3)]);
    }

    #[test]
    fn virtual_functions_share_the_link_of_their_physical_one() {
        let function = |port_guid, card| Link {
            system_guid: 7,
            port_guid,
            port: 1,
            card: Some(Path::new(card)),
            function: "0000:3b:00.0".parse().ok(),
        };
        let links = [function(71, "3b:00.2"), function(72, "3b:00.3")];
        assert_eq!(unique_link(&links, 0), unique_link(&links, 1));
    }
}
