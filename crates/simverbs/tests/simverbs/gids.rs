//! GID tables: their contents, their holes, and every way of reading them.

use ibnet_simverbs::{DeviceSpec, Fabric, FabricBuilder, GidSlot, OptionalFunction, PortSpec};
use ibnet_verbs::{Context, Gid, GidTableEntry, GidType, Sysfs};

use crate::pairs::open_all;

/// A table with everything that can be in one.
fn slots() -> [GidSlot; 6] {
    [
        GidSlot::roce_v1([192, 0, 2, 1].into()),
        GidSlot::Empty,
        GidSlot::roce_v2([192, 0, 2, 1].into()),
        GidSlot::Unreadable(libc::EINVAL),
        GidSlot::roce_v2_ipv6("2001:db8::1".parse().unwrap()),
        GidSlot::Entry {
            gid: Gid::from("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap()),
            gid_type: GidType::RoceV2,
            netdev: None,
        },
    ]
}

fn builder(slots: impl IntoIterator<Item = GidSlot>) -> FabricBuilder {
    let port = PortSpec::roce().gids(slots).gid_table_len(8);
    Fabric::builder().device(DeviceSpec::roce("sim0").ports([PortSpec::roce(), port]))
}

fn open(builder: FabricBuilder) -> (Fabric, Context) {
    let fabric = builder.build().unwrap();
    let context = open_all(&fabric).remove(0);
    (fabric, context)
}

/// The entries of a port that can be used.
fn readable(context: &Context, port: u8) -> Vec<GidTableEntry> {
    let mut table = context.gid_table(port, &Sysfs::default()).unwrap();
    table.retain(|entry| entry.unreadable.is_none());
    table
}

fn indices(entries: &[GidTableEntry]) -> Vec<(u32, GidType)> {
    entries
        .iter()
        .map(|entry| (entry.index, entry.gid_type.unwrap()))
        .collect()
}

#[test]
fn a_table_without_holes_is_read_at_once() {
    let (fabric, context) = open(builder([slots()[0], slots()[2]]));
    let read = fabric.library().functions().query_gid_table.unwrap();
    let mut entries = [ibnet_verbs::sys::ibv_gid_entry::default(); 32];
    let size = size_of::<ibnet_verbs::sys::ibv_gid_entry>();
    // SAFETY: the context is open, and the array as long as said.
    let mut read =
        |capacity| unsafe { read(context.as_raw(), entries.as_mut_ptr(), capacity, 0, size) };
    // Four of port 1, which was told nothing, and two of port 2.
    assert_eq!(read(32), 6);
    assert_eq!(read(6), 6);
    assert_eq!(read(5), -(libc::EINVAL as isize));
    assert_eq!(entries[5].port_num, 2);
    assert_eq!(entries[5].gid_index, 1);
}

#[test]
fn a_port_that_was_told_nothing_has_the_usual_table() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .device(DeviceSpec::roce("sim1").ports([PortSpec::roce().network(3)]))
        .device(DeviceSpec::infiniband("ib0"))
        .build()
        .unwrap();
    let contexts = open_all(&fabric);
    let entries = readable(&contexts[0], 1);
    use GidType::{InfiniBand, RoceV1, RoceV2};
    assert_eq!(
        indices(&entries),
        [(0, RoceV1), (1, RoceV2), (2, RoceV1), (3, RoceV2)]
    );
    assert_eq!(entries[0].gid.subnet_prefix(), 0xfe80 << 48);
    assert_eq!(entries[3].gid.ipv4_mapped(), Some([10, 0, 0, 1].into()));
    let other = readable(&contexts[1], 1);
    assert_eq!(other[3].gid.ipv4_mapped(), Some([10, 3, 0, 2].into()));
    let entries = readable(&contexts[2], 1);
    assert_eq!(indices(&entries), [(0, InfiniBand)]);
    assert_eq!(
        entries[0].gid.interface_id(),
        contexts[2].device().guid() | 1
    );
}

#[test]
fn a_table_can_change_while_the_device_is_open() {
    use OptionalFunction::{QueryGidEx, QueryGidTable};
    let builder = builder(slots())
        .sysfs()
        .without(QueryGidTable)
        .without(QueryGidEx);
    let (fabric, context) = open(builder);
    let port = fabric.hca("sim0").unwrap().port(2).unwrap();
    assert_eq!(port.gids().len(), 8);
    port.set_gids([GidSlot::Empty, slots()[0]]);
    assert_eq!(indices(&readable(&context, 2)), [(1, GidType::RoceV1)]);
    port.set_gid(7, slots()[2]);
    let expected = [(1, GidType::RoceV1), (7, GidType::RoceV2)];
    assert_eq!(indices(&readable(&context, 2)), expected);
    assert!(fabric.hca("sim0").unwrap().port(3).is_none());
    assert!(fabric.hca("sim9").is_none());
}
