//! How fast a port is.
//!
//! The driver knows best (`ibv_query_port_speed`), then the port's lanes. On Ethernet, ports of a
//! bond tell the speed of one of its links: there the bond's own speed counts. Where the port says
//! nothing that is known, its network interface is asked.

use std::fs;
use std::path::Path;

/// The speed of a port in Mb/s, none if nobody knows. `effective` is what the driver says,
/// `lanes` what the lanes give, `interface` how fast the port's network interface is.
pub(super) fn decide(
    effective: Option<u64>,
    lanes: Option<u64>,
    interface: Option<InterfaceSpeed>,
) -> Option<u32> {
    let speed = match (effective, lanes, interface) {
        (Some(speed), _, _) => speed,
        (None, _, Some(InterfaceSpeed::OfBond(speed))) => speed,
        (None, Some(speed), _) => speed,
        (None, None, Some(InterfaceSpeed::OfPort(speed))) => speed,
        (None, None, None) => return None,
    };
    Some(u32::try_from(speed).unwrap_or(u32::MAX))
}

/// The speed of a network interface, in Mb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterfaceSpeed {
    /// Of a single link.
    OfPort(u64),
    /// Of several links together.
    OfBond(u64),
}

/// The speed of a port whose GIDs belong to the network interfaces `names`; `sysfs` is the root.
pub(super) fn of_interfaces(names: &[String], sysfs: &Path) -> Option<InterfaceSpeed> {
    let found: Vec<_> = names
        .iter()
        .filter_map(|name| speed_of(name, sysfs))
        .collect();
    // The bond among the interfaces of a port carries all its traffic.
    let is_bond = |speed: &&InterfaceSpeed| matches!(speed, InterfaceSpeed::OfBond(_));
    found
        .iter()
        .find(is_bond)
        .or_else(|| found.first())
        .copied()
}

fn speed_of(name: &str, sysfs: &Path) -> Option<InterfaceSpeed> {
    let folder = sysfs.join("class/net").join(name);
    let text = fs::read_to_string(folder.join("speed")).ok()?;
    // -1, or a failure to read, without a link.
    let speed = text.trim().parse().ok().filter(|&speed| speed > 0)?;
    Some(if is_bond(name, sysfs, 4) {
        InterfaceSpeed::OfBond(speed)
    } else {
        InterfaceSpeed::OfPort(speed)
    })
}

/// Whether an interface is a bond or a team, or stands on one (a VLAN). At most `depth` interfaces
/// are on top of each other.
fn is_bond(name: &str, sysfs: &Path, depth: u32) -> bool {
    let folder = sysfs.join("class/net").join(name);
    if folder.join("bonding").is_dir() {
        return true;
    }
    if depth == 0 || folder.join("bridge").is_dir() {
        return false;
    }
    let lower: Vec<String> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_prefix("lower_").map(str::to_owned)
        })
        .collect();
    match &lower[..] {
        [] => false,
        [single] => is_bond(single, sysfs, depth - 1),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::test_folder::TestFolder;

    #[test]
    fn who_knows_best_is_asked_first() {
        use InterfaceSpeed::{OfBond, OfPort};
        for (effective, lanes, interface, expected) in [
            (
                Some(800_000),
                Some(400_000),
                Some(OfBond(200_000)),
                Some(800_000),
            ),
            (None, Some(100_000), Some(OfBond(200_000)), Some(200_000)),
            (None, Some(100_000), Some(OfPort(25_000)), Some(100_000)),
            (None, Some(100_000), None, Some(100_000)),
            (None, None, Some(OfPort(25_000)), Some(25_000)),
            (None, None, Some(OfBond(50_000)), Some(50_000)),
            // What nobody knows is not the fastest there is.
            (None, None, None, None),
            (Some(u64::MAX), None, None, Some(u32::MAX)),
        ] {
            assert_eq!(decide(effective, lanes, interface), expected);
        }
    }

    #[test]
    fn bonds_are_known_by_what_they_are_made_of() {
        let root = TestFolder::new();
        for (name, speed, below) in [
            ("eth0", "25000", &["device/x"][..]),
            ("down0", "-1", &[]),
            ("bond0", "50000", &["bonding/mode"]),
            ("bond0.100", "50000", &["lower_bond0/x"]),
            ("team0", "50000", &["lower_eth0/x", "lower_eth1/x"]),
            ("eth0.7", "25000", &["lower_eth0/x"]),
            (
                "br0",
                "25000",
                &["bridge/x", "lower_eth0/x", "lower_tap0/x"],
            ),
            ("loop0", "10", &["lower_loop0/x"]),
        ] {
            root.write(&format!("class/net/{name}/speed"), speed);
            for file in below {
                root.write(&format!("class/net/{name}/{file}"), "");
            }
        }
        use InterfaceSpeed::{OfBond, OfPort};
        for (name, expected) in [
            ("eth0", Some(OfPort(25_000))),
            ("down0", None),
            ("none", None),
            ("bond0", Some(OfBond(50_000))),
            ("bond0.100", Some(OfBond(50_000))),
            ("team0", Some(OfBond(50_000))),
            ("eth0.7", Some(OfPort(25_000))),
            ("br0", Some(OfPort(25_000))),
            ("loop0", Some(OfPort(10))),
        ] {
            assert_eq!(speed_of(name, root.path()), expected, "{name}");
        }
    }
}
