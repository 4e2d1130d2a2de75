//! Querying ports: the extended and the exported way, speeds, and values that are not known yet.

use ibnet_simverbs::{ContextKind, DeviceSpec, LaneSpeed, PortSpec, Width};
use ibnet_verbs::sys::ibv_port_attr;
use ibnet_verbs::{Context, LinkLayer, Mtu, Operation, PortState};

use crate::tap::{
    ExtendedContext, Failure, called, context, fabric, fail, oldest_context, open, set_errno,
    take_calls, tap,
};

const XDR: u32 = 256;

/// A port of four lanes of XDR, which older drivers cannot report: `active_speed` has 8 bits.
fn xdr_port() -> DeviceSpec {
    change(|port| port.port_cap_flags2 = 0x1000);
    DeviceSpec::roce("sim0").ports([PortSpec::roce().lanes(Width::X4, LaneSpeed::Xdr)])
}

/// Changes what ports answer from now on.
fn change(change: impl Fn(&mut ibv_port_attr) + 'static) {
    tap(|tap| tap.port = Some(Box::new(change)));
}

/// A device whose driver tells this speed of its port, in units of 100 Mb/s.
fn with_speed(hundreds: u64) -> Context {
    tap(|tap| tap.speed = Some(hundreds));
    context()
}

#[test]
fn the_extended_way_fills_every_field() {
    let port = open(&fabric(xdr_port())).port(1).unwrap();
    assert_eq!(
        (called("extended_query_port"), called("query_port")),
        (1, 0)
    );
    assert_eq!(port.active_speed, XDR);
    assert_eq!(port.port_cap_flags2, 0x1000);
    assert_eq!(port.speed(), Some(800_000));
}

#[test]
fn the_exported_way_leaves_the_newer_fields_empty() {
    for (kind, extended) in [
        (ContextKind::Legacy, ExtendedContext::Whole),
        (ContextKind::Extended, ExtendedContext::TooShort),
        (ContextKind::Extended, ExtendedContext::WithoutQueryPort),
    ] {
        take_calls();
        tap(|tap| tap.context = extended);
        let port = open(&fabric(xdr_port().context(kind))).port(1).unwrap();
        assert_eq!(
            (called("extended_query_port"), called("query_port")),
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
    for (kind, function) in [
        (ContextKind::Extended, "extended_query_port"),
        (ContextKind::Legacy, "query_port"),
    ] {
        set_errno(libc::EBUSY);
        fail(function, Failure::Errno(libc::EINVAL));
        let error = open(&fabric(DeviceSpec::roce("sim0").context(kind)))
            .port(3)
            .unwrap_err();
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
        change(move |port| (port.active_width, port.active_speed) = (width, speed));
        assert_eq!(
            context.port(1).unwrap().speed(),
            expected,
            "width {width}, speed {speed}"
        );
    }
    change(|port| (port.active_width, port.active_speed_ex) = (1, XDR));
    assert_eq!(context.port(1).unwrap().speed(), Some(200_000));
    change(|port| port.active_speed_ex = 512);
    assert_eq!(context.port(1).unwrap().speed(), None);
}

#[test]
fn the_driver_knows_its_speed_better() {
    assert_eq!(with_speed(2_500).port_speed(1).unwrap(), Some(250_000));
    assert_eq!(with_speed(0).port_speed(1).unwrap(), None);
    assert_eq!(with_speed(u64::MAX).port_speed(1).unwrap(), None);
}

#[test]
fn a_driver_that_cannot_tell_its_speed_is_no_error() {
    assert_eq!(oldest_context().port_speed(1).unwrap(), None);
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
    change(|port| {
        port.state = 9;
        port.link_layer = 7;
        port.active_mtu = 6;
        port.gid_tbl_len = -1;
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
    let spec = DeviceSpec::roce("sim0").ports([PortSpec::roce().grh_required()]);
    let port = open(&fabric(spec)).port(1).unwrap();
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
    assert_eq!(port.max_mtu, Mtu::MTU_4096);
    assert_eq!(port.active_mtu.min(port.max_mtu).bytes(), Some(1024));
    for bytes in [256, 512, 1024, 2048, 4096] {
        assert_eq!(Mtu::from_bytes(bytes).unwrap().bytes(), Some(bytes));
    }
    assert_eq!(Mtu::from_bytes(1500), None);
    assert_eq!(Mtu::from_raw(0).bytes(), None);
}
