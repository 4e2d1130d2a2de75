//! What no device can be: descriptions and values that are refused, wherever they come from.

use ibnet_verbs::{Gid, LinkLayer, Mtu};

use super::{DeviceSpec, GidSlot, Limits, PortSpec};

/// The longest message that the InfiniBand specification allows, in bytes.
const LONGEST_MESSAGE: u32 = 1 << 31;
/// Unicast LIDs are those below.
const MULTICAST_LIDS: u16 = 0xc000;

/// What is wrong with a description, if anything is.
pub(crate) fn device(spec: &DeviceSpec) -> Option<&'static str> {
    let named = [&spec.pci, &spec.physical_function, &spec.data_direct];
    let mut addresses = named.into_iter().flatten();
    let path = spec.sysfs_path.as_ref().map(|path| path.as_os_str());
    if !is_file_name(&spec.name) {
        Some("the name is empty, longer than 63 bytes, no file name, or has a slash or a zero byte")
    } else if !addresses.all(|address| is_file_name(address)) {
        Some("a PCI address is no file name, as which it appears in sysfs")
    } else if spec.physical_function.is_some() && spec.pci.is_none() {
        Some("a virtual function needs a PCI address of its own")
    } else if spec.physical_function.is_some() && spec.physical_function == spec.pci {
        Some("a virtual function cannot be that of itself")
    } else if spec.data_direct.is_some() && spec.pci.is_none() {
        Some("a device with Data Direct needs a PCI address of its own")
    } else if spec.firmware.len() > 63 || spec.firmware.contains('\0') {
        Some("the firmware version is longer than 63 bytes, or has a zero byte")
    } else if spec.guid == Some(0) {
        Some("the GUID of a node is not 0")
    } else if spec.ports.is_empty() || spec.ports.len() > 255 {
        Some("a device has 1 to 255 ports")
    } else if path.is_some_and(|path| {
        path.is_empty() || path.len() > 255 || path.as_encoded_bytes().contains(&0)
    }) {
        Some("the sysfs path is empty, longer than 255 bytes, or has a zero byte")
    } else if path.is_some() && spec.pci.is_some() {
        Some("a device with a sysfs path of its own has its PCI address there")
    } else {
        limits(&spec.limits).or_else(|| spec.ports.iter().find_map(port))
    }
}

/// Whether a name can be a file of its own in the directory that plays sysfs, and of a device in C.
fn is_file_name(name: &str) -> bool {
    (1..=63).contains(&name.len()) && !name.contains(['/', '\0']) && name != "." && name != ".."
}

fn limits(limits: &Limits) -> Option<&'static str> {
    let counts = [
        limits.max_qp,
        limits.max_qp_wr,
        limits.max_sge,
        limits.max_cq,
        limits.max_cqe,
        limits.max_mr,
        limits.max_pd,
        limits.max_inline,
        limits.completion_vectors,
    ];
    if counts
        .into_iter()
        .any(|count| i32::try_from(count).is_err())
    {
        Some("a limit does not fit an int, as which it is reported")
    } else if limits.max_qp_rd_atom.max(limits.max_qp_init_rd_atom) > 255 {
        Some("a queue pair has at most 255 RDMA reads")
    } else if limits.completion_vectors == 0 {
        Some("a device has at least one completion vector")
    } else {
        None
    }
}

fn port(port: &PortSpec) -> Option<&'static str> {
    let is_mtu = |mtu: Mtu| mtu.bytes().is_some();
    if !is_mtu(port.active_mtu) || !is_mtu(port.max_mtu) || port.active_mtu > port.max_mtu {
        Some("the MTU is unknown, or the active one exceeds the largest")
    } else if port.max_message == 0 || port.max_message > LONGEST_MESSAGE {
        Some("the longest message has 1 to 2^31 bytes")
    } else if port.pkeys.is_empty() || port.pkeys.len() > 0xffff {
        Some("a P_Key table has 1 to 65535 entries")
    } else if port.gid_table_len == 0 || port.gid_table_len > 0xffff {
        Some("a GID table has 1 to 65535 entries")
    } else if port
        .speed
        .is_some_and(|speed| speed == 0 || speed % 100 != 0)
    {
        Some("the speed is no multiple of 100 Mb/s")
    } else {
        let gids = port.gids.as_deref().unwrap_or_default();
        self::gids(gids, port.gid_table_len).or_else(|| lid(port.link_layer, port.lid?, port.lmc))
    }
}

/// What is wrong with the first places of a GID table of a length, if anything is.
pub(crate) fn gids(slots: &[GidSlot], length: usize) -> Option<&'static str> {
    if slots.len() > length {
        Some("there are more GIDs than the table has places")
    } else if slots.iter().any(|slot| slot.gid() == Some(Gid::default())) {
        Some("a GID is not 0; a place without one is `GidSlot::Empty`")
    } else if slots
        .iter()
        .any(|slot| matches!(slot, GidSlot::Unreadable(errno) if *errno <= 0))
    {
        Some("an errno is greater than 0")
    } else {
        None
    }
}

/// What is wrong with a LID and the number of its path bits, if anything is.
pub(crate) fn lid(link_layer: LinkLayer, lid: u16, lmc: u8) -> Option<&'static str> {
    if link_layer == LinkLayer::Ethernet {
        Some("an Ethernet port has no LID")
    } else if lmc > 7 {
        Some("at most 7 bits of a LID are path bits")
    } else if !(1..MULTICAST_LIDS).contains(&lid) {
        Some("unicast LIDs are 1 to 0xbfff")
    } else if lid & ((1 << lmc) - 1) != 0 {
        Some("the path bits of a port's own LID are zero")
    } else {
        None
    }
}
