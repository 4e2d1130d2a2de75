//! Moving queue pairs between states, and asking in which they are.

use ibnet_verbs::sys::{ibv_qp_attr, ibv_qp_attr_mask as mask, ibv_qp_state};
use ibnet_verbs::{
    Access, AddressVector, Destination, Gid, GlobalRoute, InitAttributes, Mtu, Operation,
    QueuePairState, ReadyToReceive, ReadyToSend,
};

use crate::fake::{Failure, called, context, fail, fake, is_refused};
use crate::queue_pairs::queue_pair;

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

fn modified() -> (ibv_qp_attr, i32) {
    fake(|fake| fake.modified.pop()).unwrap()
}

fn bits(masks: &[mask]) -> i32 {
    masks.iter().fold(0, |all, one| all | one.0).cast_signed()
}

#[test]
fn each_step_sets_its_attributes_and_its_mask() {
    let qp = queue_pair(&context());

    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    qp.to_init(&InitAttributes {
        port: 2,
        pkey_index: 4,
        access,
    })
    .unwrap();
    let (attributes, given) = modified();
    assert_eq!(attributes.qp_state, ibv_qp_state::IBV_QPS_INIT);
    assert_eq!((attributes.port_num, attributes.pkey_index), (2, 4));
    assert_eq!(attributes.qp_access_flags, 0b110);
    let expected = [
        mask::IBV_QP_STATE,
        mask::IBV_QP_PORT,
        mask::IBV_QP_PKEY_INDEX,
        mask::IBV_QP_ACCESS_FLAGS,
    ];
    assert_eq!(given, bits(&expected));

    qp.to_rtr(&to_rtr(Destination::global(route()))).unwrap();
    let (attributes, given) = modified();
    assert_eq!(attributes.qp_state, ibv_qp_state::IBV_QPS_RTR);
    assert_eq!(
        (attributes.path_mtu, attributes.dest_qp_num),
        (3, 0x12_3456)
    );
    assert_eq!(
        (attributes.rq_psn, attributes.max_dest_rd_atomic),
        (0xff_ffff, 1)
    );
    assert_eq!(attributes.min_rnr_timer, 12);
    let expected = [
        mask::IBV_QP_STATE,
        mask::IBV_QP_AV,
        mask::IBV_QP_PATH_MTU,
        mask::IBV_QP_DEST_QPN,
        mask::IBV_QP_RQ_PSN,
        mask::IBV_QP_MAX_DEST_RD_ATOMIC,
        mask::IBV_QP_MIN_RNR_TIMER,
    ];
    assert_eq!(given, bits(&expected));

    qp.to_rts(&to_rts()).unwrap();
    let (attributes, given) = modified();
    assert_eq!(attributes.qp_state, ibv_qp_state::IBV_QPS_RTS);
    assert_eq!((attributes.sq_psn, attributes.timeout), (7, 20));
    assert_eq!(
        (
            attributes.retry_cnt,
            attributes.rnr_retry,
            attributes.max_rd_atomic
        ),
        (7, 7, 1)
    );
    let expected = [
        mask::IBV_QP_STATE,
        mask::IBV_QP_SQ_PSN,
        mask::IBV_QP_TIMEOUT,
        mask::IBV_QP_RETRY_CNT,
        mask::IBV_QP_RNR_RETRY,
        mask::IBV_QP_MAX_QP_RD_ATOMIC,
    ];
    assert_eq!(given, bits(&expected));

    qp.to_error().unwrap();
    let (attributes, given) = modified();
    assert_eq!((attributes.qp_state, given), (ibv_qp_state::IBV_QPS_ERR, 1));
    qp.to_reset().unwrap();
    let (attributes, given) = modified();
    assert_eq!(
        (attributes.qp_state, given),
        (ibv_qp_state::IBV_QPS_RESET, 1)
    );
}

#[test]
fn the_destination_decides_the_kind_of_address() {
    let qp = queue_pair(&context());
    for (destination, dlid, global) in [
        (Destination::global(route()), 0, 1),
        (Destination::infiniband(0x23, None), 0x23, 0),
        (Destination::infiniband(0x24, Some(route())), 0x24, 1),
    ] {
        qp.to_rtr(&to_rtr(destination)).unwrap();
        let raw = modified().0.ah_attr;
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
            "fake_0",
            "0xabc",
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
    let init = InitAttributes {
        port: 1,
        pkey_index: 0,
        access: Access::empty(),
    };
    assert!(
        qp.to_init(&init)
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
    let qp = queue_pair(&context());
    for destination in [
        Destination::global(route()),
        Destination::infiniband(9, None),
        Destination::infiniband(9, Some(route())),
    ] {
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
    fake(|fake| fake.modified[2].0.qp_state = 42);
    assert_eq!(qp.state().unwrap(), QueuePairState::from_raw(42));
    fail("query_qp", Failure::Errno(libc::EIO));
    let error = qp.query().unwrap_err();
    assert_eq!(error.operation, Operation::QueryQp { qp: 0xabc });
}
