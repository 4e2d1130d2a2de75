//! GID tables with what sysfs tells of their network interfaces, in health and in containers.
//!
//! The tree of each test is a directory of its own, below which the device and the interfaces are
//! where the kernel would have them.

use std::fs;
use std::path::{Path, PathBuf};

use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot, OptionalFunction, PortSpec};
use ibnet_verbs::{Gid, GidTableEntry, GidType, LinkLayer, Netdev, NetdevKind, Operation, Sysfs};

use crate::tap::{Failure, called, context, fabric, fail, oldest_fabric, open, tap};

const LINK_LOCAL: &str = "fe80::5054:ff:fe12:3456";
const IPV4: &str = "::ffff:10.1.2.3";
const OTHER: &str = "::ffff:10.9.9.9";

fn gid(text: &str) -> Gid {
    Gid::from(text.parse::<std::net::Ipv6Addr>().unwrap())
}

/// A place of the table, of the interface of this number, or of none.
fn slot(text: &str, gid_type: GidType, interface: u32) -> GidSlot {
    GidSlot::Entry {
        gid: gid(text),
        gid_type,
        netdev: (interface != 0).then_some(interface),
    }
}

/// A device of whose port this is the whole table.
fn device<const N: usize>(gids: [GidSlot; N]) -> DeviceSpec {
    DeviceSpec::roce("sim0")
        .ports([PortSpec::roce().gids(gids).gid_table_len(N)])
        .sysfs_path("/sys/class/infiniband/sim0")
}

/// Lets ports be of InfiniBand.
fn on_infiniband() {
    tap(|tap| {
        tap.port = Some(Box::new(|port| {
            port.link_layer = LinkLayer::InfiniBand.raw()
        }))
    });
}

/// A directory that looks like `/sys`, with the device `sim0`.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join("gid_tables")
            .join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("class/infiniband/sim0/ports/1")).unwrap();
        Self(root)
    }

    fn write(&self, file: impl AsRef<Path>, text: &str) -> &Self {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        self
    }

    /// An interface that is up, of an ordinary kind.
    fn interface(&self, name: &str, index: u32) -> &Self {
        let file = |file: &str| format!("class/net/{name}/{file}");
        self.write(file("ifindex"), &format!("{index}\n"))
            .write(file("flags"), "0x1003\n")
            .write(file("operstate"), "up\n")
            .write(file("type"), "1\n")
            .write(
                file("uevent"),
                &format!("INTERFACE={name}\nIFINDEX={index}\n"),
            )
    }

    /// What the device says of an entry.
    fn entry(&self, index: u32, gid_type: &str, netdev: &str) -> &Self {
        let file = |kind: &str| format!("class/infiniband/sim0/ports/1/gid_attrs/{kind}/{index}");
        self.write(file("types"), &format!("{gid_type}\n"))
            .write(file("ndevs"), &format!("{netdev}\n"))
    }

    fn read(&self, fabric: &Fabric) -> Vec<GidTableEntry> {
        let sysfs = Sysfs::at(&self.0);
        open(fabric).gid_table(1, &sysfs).unwrap()
    }
}

/// Every way of reading a table, by what the library lacks.
fn ways(device: &DeviceSpec) -> [Fabric; 3] {
    let one_by_one = Fabric::builder()
        .device(device.clone())
        .without(OptionalFunction::QueryGidTable);
    [
        fabric(device.clone()),
        one_by_one.build().unwrap(),
        oldest_fabric(device.clone()),
    ]
}

fn up(name: &str, index: u32, kind: NetdevKind) -> Option<Netdev> {
    Some(Netdev {
        index: Some(index),
        name: Some(name.to_owned()),
        up: Some(true),
        kind: Some(kind),
    })
}

fn reasons(table: &[GidTableEntry]) -> Vec<(u32, Option<&str>)> {
    table
        .iter()
        .map(|entry| (entry.index, entry.unreadable.as_deref()))
        .collect()
}

#[test]
fn every_way_tells_types_and_interfaces() {
    let tree = Tree::new("usual");
    tree.interface("eth2", 4)
        .interface("eth2.100", 7)
        .write("class/net/eth2.100/uevent", "DEVTYPE=vlan\n")
        .entry(0, "IB/RoCE v1", "eth2")
        .entry(2, "RoCE v2", "eth2.100");
    let device = device([
        slot(LINK_LOCAL, GidType::RoceV1, 4),
        GidSlot::Empty,
        slot(IPV4, GidType::RoceV2, 7),
    ]);
    let expected = [
        GidTableEntry {
            index: 0,
            gid: gid(LINK_LOCAL),
            gid_type: Some(GidType::RoceV1),
            netdev: up("eth2", 4, NetdevKind::Plain),
            unreadable: None,
        },
        GidTableEntry {
            index: 2,
            gid: gid(IPV4),
            gid_type: Some(GidType::RoceV2),
            netdev: up("eth2.100", 7, NetdevKind::Vlan),
            unreadable: None,
        },
    ];
    for fabric in ways(&device) {
        assert_eq!(tree.read(&fabric), expected);
    }
    // Also when the library has the calls, but the kernel refuses them.
    for call in ["query_gid_table", "query_gid_ex"] {
        fail(call, Failure::Errno(libc::EOPNOTSUPP));
    }
    assert_eq!(tree.read(&fabric(device)), expected);
    assert_eq!(called("query_gid"), 6);
}

#[test]
fn an_entry_is_ours_if_its_address_is() {
    // Two pods share a device and both call their interface net1, number 4. Entry 3 is what is left
    // of a MAC address that the interface had before.
    let tree = Tree::new("pods");
    tree.interface("net1", 4);
    let addresses = [
        LINK_LOCAL,
        "::ffff:10.8.0.11",
        "::ffff:10.8.0.12",
        "fe80::a0b:cff:fe11:2233",
        "fd00::12",
    ];
    for (slot, _) in (0..).zip(addresses) {
        tree.entry(slot, "RoCE v2", "net1");
    }
    let device = device(addresses.map(|address| slot(address, GidType::RoceV2, 4)));
    let own = [LINK_LOCAL, "10.8.0.12", "fd00::12"].map(|address| address.parse().unwrap());
    let sysfs = Sysfs::at(&tree.0).with_addresses(own);
    let foreign = Some("no interface of this network namespace has it");
    for fabric in ways(&device) {
        let table = open(&fabric).gid_table(1, &sysfs).unwrap();
        let expected = [(0, None), (1, foreign), (2, None), (3, foreign), (4, None)];
        assert_eq!(reasons(&table), expected);
    }
    // Where the own addresses are not known, nothing is said of any.
    let unknown = tree.read(&fabric(device.clone()));
    assert!(unknown.iter().all(|entry| entry.unreadable.is_none()));
    // On InfiniBand they do not matter.
    on_infiniband();
    let table = open(&fabric(device)).gid_table(1, &sysfs).unwrap();
    assert!(table.iter().all(|entry| entry.unreadable.is_none()));
}

#[test]
fn bare_gids_without_a_type_keep_the_reason_of_the_better_call() {
    let tree = Tree::new("refused");
    tree.interface("eth2", 4).entry(1, "RoCE v2", "eth2");
    let device = device([slot(IPV4, GidType::RoceV2, 4), GidSlot::Empty]);
    for call in ["query_gid_table", "query_gid_ex"] {
        fail(call, Failure::Errno(libc::EACCES));
    }
    let table = tree.read(&fabric(device));
    let expected = "querying it: Permission denied (os error 13)";
    assert_eq!(reasons(&table), [(0, Some(expected))]);
    assert_eq!(table[0].gid, gid(IPV4));
}

#[test]
fn a_healthy_table_takes_one_call_and_no_type_file() {
    // Pitfall 32: NCCL reads sysfs for every index on every connect.
    let tree = Tree::new("one_call");
    tree.interface("eth2", 4).entry(0, "RoCE v9", "eth2");
    let device = device([slot(IPV4, GidType::RoceV2, 4)]);
    let table = tree.read(&fabric(device));
    assert_eq!(table[0].gid_type, Some(GidType::RoceV2));
    assert_eq!((called("query_gid_table"), called("query_gid_ex")), (1, 0));
    assert_eq!(called("query_gid"), 0);
}

#[test]
fn interfaces_say_whether_they_are_up_and_of_what_kind() {
    let tree = Tree::new("kinds");
    let kinds = [
        ("eth2", "INTERFACE=eth2\n", NetdevKind::Plain),
        ("bond0", "DEVTYPE=bond\n", NetdevKind::Bond),
        ("vxlan1", "DEVTYPE=vxlan\n", NetdevKind::Tunnel),
        ("eth3", "INTERFACE=eth3\n", NetdevKind::BondMember),
    ];
    for ((name, uevent, _), number) in kinds.iter().zip(10..) {
        tree.interface(name, number)
            .write(format!("class/net/{name}/uevent"), uevent);
    }
    tree.write("class/net/eth3/bonding_slave/state", "active\n")
        .write("class/net/bond0/operstate", "lowerlayerdown\n")
        .write("class/net/vxlan1/flags", "0x1002\n");
    let device = device([10, 11, 12, 13].map(|number| slot(IPV4, GidType::RoceV2, number)));
    let table = tree.read(&fabric(device));
    let netdevs = table.iter().map(|entry| entry.netdev.as_ref().unwrap());
    let found: Vec<_> = netdevs
        .map(|netdev| (netdev.name.as_deref().unwrap(), netdev.up, netdev.kind))
        .collect();
    let expected: Vec<_> = kinds
        .iter()
        .zip([true, false, false, true])
        .map(|((name, _, kind), up)| (*name, Some(up), Some(*kind)))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn entries_of_other_namespaces_are_marked_alone() {
    // Pitfall 26. An interface is another namespace's if there is none of its number here, or if
    // the one of its number has another name.
    let tree = Tree::new("namespaces");
    tree.interface("net1", 4)
        .entry(0, "RoCE v2", "ens1f0")
        .entry(1, "RoCE v2", "eth0")
        .entry(2, "RoCE v2", "net1");
    let device = device([
        slot(LINK_LOCAL, GidType::RoceV2, 9),
        slot(OTHER, GidType::RoceV2, 4),
        slot(IPV4, GidType::RoceV2, 4),
    ]);
    let expected = [
        (0, Some("ens1f0 is not in this network namespace")),
        (1, Some("eth0 is not in this network namespace")),
        (2, None),
    ];
    for fabric in ways(&device) {
        let table = tree.read(&fabric);
        assert_eq!(reasons(&table), expected);
        assert_eq!(table[2].netdev, up("net1", 4, NetdevKind::Plain));
        // What is another's is named, and nothing is said of its state.
        let other = table[0].netdev.as_ref().unwrap();
        assert_eq!((other.name.as_deref(), other.up), (Some("ens1f0"), None));
        assert_eq!(table[1].gid, gid(OTHER));
    }
}

#[test]
fn a_number_alone_names_the_interface_that_is_missing() {
    let tree = Tree::new("number");
    tree.interface("net1", 4);
    let device = device([slot(IPV4, GidType::RoceV2, 9)]);
    assert_eq!(
        reasons(&tree.read(&fabric(device))),
        [(0, Some("interface 9 is not in this network namespace"))]
    );
}

#[test]
fn an_entry_that_cannot_be_queried_stays_with_its_reason() {
    // Pitfall 26: one bad slot aborted the connection.
    let tree = Tree::new("unreadable");
    tree.interface("eth2", 4)
        .entry(0, "RoCE v2", "eth2")
        .entry(2, "RoCE v2", "eth2");
    let device = device([
        slot(LINK_LOCAL, GidType::RoceV2, 4),
        GidSlot::Unreadable(libc::EINVAL),
        slot(IPV4, GidType::RoceV2, 4),
    ]);
    for fabric in ways(&device) {
        let table = tree.read(&fabric);
        let expected = "querying it: Invalid argument (os error 22)";
        assert_eq!(reasons(&table), [(0, None), (1, Some(expected)), (2, None)]);
        assert!(table[1].gid.is_zero());
        assert_eq!(table[2].netdev, up("eth2", 4, NetdevKind::Plain));
    }
}

#[test]
fn a_table_that_may_not_be_read_is_no_failure() {
    let tree = Tree::new("no_permission");
    let device = device([slot(IPV4, GidType::RoceV2, 4), GidSlot::Empty]);
    for number in [libc::EACCES, libc::ENOENT, libc::EOPNOTSUPP] {
        for call in ["query_gid_table", "query_gid_ex", "query_gid"] {
            fail(call, Failure::Errno(number));
        }
        for fabric in ways(&device) {
            let table = tree.read(&fabric);
            assert_eq!(table.len(), 2);
            assert!(table.iter().all(|entry| entry.unreadable.is_some()));
        }
    }
}

#[test]
fn without_sysfs_there_are_addresses_but_no_states() {
    let absent = Tree::new("absent");
    fs::remove_dir_all(&absent.0).unwrap();
    let device = device([slot(IPV4, GidType::RoceV2, 4)]);
    let expected = GidTableEntry {
        index: 0,
        gid: gid(IPV4),
        gid_type: Some(GidType::RoceV2),
        netdev: Some(Netdev::numbered(4)),
        unreadable: None,
    };
    let [whole, one_by_one, bare] = ways(&device);
    for fabric in [whole, one_by_one] {
        assert_eq!(absent.read(&fabric), std::slice::from_ref(&expected));
    }
    // Pitfall 23: an old library without sysfs cannot tell the type, and does not make one up.
    let unknown = GidTableEntry {
        gid_type: None,
        netdev: None,
        ..expected
    };
    assert_eq!(absent.read(&bare), [unknown]);
}

#[test]
fn types_that_sysfs_does_not_tell_stay_unknown() {
    let tree = Tree::new("hidden_types");
    tree.interface("eth2", 4)
        .entry(0, "RoCE v9", "eth2")
        .entry(1, "RoCE v2", "eth2");
    // Type files that cannot be read at all: there is none, or it is no file.
    let types = tree.0.join("class/infiniband/sim0/ports/1/gid_attrs/types");
    fs::create_dir_all(types.join("3")).unwrap();
    let device = device([
        slot("fe80::1", GidType::RoceV2, 0),
        slot("fe80::2", GidType::RoceV2, 0),
        slot("fe80::3", GidType::RoceV2, 0),
        slot("fe80::4", GidType::RoceV2, 0),
    ]);
    let table = tree.read(&oldest_fabric(device));
    let types: Vec<_> = table.iter().map(|entry| entry.gid_type).collect();
    assert_eq!(types, [None, Some(GidType::RoceV2), None, None]);
    assert!(table.iter().all(|entry| entry.unreadable.is_none()));
}

#[test]
fn interface_names_that_are_none_are_not_believed() {
    let tree = Tree::new("bad_names");
    tree.interface("eth2", 4)
        .entry(0, "RoCE v2", "../../../etc")
        .entry(1, "RoCE v2", "");
    let device = device([
        slot(IPV4, GidType::RoceV2, 4),
        slot(IPV4, GidType::RoceV2, 0),
    ]);
    let table = tree.read(&fabric(device));
    assert_eq!(table[0].netdev, up("eth2", 4, NetdevKind::Plain));
    assert_eq!(table[1].netdev, None);
    assert_eq!(reasons(&table), [(0, None), (1, None)]);
}

#[test]
fn a_change_of_the_table_or_of_an_interface_can_be_told() {
    // What is kept must be known to be old.
    let tree = Tree::new("change");
    tree.interface("eth2", 4);
    let ipv4 = slot(IPV4, GidType::RoceV2, 4);
    let link_local = slot(LINK_LOCAL, GidType::RoceV2, 4);
    let fabric = fabric(device([link_local, ipv4, GidSlot::Empty]));
    let before = tree.read(&fabric);
    assert_eq!(before, tree.read(&fabric));
    tree.write("class/net/eth2/operstate", "down\n");
    assert_ne!(before, tree.read(&fabric));
    tree.write("class/net/eth2/operstate", "up\n");
    assert_eq!(before, tree.read(&fabric));
    let port = fabric.hca("sim0").unwrap().port(1).unwrap();
    port.set_gids([link_local, GidSlot::Empty, ipv4]);
    assert_ne!(before, tree.read(&fabric));
}

#[test]
fn infiniband_has_types_without_sysfs_and_no_interfaces() {
    let absent = Tree::new("infiniband");
    fs::remove_dir_all(&absent.0).unwrap();
    let device = device([slot("fe80::2:c903:1:1", GidType::InfiniBand, 0)]);
    on_infiniband();
    for fabric in ways(&device) {
        let table = absent.read(&fabric);
        assert_eq!(table[0].gid_type, Some(GidType::InfiniBand));
        assert_eq!((&table[0].netdev, &table[0].unreadable), (&None, &None));
    }
}

#[test]
fn the_systems_own_interfaces_are_known_by_name_and_number() {
    // The loop-back interface is the first of every network namespace; no namespace has the other.
    let device = device([
        slot(IPV4, GidType::RoceV2, 1),
        slot(OTHER, GidType::RoceV2, i32::MAX.cast_unsigned()),
    ]);
    let table = open(&fabric(device));
    let table = table.gid_table(1, &Sysfs::default()).unwrap();
    let netdev = table[0].netdev.as_ref().unwrap();
    assert_eq!(
        (netdev.index, netdev.name.as_deref()),
        (Some(1), Some("lo"))
    );
    assert_eq!(table[0].unreadable, None);
    assert!(table[1].unreadable.is_some());
}

#[test]
fn only_the_port_itself_must_be_readable() {
    fail("extended_query_port", Failure::Errno(libc::EINVAL));
    let result = context().gid_table(9, &Sysfs::default());
    assert!(matches!(
        result.unwrap_err().operation,
        Operation::QueryPort { port: 9, .. }
    ));
}
