//! Strings that C keeps for as long as the process lives, and what makes devices distinct to NCCL.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

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

/// The port number of device `index` for NCCL. `devices` has (card, port) of all.
///
/// NCCL takes equal GUID and port for the same link, and counts its bandwidth once. Two functions of
/// one card have the GUID of the card and are both port 1, but are two links: the second one gets the
/// next free number, as in NCCL's own transport. A card that is plugged into two slots (Socket Direct)
/// has the same link in both, and is two cards with one GUID here.
pub(super) fn unique_port<C: PartialEq + Copy>(devices: &[(C, u8)], index: usize) -> i32 {
    let mut given: Vec<(C, i32)> = Vec::with_capacity(index + 1);
    for (card, port) in &devices[..=index] {
        let mut port = i32::from(*port);
        while given.contains(&(*card, port)) {
            port += 1;
        }
        given.push((*card, port));
    }
    given[index].1
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

    #[test]
    fn no_two_links_are_the_same_to_nccl() {
        let devices = [(7, 1), (7, 1), (8, 1), (7, 2), (8, 2), (7, 1)];
        let ports: Vec<i32> = (0..6).map(|index| unique_port(&devices, index)).collect();
        assert_eq!(ports, [1, 2, 1, 3, 2, 4]);
    }

    #[test]
    fn a_card_in_two_slots_has_one_link() {
        let devices = [((7, "17:00"), 1), ((7, "a0:00"), 1), ((7, "a0:00"), 1)];
        let ports: Vec<i32> = (0..3).map(|index| unique_port(&devices, index)).collect();
        assert_eq!(ports, [1, 1, 2]);
    }
}
