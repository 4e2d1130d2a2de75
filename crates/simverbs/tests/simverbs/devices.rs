//! Devices and ports: what they say about themselves, in verbs and in sysfs.

use std::fs;

use ibnet_simverbs::{
    BuildError, ContextKind, DeviceSpec, Fabric, GidSlot, LaneSpeed, Limits, OptionalFunction,
    PortSpec, Width,
};
use ibnet_verbs::{Ece, LinkLayer, Mtu, PortState};

use crate::pairs::{Pair, Setup, open_all, options};

#[test]
fn devices_are_listed_with_what_identifies_them() {
    let fabric = Fabric::builder()
        .device(
            DeviceSpec::roce("first")
                .guids(0x1122, 0x3344)
                .firmware("7.8.9"),
        )
        .device(DeviceSpec::infiniband("second"))
        .build()
        .unwrap();
    let devices = fabric.library().devices().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(
        (devices[0].guid(), devices[0].kernel_index()),
        (0x1122, Some(0))
    );
    assert_ne!(devices[1].guid(), 0);
    assert_eq!(devices[1].kernel_index(), Some(1));
    assert!(!devices[0].sysfs_path().exists());
    let context = devices[0].open().unwrap();
    let attributes = context.attributes().unwrap();
    assert_eq!(
        (attributes.node_guid, attributes.sys_image_guid),
        (0x1122, 0x3344)
    );
    assert_eq!(
        (attributes.firmware.as_str(), attributes.phys_port_count),
        ("7.8.9", 1)
    );

    let old = Fabric::builder()
        .device(DeviceSpec::roce("first"))
        .without(OptionalFunction::GetDeviceIndex);
    let devices = old.build().unwrap().library().devices().unwrap();
    assert_eq!(devices[0].kernel_index(), None);
}

#[test]
fn a_machine_without_devices_has_none() {
    let fabric = Fabric::builder().build().unwrap();
    assert_eq!(fabric.library().devices().unwrap().len(), 0);
    assert!(fabric.live_objects().is_empty());
}

#[test]
fn ports_report_what_they_were_told() {
    let port = PortSpec::infiniband()
        .lid(0x40, 2)
        .mtu(Mtu::MTU_2048, Mtu::MTU_4096)
        .max_message(1 << 20)
        .pkeys([0xffff, 0x8001])
        .lanes(Width::X4, LaneSpeed::Hdr)
        .speed(150_000);
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0").ports([port, PortSpec::infiniband().down()]))
        .build()
        .unwrap();
    let context = open_all(&fabric).remove(0);
    let found = context.port(1).unwrap();
    assert_eq!(
        (found.lid, found.lmc, found.link_layer),
        (0x40, 2, LinkLayer::InfiniBand)
    );
    assert_eq!(
        (found.active_mtu, found.max_mtu),
        (Mtu::MTU_2048, Mtu::MTU_4096)
    );
    assert_eq!((found.max_message_size, found.pkey_table_len), (1 << 20, 2));
    assert_eq!((found.state, found.physical_state), (PortState::ACTIVE, 5));
    assert_eq!(found.speed(), Some(200_000));
    assert_eq!(context.port_speed(1).unwrap(), Some(150_000));
    assert_eq!(context.pkey(1, 1).unwrap(), 0x8001);
    assert_eq!(context.pkey_index(1, 0x8001).unwrap(), 1);
    context.pkey(1, 2).unwrap_err();
    context.pkey_index(1, 0x7fff).unwrap_err();

    let second = context.port(2).unwrap();
    assert_eq!((second.state, second.physical_state), (PortState::DOWN, 3));
    assert_eq!(context.port_speed(2).unwrap(), None);
    for number in [0, 3, 255] {
        assert_eq!(
            context.port(number).unwrap_err().errno(),
            Some(libc::EINVAL)
        );
    }
}

/// XDR does not fit the old field, so that only the extended query knows it.
#[test]
fn the_kind_of_context_decides_which_query_answers() {
    let device = |kind| {
        let port = PortSpec::roce().lanes(Width::X4, LaneSpeed::Xdr);
        DeviceSpec::roce("sim0").ports([port]).context(kind)
    };
    for (kind, speed) in [
        (ContextKind::Extended, 800_000),
        (ContextKind::Legacy, 400_000),
    ] {
        let fabric = Fabric::builder().device(device(kind)).build().unwrap();
        let port = open_all(&fabric)[0].port(1).unwrap();
        assert_eq!(port.speed(), Some(speed));
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
    }
}

#[test]
fn ece_options_are_narrowed_to_what_both_have() {
    let ece = Ece {
        vendor_id: 0x15b3,
        options: 0b1110,
        comp_mask: 0,
    };
    let device = |name| DeviceSpec::roce(name).ece(ece);
    let fabric = Fabric::builder()
        .device(device("sim0"))
        .device(DeviceSpec::roce("sim1"));
    let setup = Setup::default();
    let pair = Pair::unconnected(fabric.build().unwrap(), &setup);
    let Pair { a, b, .. } = &pair;
    assert_eq!(a.qp.ece().unwrap(), Some(ece));
    a.qp.set_ece(&Ece {
        options: 0b0111,
        ..ece
    })
    .unwrap();
    assert_eq!(
        a.qp.ece().unwrap(),
        Some(Ece {
            options: 0b0110,
            ..ece
        })
    );
    assert_eq!(
        a.qp.set_ece(&Ece {
            vendor_id: 1,
            ..ece
        })
        .unwrap_err()
        .errno(),
        Some(libc::EINVAL)
    );
    assert_eq!(b.qp.ece().unwrap(), None);
    assert!(b.qp.set_ece(&ece).unwrap_err().is_unsupported());
    a.connect_to(b, &setup).unwrap();
    a.qp.set_ece(&ece).unwrap_err();

    let old = Fabric::builder()
        .device(device("sim0"))
        .without(OptionalFunction::Ece);
    let context = open_all(&old.build().unwrap()).remove(0);
    let cq = context.create_cq(4).unwrap();
    let qp = context
        .allocate_pd()
        .unwrap()
        .create_qp(&options(&cq, &setup))
        .unwrap();
    assert_eq!(qp.ece().unwrap(), None);
}

#[test]
fn sysfs_shows_where_the_devices_are() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("pf0").pci("0000:3b:00.0"))
        .device(
            DeviceSpec::roce("vf0")
                .pci("0000:3b:00.2")
                .virtual_function_of("0000:3b:00.0"),
        )
        .device(DeviceSpec::roce("soft0"))
        .device(DeviceSpec::roce("else0").sysfs_path("/nonexistent/else0"))
        .sysfs()
        .build()
        .unwrap();
    let root = fabric.sysfs_root().unwrap().to_owned();
    let devices = fabric.library().devices().unwrap();
    let pci = |index: usize| devices[index].sysfs_path().join("device").canonicalize();
    assert!(pci(0).unwrap().ends_with("pci0000:00/0000:3b:00.0"));
    assert!(pci(1).unwrap().ends_with("pci0000:00/0000:3b:00.2"));
    assert!(pci(2).is_err());
    assert_eq!(devices[3].sysfs_path().to_str(), Some("/nonexistent/else0"));
    let physical = pci(1).unwrap().join("physfn").canonicalize().unwrap();
    assert_eq!(physical, pci(0).unwrap());
    assert_eq!(
        physical.join("virtfn0").canonicalize().unwrap(),
        pci(1).unwrap()
    );

    let read = |name: &str| fs::read_to_string(devices[0].sysfs_path().join(name)).unwrap();
    assert_eq!(read("ports/1/state"), "4: ACTIVE\n");
    assert_eq!(read("ports/1/link_layer"), "Ethernet\n");
    assert_eq!(
        read("ports/1/gids/3"),
        "0000:0000:0000:0000:0000:ffff:0a00:0001\n"
    );
    assert_eq!(read("ports/1/gid_attrs/types/3"), "RoCE v2\n");
    assert_eq!(
        read("ports/1/gids/9"),
        "0000:0000:0000:0000:0000:0000:0000:0000\n"
    );
    fabric.hca("pf0").unwrap().port(1).unwrap().down();
    assert_eq!(read("ports/1/state"), "1: DOWN\n");

    drop(devices);
    assert!(root.exists());
    drop(fabric);
    assert!(!root.exists());
}

#[test]
fn nonsense_is_not_built() {
    let build = |devices: Vec<DeviceSpec>| {
        let builder = devices
            .into_iter()
            .fold(Fabric::builder(), |builder, device| builder.device(device));
        builder.build()
    };
    let one = |port: PortSpec| vec![DeviceSpec::infiniband("ib0").ports([port])];
    let limited = |limits| vec![DeviceSpec::roce("a").limits(limits)];
    let port = PortSpec::infiniband;
    let nonsense = [
        vec![DeviceSpec::roce("")],
        vec![DeviceSpec::roce("a/b")],
        vec![DeviceSpec::roce("x".repeat(64))],
        vec![DeviceSpec::roce("twice"), DeviceSpec::roce("twice")],
        vec![DeviceSpec::roce("portless").ports([])],
        vec![DeviceSpec::roce("a").firmware("x".repeat(64))],
        vec![DeviceSpec::roce("a").sysfs_path("x".repeat(256))],
        one(port().mtu(Mtu::MTU_4096, Mtu::MTU_1024)),
        one(port().mtu(Mtu::from_raw(9), Mtu::from_raw(9))),
        one(port().lid(0, 0)),
        one(port().lid(0xc000, 0)),
        one(port().lid(8, 8)),
        one(port().pkeys([])),
        one(port().gid_table_len(0)),
        one(port().speed(150)),
        one(port().lid(9, 1)),
        one(port().max_message(0)),
        one(port().max_message((1 << 31) + 1)),
        one(port().gids([GidSlot::Empty; 4]).gid_table_len(3)),
        one(port().gids([GidSlot::Unreadable(0)])),
        one(port().gids([GidSlot::infiniband(0, 0)])),
        vec![DeviceSpec::roce("a").ports([PortSpec::roce().lid(1, 0)])],
        vec![DeviceSpec::roce("a").guids(0, 1)],
        vec![DeviceSpec::roce("a").firmware("a\0b")],
        vec![DeviceSpec::roce("a").sysfs_path("")],
        vec![DeviceSpec::roce("a").sysfs_path("/b").pci("0000:3b:00.0")],
        vec![DeviceSpec::roce("a").virtual_function_of("0000:3b:00.0")],
        vec![
            DeviceSpec::roce("a")
                .pci("0000:3b:00.0")
                .virtual_function_of("0000:3b:00.0"),
        ],
        limited(Limits {
            max_qp: u32::MAX,
            ..Limits::default()
        }),
        limited(Limits {
            max_qp_rd_atom: 256,
            ..Limits::default()
        }),
        limited(Limits {
            completion_vectors: 0,
            ..Limits::default()
        }),
        vec![
            DeviceSpec::infiniband("ib0").ports([port().lid(9, 0)]),
            DeviceSpec::infiniband("ib1").ports([port().lid(8, 1)]),
        ],
    ];
    for devices in nonsense {
        let text = format!("{devices:?}");
        assert!(
            matches!(build(devices), Err(BuildError::Device { .. })),
            "{text}"
        );
    }
    // The same LID in another network is another port.
    let apart = [port().lid(9, 0), port().lid(9, 0).network(1)];
    build(vec![DeviceSpec::infiniband("ib0").ports(apart)]).unwrap();
}
