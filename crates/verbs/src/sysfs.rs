//! [`Sysfs`]: where the kernel's facts about devices and network interfaces are read from.
//!
//! libibverbs does not tell everything. The rest is in sysfs, below a root that a test can replace
//! by a directory of its own. What cannot be read there is never fatal: each caller says what it
//! does without.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::gid::Gid;
use crate::netdev::{Netdev, NetdevKind};
use crate::own_addresses;

/// Where sysfs is mounted.
const SYSTEM: &str = "/sys";

/// The root of sysfs: `/sys` by default, or a directory that looks like it.
///
/// With the default, the names and numbers of network interfaces are asked from the kernel, because
/// a container may have been given the `/sys` of its host, which shows the interfaces of another
/// network namespace. With any other root they are those of the directory `class/net` below it.
///
/// The addresses of the interfaces are not in sysfs. They are asked from the kernel as well, or
/// given by [`with_addresses`](Self::with_addresses).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sysfs {
    root: PathBuf,
    addresses: Option<BTreeSet<Gid>>,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at(SYSTEM)
    }
}

impl Sysfs {
    /// The directory `root` in place of `/sys`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            addresses: None,
        }
    }

    /// The same, where the interfaces of this network namespace have these addresses and no
    /// others: an entry of a RoCE port's GID table with another address is not ours.
    ///
    /// A link-local GID is one of them, too, also that which the kernel makes of a MAC address.
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let gid = |address| match address {
            IpAddr::V4(v4) => Gid::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => Gid::from(v6),
        };
        self.addresses = Some(addresses.into_iter().map(gid).collect());
        self
    }

    /// The GIDs that this network namespace can have on devices of the machine. None if that cannot
    /// be told: of devices that the process itself provides, the kernel knows nothing.
    pub(crate) fn own_gids(&self, is_of_machine: bool) -> Option<BTreeSet<Gid>> {
        match &self.addresses {
            Some(addresses) => Some(addresses.clone()),
            None if self.is_system() && is_of_machine => own_addresses::of_this_namespace(),
            None => None,
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where `path` is to be found: a path below `/sys` moves below the root, any other stays, as
    /// it is a device's that has a directory of its own.
    pub fn locate(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(SYSTEM) {
            Ok(rest) => self.root.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    /// The directory of a network interface. None if no interface can have this name, for instance
    /// because it would lead elsewhere.
    pub(crate) fn interface(&self, name: &str) -> Option<PathBuf> {
        Netdev::is_name(name).then(|| self.root.join("class/net").join(name))
    }

    /// The name of a network interface, `Ok(None)` if the network namespace has none of this
    /// number. An error says that this cannot be told.
    pub(crate) fn interface_name(&self, index: u32) -> io::Result<Option<String>> {
        if self.is_system() {
            return name_by_kernel(index);
        }
        for entry in fs::read_dir(self.root.join("class/net"))? {
            let path = entry?.path();
            if read_number(&path.join("ifindex")) == Some(index) {
                let name = path.file_name().and_then(|name| name.to_str());
                return Ok(name.map(str::to_owned));
            }
        }
        Ok(None)
    }

    /// The number of a network interface, `Ok(None)` if the network namespace has none of this
    /// name. An error says that this cannot be told.
    pub(crate) fn interface_index(&self, name: &str) -> io::Result<Option<u32>> {
        let Some(directory) = self.interface(name) else {
            return Ok(None);
        };
        if self.is_system() {
            return index_by_kernel(name);
        }
        // Without the directory of all interfaces, nothing is known of this one.
        fs::metadata(self.root.join("class/net"))?;
        Ok(read_number(&directory.join("ifindex")))
    }

    /// Reads state and kind of an interface, for which its name must be known.
    ///
    /// Nothing is taken from a sysfs that knows another number for the name: it shows the
    /// interfaces of another network namespace.
    pub(crate) fn describe(&self, netdev: &mut Netdev) {
        let Some(directory) = netdev.name.as_deref().and_then(|name| self.interface(name)) else {
            return;
        };
        let number = read_number(&directory.join("ifindex"));
        if number.is_none() || number != netdev.index {
            return;
        }
        let text = |file: &str| fs::read_to_string(directory.join(file)).ok();
        netdev.up = is_up(
            read_number(&directory.join("flags")),
            text("operstate").as_deref().map(str::trim),
        );
        netdev.kind = match directory.join("bonding_slave").exists() {
            true => Some(NetdevKind::BondMember),
            false => {
                text("uevent").map(|uevent| kind(&uevent, read_number(&directory.join("type"))))
            }
        };
    }

    fn is_system(&self) -> bool {
        self.root == Path::new(SYSTEM)
    }
}

/// The name of an interface of this thread's network namespace (if_indextoname(3)).
fn name_by_kernel(index: u32) -> io::Result<Option<String>> {
    let mut buffer = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call demands.
    let name = unsafe { libc::if_indextoname(index, buffer.as_mut_ptr().cast()) };
    if name.is_null() {
        return none_if_absent(io::Error::last_os_error());
    }
    let length = buffer.iter().position(|&byte| byte == 0);
    let name = &buffer[..length.unwrap_or(buffer.len())];
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}

/// The number of an interface of this thread's network namespace (if_nametoindex(3)).
fn index_by_kernel(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    // SAFETY: the name is a valid C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => none_if_absent(io::Error::last_os_error()),
        index => Ok(Some(index)),
    }
}

/// Tells "there is none" from failures to ask, such as too many open files.
fn none_if_absent<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(libc::ENXIO | libc::ENODEV) => Ok(None),
        _ => Err(error),
    }
}

/// The number in a file, decimal or hexadecimal with `0x`.
fn read_number(file: &Path) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether packets can leave (`operstate` is that of RFC 2863: `unknown` is said by drivers that
/// do not watch it, such as that of the loop-back interface).
fn is_up(flags: Option<u32>, state: Option<&str>) -> Option<bool> {
    if flags.is_some_and(|flags| flags & libc::IFF_UP.cast_unsigned() == 0) {
        return Some(false);
    }
    match state {
        Some("up") => Some(true),
        Some("down" | "lowerlayerdown" | "notpresent" | "dormant" | "testing") => Some(false),
        _ => flags.map(|_| true),
    }
}

/// What the files `uevent` and `type` (the hardware type of ARP) say.
fn kind(uevent: &str, hardware: Option<u32>) -> NetdevKind {
    const TUNNELS: [u16; 5] = [
        libc::ARPHRD_TUNNEL,
        libc::ARPHRD_TUNNEL6,
        libc::ARPHRD_SIT,
        libc::ARPHRD_IPGRE,
        823, // ARPHRD_IP6GRE, which libc lacks
    ];
    let device_type = uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="));
    match device_type.map(str::trim) {
        Some("bond") => NetdevKind::Bond,
        Some("vlan") => NetdevKind::Vlan,
        Some("vxlan" | "geneve" | "wireguard") => NetdevKind::Tunnel,
        _ if hardware.is_some_and(|number| TUNNELS.iter().any(|&of| u32::from(of) == number)) => {
            NetdevKind::Tunnel
        }
        _ => NetdevKind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_system_move_below_another_root() {
        let sysfs = Sysfs::at("/fixture");
        assert_eq!(
            sysfs.locate(Path::new("/sys/class/infiniband/mlx5_0")),
            Path::new("/fixture/class/infiniband/mlx5_0")
        );
        for own in ["/run/sim/class/infiniband/sim0", "/system/x"] {
            assert_eq!(sysfs.locate(Path::new(own)), Path::new(own));
        }
        let system = Path::new("/sys/class/infiniband/mlx5_0");
        assert_eq!(Sysfs::default().locate(system), system);
    }

    #[test]
    fn the_kernel_knows_the_loop_back_interface_without_sysfs() {
        let sysfs = Sysfs::default();
        assert_eq!(
            sysfs.interface_name(1).ok().flatten().as_deref(),
            Some("lo")
        );
        assert_eq!(sysfs.interface_index("lo").ok().flatten(), Some(1));
        assert_eq!(sysfs.interface_name(u32::MAX).ok(), Some(None));
        assert_eq!(sysfs.interface_index("no-such-netdev").ok(), Some(None));
    }

    #[test]
    fn a_root_without_interfaces_tells_nothing_of_any() {
        let sysfs = Sysfs::at("/nonexistent");
        assert!(sysfs.interface_name(1).is_err());
        assert!(sysfs.interface_index("lo").is_err());
    }

    #[test]
    fn up_means_brought_up_and_with_a_carrier() {
        const UP: u32 = 0x1003;
        const DOWN: u32 = 0x1002;
        for (flags, state, up) in [
            (Some(UP), Some("up"), Some(true)),
            (Some(UP), Some("unknown"), Some(true)),
            (Some(UP), Some("down"), Some(false)),
            (Some(UP), Some("lowerlayerdown"), Some(false)),
            (Some(UP), Some("dormant"), Some(false)),
            (Some(DOWN), Some("down"), Some(false)),
            (Some(DOWN), Some("up"), Some(false)),
            (Some(UP), None, Some(true)),
            (Some(DOWN), None, Some(false)),
            (None, Some("up"), Some(true)),
            (None, Some("unknown"), None),
            (None, None, None),
        ] {
            assert_eq!(is_up(flags, state), up, "{flags:?} {state:?}");
        }
    }

    #[test]
    fn a_sysfs_of_another_namespace_is_not_believed() {
        let sysfs = Sysfs::default();
        let described = |index| {
            let mut netdev = Netdev {
                index: Some(index),
                ..Netdev::named("lo")
            };
            sysfs.describe(&mut netdev);
            netdev
        };
        // The loop-back interface is number 1 wherever there is a sysfs.
        let is_there = sysfs.root().join("class/net/lo/flags").exists();
        assert_eq!(described(1).up.is_some(), is_there);
        assert_eq!(described(7).up, None);
        assert_eq!(described(7).kind, None);
    }

    #[test]
    fn the_kind_is_told_by_uevent_and_hardware_type() {
        for (uevent, hardware, expected) in [
            ("INTERFACE=eth2\nIFINDEX=4\n", 1, NetdevKind::Plain),
            ("DEVTYPE=vlan\nINTERFACE=eth2.100\n", 1, NetdevKind::Vlan),
            ("DEVTYPE=bond\nINTERFACE=bond0\n", 1, NetdevKind::Bond),
            ("DEVTYPE=vxlan\nINTERFACE=vx0\n", 1, NetdevKind::Tunnel),
            ("INTERFACE=ip6tnl0\n", 769, NetdevKind::Tunnel),
            ("", 772, NetdevKind::Plain),
        ] {
            assert_eq!(kind(uevent, Some(hardware)), expected, "{uevent}");
        }
    }
}
