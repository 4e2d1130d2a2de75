//! Moving queue pairs between states, and asking in which they are.

use std::net::Ipv4Addr;

use ibnet_simverbs::DeviceSpec;
use ibnet_verbs::{
    Access, AddressVector, Destination, Gid, GlobalRoute, InitAttributes, Mtu, Operation,
    QueuePair, QueuePairState, ReadyToReceive, ReadyToSend,
};

use crate::queue_pairs::queue_pair;
use crate::tap::{Failure, called, context, fabric, fail, is_refused, open, tap};

fn route() -> GlobalRoute {
    let mut dgid = [0; 16];
    (dgid[0], dgid[1], dgid[15]) = (0xfe, 0x80, 9);
    GlobalRoute {
        dgid: Gid(dgid),
        sgid_index: 3,
        hop_limit: 255,
        traffic_class: 106,
        flow_label: 0xf_ffff,
    }
}

fn to_rtr(destination: Destination) -> ReadyToReceive {
    ReadyToReceive {
        mtu: Mtu::MTU_1024,
        remote_qp: 0x12_3456,
        remote_psn: 0xff_ffff,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        address: AddressVector {
            port: 1,
            service_level: 5,
            destination,
        },
    }
}

fn to_rts() -> ReadyToSend {
    ReadyToSend {
        psn: 7,
        timeout: 20,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
    }
}

const INIT: InitAttributes = InitAttributes {
    port: 1,
    pkey_index: 0,
    access: Access::empty(),
};

/// From whatever state to INIT.
fn to_init(qp: &QueuePair) {
    qp.to_reset().unwrap();
    qp.to_init(&INIT).unwrap();
}

#[test]
fn the_destination_decides_the_kind_of_address() {
    let qp = queue_pair(&context());
    for (destination, dlid, global) in [
        (Destination::global(route()), 0, 1),
        (Destination::infiniband(0x23, None), 0x23, 0),
        (Destination::infiniband(0x24, Some(route())), 0x24, 1),
    ] {
        to_init(&qp);
        // Whether the device takes it or not: this is what it is given.
        let _ = qp.to_rtr(&to_rtr(destination));
        let raw = tap(|tap| tap.modified).unwrap().0.ah_attr;
        assert_eq!((raw.dlid, raw.src_path_bits, raw.static_rate), (dlid, 0, 0));
        assert_eq!((raw.port_num, raw.sl, raw.is_global), (1, 5, global));
        if global == 1 {
            // SAFETY: any bytes are a valid array.
            assert_eq!(unsafe { raw.grh.dgid.raw }, route().dgid.0);
            assert_eq!((raw.grh.sgid_index, raw.grh.hop_limit), (3, 255));
            assert_eq!((raw.grh.traffic_class, raw.grh.flow_label), (106, 0xf_ffff));
        }
    }
}

#[test]
fn values_that_do_not_fit_the_wire_are_refused() {
    let qp = queue_pair(&context());
    let good = to_rtr(Destination::global(route()));
    let wrong_route = GlobalRoute {
        flow_label: 1 << 20,
        ..route()
    };
    for (bad, field) in [
        (
            ReadyToReceive {
                remote_qp: 1 << 24,
                ..good
            },
            "remote_qp",
        ),
        (
            ReadyToReceive {
                remote_psn: 1 << 24,
                ..good
            },
            "remote_psn",
        ),
        (
            ReadyToReceive {
                min_rnr_timer: 32,
                ..good
            },
            "min_rnr_timer",
        ),
        (
            ReadyToReceive {
                address: AddressVector {
                    service_level: 16,
                    ..good.address
                },
                ..good
            },
            "service_level",
        ),
        (to_rtr(Destination::global(wrong_route)), "flow_label"),
    ] {
        let error = qp.to_rtr(&bad).unwrap_err();
        assert!(is_refused(&error));
        assert!(error.to_string().contains(field), "{error}");
    }
    for (bad, field) in [
        (
            ReadyToSend {
                psn: 1 << 24,
                ..to_rts()
            },
            "psn",
        ),
        (
            ReadyToSend {
                timeout: 32,
                ..to_rts()
            },
            "timeout",
        ),
        (
            ReadyToSend {
                retry_count: 8,
                ..to_rts()
            },
            "retry_count",
        ),
        (
            ReadyToSend {
                rnr_retry: 8,
                ..to_rts()
            },
            "rnr_retry",
        ),
    ] {
        let error = qp.to_rts(&bad).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(called("modify_qp"), 0);
}

#[test]
fn a_failed_step_names_queue_pair_state_address_and_cause() {
    let qp = queue_pair(&context());
    let number = format!("{:#x}", qp.number());
    let step = to_rtr(Destination::global(route()));
    for (errno, cause) in [
        (libc::EINVAL, "GID index"),
        (libc::ENODATA, "index is empty"),
        (libc::ETIMEDOUT, "not resolved"),
        (libc::EHOSTUNREACH, "no route"),
        (libc::ENODEV, "network interface"),
        (libc::ENOMEM, "out of memory"),
    ] {
        fail("modify_qp", Failure::Errno(errno));
        let error = qp.to_rtr(&step).unwrap_err();
        assert_eq!(error.errno(), Some(errno));
        let text = error.to_string();
        for part in [
            "sim0",
            &number,
            "IBV_QPS_RTR",
            "GID index 3",
            "fe80::9",
            "MTU 1024",
            cause,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let Operation::ModifyQp { to, .. } = error.operation else {
            panic!("{text}")
        };
        assert_eq!(to, QueuePairState::RTR);
    }
    fail("modify_qp", Failure::Errno(libc::EINVAL));
    assert!(
        qp.to_init(&INIT)
            .unwrap_err()
            .to_string()
            .contains("not in RESET")
    );
    assert!(
        qp.to_rts(&to_rts())
            .unwrap_err()
            .to_string()
            .contains("not in RTR")
    );
    assert!(
        qp.to_error()
            .unwrap_err()
            .to_string()
            .contains("present state")
    );
}

#[test]
fn a_query_gives_back_what_was_set() {
    let without_table = GlobalRoute {
        sgid_index: 0,
        ..route()
    };
    // The device's own address.
    let own = GlobalRoute {
        dgid: Gid::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()),
        ..route()
    };
    for (device, destination) in [
        (DeviceSpec::roce("sim0"), Destination::global(own)),
        (
            DeviceSpec::infiniband("sim0"),
            Destination::infiniband(9, None),
        ),
        (
            DeviceSpec::infiniband("sim0"),
            Destination::infiniband(9, Some(without_table)),
        ),
    ] {
        let qp = queue_pair(&open(&fabric(device)));
        to_init(&qp);
        let step = to_rtr(destination);
        qp.to_rtr(&step).unwrap();
        assert_eq!(qp.state().unwrap(), QueuePairState::RTR);
        let attributes = qp.query().unwrap();
        assert_eq!(attributes.address, step.address);
        assert_eq!(
            (attributes.mtu, attributes.remote_qp),
            (step.mtu, step.remote_qp)
        );
        assert_eq!(attributes.receive_psn, step.remote_psn);
    }
    let qp = queue_pair(&context());
    tap(|tap| tap.qp_state = Some(42));
    assert_eq!(qp.state().unwrap(), QueuePairState::from_raw(42));
    fail("query_qp", Failure::Errno(libc::EIO));
    let error = qp.query().unwrap_err();
    assert_eq!(error.operation, Operation::QueryQp { qp: qp.number() });
}
