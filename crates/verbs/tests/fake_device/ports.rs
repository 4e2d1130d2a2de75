//! Querying ports: the extended and the exported way, speeds, and values nobody knows yet.

use ibnet_verbs::{LinkLayer, Mtu, Operation, PortState};

use crate::fake::{
    Extended, Failure, called, context, context_of, fail, fake, oldest_functions, set_errno,
};

const XDR: u32 = 256;

/// A port of four lanes of XDR, which older drivers cannot report: `active_speed` has 8 bits.
fn xdr_port() {
    fake(|fake| {
        fake.port.active_width = 2;
        fake.port.active_speed = 128;
        fake.port.active_speed_ex = XDR;
        fake.port.port_cap_flags2 = 0x1000;
    });
}

#[test]
fn the_extended_way_fills_every_field() {
    xdr_port();
    let port = context().port(1).unwrap();
    assert_eq!(
        (called("extended query_port"), called("query_port")),
        (1, 0)
    );
    assert_eq!(port.active_speed, XDR);
    assert_eq!(port.port_cap_flags2, 0x1000);
    assert_eq!(port.speed(), Some(800_000));
}

#[test]
fn the_exported_way_leaves_the_newer_fields_empty() {
    xdr_port();
    for extended in [Extended::No, Extended::TooShort, Extended::WithoutQueryPort] {
        fake(|fake| {
            fake.extended = extended;
            fake.calls.clear();
        });
        let port = context().port(1).unwrap();
        assert_eq!(
            (called("extended query_port"), called("query_port")),
            (0, 1)
        );
        assert_eq!(port.state, PortState::ACTIVE);
        assert_eq!(port.active_speed, 128);
        assert_eq!(port.port_cap_flags2, 0);
        assert_eq!(port.speed(), Some(400_000));
    }
}

#[test]
fn both_ways_report_errors() {
    for (extended, function) in [
        (Extended::Yes, "extended query_port"),
        (Extended::No, "query_port"),
    ] {
        fake(|fake| fake.extended = extended);
        set_errno(libc::EBUSY);
        fail(function, Failure::Errno(libc::EINVAL));
        let error = context().port(3).unwrap_err();
        assert!(matches!(
            error.operation,
            Operation::QueryPort { port: 3, .. }
        ));
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().contains("no such port"), "{error}");
    }
}

#[test]
fn speeds_are_lanes_times_rate() {
    let context = context();
    for (width, speed, expected) in [
        (1, 1, Some(2_500)),
        (2, 2, Some(20_000)),
        (2, 4, Some(40_000)),
        (2, 8, Some(40_000)),
        (2, 16, Some(56_000)),
        (2, 32, Some(100_000)),
        (2, 64, Some(200_000)),
        (2, 128, Some(400_000)),
        (16, 64, Some(100_000)),
        (4, 32, Some(200_000)),
        (8, 4, Some(120_000)),
        (0, 64, None),
        (3, 64, None),
        (2, 0, None),
        (2, 3, None),
    ] {
        fake(|fake| (fake.port.active_width, fake.port.active_speed) = (width, speed));
        assert_eq!(
            context.port(1).unwrap().speed(),
            expected,
            "width {width}, speed {speed}"
        );
    }
    fake(|fake| (fake.port.active_width, fake.port.active_speed_ex) = (1, XDR));
    assert_eq!(context.port(1).unwrap().speed(), Some(200_000));
    fake(|fake| fake.port.active_speed_ex = 512);
    assert_eq!(context.port(1).unwrap().speed(), None);
}

#[test]
fn the_driver_knows_its_speed_better() {
    fake(|fake| fake.speed = 2_500);
    assert_eq!(context().port_speed(1).unwrap(), Some(250_000));
    fake(|fake| fake.speed = 0);
    assert_eq!(context().port_speed(1).unwrap(), None);
    fake(|fake| fake.speed = u64::MAX);
    assert_eq!(context().port_speed(1).unwrap(), None);
}

#[test]
fn a_driver_that_cannot_tell_its_speed_is_no_error() {
    assert_eq!(context_of(oldest_functions()).port_speed(1).unwrap(), None);
    let context = context();
    for errno in [libc::EOPNOTSUPP, libc::EPROTONOSUPPORT, libc::ENOSYS] {
        fail("query_port_speed", Failure::Errno(errno));
        assert_eq!(context.port_speed(1).unwrap(), None);
        fail("query_port_speed", Failure::Negated(errno));
        assert_eq!(context.port_speed(1).unwrap(), None);
    }
    fail("query_port_speed", Failure::Errno(libc::EIO));
    assert!(matches!(
        context.port_speed(1).unwrap_err().operation,
        Operation::QueryPortSpeed { .. }
    ));
}

#[test]
fn values_that_a_newer_driver_invents_are_kept() {
    fake(|fake| {
        fake.port.state = 9;
        fake.port.link_layer = 7;
        fake.port.active_mtu = 6;
        fake.port.gid_tbl_len = -1;
    });
    let port = context().port(1).unwrap();
    assert_eq!(port.state, PortState::from_raw(9));
    assert_eq!(port.state.to_string(), "PortState(9)");
    assert_eq!(port.link_layer, LinkLayer::Unknown(7));
    assert_eq!(port.link_layer.raw(), 7);
    assert_eq!((port.active_mtu.raw(), port.active_mtu.bytes()), (6, None));
    assert_eq!(port.gid_table_len, 0);
}

#[test]
fn known_values_have_the_names_of_the_headers() {
    fake(|fake| {
        fake.port.link_layer = 2;
        fake.port.flags = 1;
    });
    let port = context().port(1).unwrap();
    assert_eq!(
        format!("{} {:?}", port.state, port.state),
        "IBV_PORT_ACTIVE IBV_PORT_ACTIVE"
    );
    assert_eq!(port.link_layer, LinkLayer::Ethernet);
    assert_eq!(port.link_layer.to_string(), "IBV_LINK_LAYER_ETHERNET");
    assert!(port.grh_required);
}

#[test]
fn mtus_are_ordered_and_know_their_size() {
    let port = context().port(1).unwrap();
    assert_eq!(port.active_mtu, Mtu::MTU_1024);
    assert_eq!(port.active_mtu.min(port.max_mtu).bytes(), Some(1024));
    for bytes in [256, 512, 1024, 2048, 4096] {
        assert_eq!(Mtu::from_bytes(bytes).unwrap().bytes(), Some(bytes));
    }
    assert_eq!(Mtu::from_bytes(1500), None);
    assert_eq!(Mtu::from_raw(0).bytes(), None);
}
