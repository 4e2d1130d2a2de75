//! The GID table by each of the three ways.

use std::fs;
use std::path::PathBuf;

use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot, OptionalFunction, PortSpec};
use ibnet_verbs::{Context, Gid, GidType, LinkLayer, Operation, Sysfs};

use crate::tap::{Failure, called, context, fabric, fail, oldest_fabric, open, tap};

const LINK_LOCAL: &str = "fe80::5054:ff:fe12:3456";
const MAPPED: &str = "::ffff:10.1.2.3";

fn gid(text: &str) -> Gid {
    Gid::from(text.parse::<std::net::Ipv6Addr>().unwrap())
}

/// A place of the table, of an interface or of none.
fn slot(text: &str, gid_type: GidType, netdev: Option<u32>) -> GidSlot {
    GidSlot::Entry {
        gid: gid(text),
        gid_type,
        netdev,
    }
}

/// A port with this table, which has eight places.
fn port(gids: impl IntoIterator<Item = GidSlot>) -> PortSpec {
    PortSpec::roce().gids(gids).gid_table_len(8)
}

/// Two usable entries around another one, and room for more.
fn around(middle: GidSlot) -> [GidSlot; 3] {
    [
        slot(LINK_LOCAL, GidType::RoceV1, Some(3)),
        middle,
        slot(MAPPED, GidType::RoceV2, Some(3)),
    ]
}

/// A device with two usable entries around an empty one.
fn usual() -> DeviceSpec {
    DeviceSpec::roce("sim0").ports([port(around(GidSlot::Empty))])
}

/// Index, address, type and the number of the interface.
type Entry = (u32, Gid, GidType, Option<u32>);

fn usual_entries() -> [Entry; 2] {
    [
        (0, gid(LINK_LOCAL), GidType::RoceV1, Some(3)),
        (2, gid(MAPPED), GidType::RoceV2, Some(3)),
    ]
}

/// The entries that can be used, where nothing is known of interfaces.
fn entries(context: &Context, port: u8) -> Vec<Entry> {
    usable(context, port, &Sysfs::at("/nonexistent"))
}

fn usable(context: &Context, port: u8, sysfs: &Sysfs) -> Vec<Entry> {
    let table = context.gid_table(port, sysfs).unwrap().into_iter();
    let readable = table.filter(|entry| entry.unreadable.is_none());
    let usable = readable.filter_map(|entry| {
        let interface = entry.netdev.and_then(|netdev| netdev.index);
        Some((entry.index, entry.gid, entry.gid_type?, interface))
    });
    usable.collect()
}

/// The same by the oldest functions, with the interfaces of the machine.
fn by_sysfs(device: DeviceSpec) -> Vec<Entry> {
    usable(&open(&oldest_fabric(device)), 1, &Sysfs::default())
}

/// A device of a library that cannot read the whole table at once.
fn one_by_one(device: DeviceSpec) -> Fabric {
    Fabric::builder()
        .device(device)
        .without(OptionalFunction::QueryGidTable)
        .build()
        .unwrap()
}

#[test]
fn the_whole_table_at_once() {
    assert_eq!(entries(&open(&fabric(usual())), 1), usual_entries());
    assert_eq!((called("query_gid_table"), called("query_gid_ex")), (1, 0));
}

#[test]
fn entries_of_other_ports_are_left_out() {
    let other = slot("fe80::2", GidType::RoceV1, Some(4));
    let spec = usual().ports([port(around(GidSlot::Empty)), port([other])]);
    let context = open(&fabric(spec));
    assert_eq!(entries(&context, 1), usual_entries());
    let entries = entries(&context, 2).into_iter();
    assert_eq!(
        entries.map(|entry| entry.1).collect::<Vec<_>>(),
        [gid("fe80::2")]
    );
}

#[test]
fn one_bad_entry_does_not_hide_the_others() {
    let bad = GidSlot::Unreadable(libc::EINVAL);
    let spec = usual().ports([port(around(bad))]);
    assert_eq!(entries(&open(&fabric(spec)), 1), usual_entries());
    // The whole table fails for the bad entry; then each is asked for alone.
    assert_eq!((called("query_gid_table"), called("query_gid_ex")), (1, 8));
}

#[test]
fn entry_by_entry_without_the_call_for_the_whole() {
    assert_eq!(entries(&open(&one_by_one(usual())), 1), usual_entries());
    assert_eq!(called("query_gid_ex"), 8);
}

#[test]
fn a_type_that_a_newer_driver_invents_is_kept() {
    let spec = || usual().ports([port([slot(MAPPED, GidType::Unknown(9), None)])]);
    for fabric in [fabric(spec()), one_by_one(spec())] {
        let entry = entries(&open(&fabric), 1)[0];
        assert_eq!((entry.2, entry.3), (GidType::Unknown(9), None));
    }
}

#[test]
fn a_table_of_absurd_length_takes_no_absurd_memory() {
    tap(|tap| tap.port = Some(Box::new(|port| port.gid_tbl_len = i32::MAX)));
    assert_eq!(entries(&open(&fabric(usual())), 1), usual_entries());
}

#[test]
fn the_port_must_exist() {
    fail("extended_query_port", Failure::Errno(libc::EINVAL));
    let error = context().gid_table(9, &Sysfs::default()).unwrap_err();
    assert_eq!(error.operation, Operation::QueryPort { port: 9 });
}

#[test]
fn a_single_gid_is_read_or_an_error() {
    let context = open(&fabric(usual()));
    assert_eq!(context.gid(1, 2).unwrap(), gid(MAPPED));
    assert!(context.gid(1, 1).unwrap().is_zero());
    let error = context.gid(1, 8).unwrap_err();
    assert_eq!(error.operation, Operation::QueryGid { port: 1, index: 8 });
    assert_eq!(
        context.gid(1, u32::MAX).unwrap_err().errno(),
        Some(libc::EINVAL)
    );
}

/// A sysfs directory of a device, with these files under `ports/1/gid_attrs`.
fn sysfs(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("gids")
        .join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("ports/1")).unwrap();
    for (file, text) in files {
        let file = root.join("ports/1/gid_attrs").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    root
}

#[test]
fn bare_gids_get_their_types_and_interfaces_from_sysfs() {
    let last = slot("fe80::3", GidType::RoceV2, None);
    let gids = around(GidSlot::Empty).into_iter().chain([last]);
    let files = [
        ("types/0", "IB/RoCE v1\n"),
        ("ndevs/0", "lo\n"),
        ("types/2", "RoCE v2\n"),
        ("ndevs/2", "lo\n"),
        ("types/3", "RoCE v2\n"),
    ];
    let device = usual().ports([port(gids)]);
    let entries = by_sysfs(device.sysfs_path(sysfs("usual", &files)));
    // The loop-back interface is the first of every network namespace.
    let [first, third] = usual_entries().map(|(index, gid, of, _)| (index, gid, of, Some(1)));
    let last = (3, gid("fe80::3"), GidType::RoceV2, None);
    assert_eq!(entries, [first, third, last]);
}

#[test]
fn entries_that_sysfs_does_not_explain_are_left_out_alone() {
    let entry = |text| slot(text, GidType::RoceV2, None);
    let gids = [
        entry("fe80::1"),
        GidSlot::Unreadable(libc::EINVAL),
        entry("fe80::2"),
        entry("fe80::3"),
        entry("fe80::4"),
    ];
    let files = [
        // 0 has no type file; 1 has no GID.
        ("types/2", "RoCE v9\n"),
        ("types/3", "RoCE v2\n"),
        ("ndevs/3", "nosuchinterface\n"),
        ("types/4", "RoCE v2\n"),
    ];
    let device = usual().ports([port(gids)]);
    let entries = by_sysfs(device.sysfs_path(sysfs("unreadable", &files)));
    assert_eq!(entries.iter().map(|entry| entry.0).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_kernel_without_types_has_only_the_first_version() {
    for (link_layer, expected) in [
        (LinkLayer::InfiniBand, GidType::InfiniBand),
        (LinkLayer::Ethernet, GidType::RoceV1),
    ] {
        tap(|tap| tap.port = Some(Box::new(move |port| port.link_layer = link_layer.raw())));
        let entries = by_sysfs(usual().sysfs_path(sysfs("no_types", &[])));
        assert_eq!(entries.len(), 2);
        assert!(
            entries
                .iter()
                .all(|entry| entry.2 == expected && entry.3.is_none())
        );
    }
}

#[test]
fn gids_are_printed_like_addresses() {
    let address = gid(LINK_LOCAL);
    assert_eq!(address.to_string(), LINK_LOCAL);
    assert_eq!(format!("{address:?}"), format!("Gid({LINK_LOCAL})"));
    assert_eq!(gid(MAPPED).to_string(), MAPPED);
    assert_eq!(address.subnet_prefix(), 0xfe80_0000_0000_0000);
    assert_eq!(address.interface_id(), 0x5054_00ff_fe12_3456);
    assert_eq!(address.to_ipv6().to_string(), LINK_LOCAL);
}

#[test]
fn only_addresses_of_hosts_count_as_ipv4() {
    assert_eq!(gid(MAPPED).ipv4_mapped(), Some("10.1.2.3".parse().unwrap()));
    for other in [
        "::ffff:0.0.0.0",
        "::ffff:0.1.2.3",
        "::ffff:224.0.0.1",
        "::ffff:239.255.255.255",
        "::ffff:255.255.255.255",
        "::10.1.2.3",
        LINK_LOCAL,
        "::",
    ] {
        assert_eq!(gid(other).ipv4_mapped(), None, "{other}");
    }
}
