//! The states of a queue pair, beyond what `conformance` observes on all devices.

use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot, PortSpec, When};
use ibnet_verbs::sys::{ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_qp_state};
use ibnet_verbs::{
    Access, Destination, EventType, InitAttributes, QueuePair, SendRequest, WcStatus,
};

use crate::pairs::{End, Pair, Setup, open_all, two_roce};

/// Modifies a queue pair by the bare function: attributes and a mask, nothing checked before.
fn modify(qp: &QueuePair, attributes: &mut ibv_qp_attr, mask: u32) -> i32 {
    let modify_qp = qp.pd().context().library().functions().modify_qp;
    // SAFETY: the queue pair exists, and the argument is valid.
    unsafe { modify_qp(qp.as_raw(), attributes, mask.cast_signed()) }
}

fn to(state: u32) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: state,
        ..Default::default()
    }
}

#[test]
fn attributes_change_without_a_change_of_state() {
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().stepped(1).build().unwrap(), &setup);
    let Pair { a, b, .. } = &pair;
    a.init(&setup).unwrap();
    let mut access = ibv_qp_attr {
        qp_access_flags: 2,
        ..Default::default()
    };
    assert_eq!(modify(&a.qp, &mut access, bits::IBV_QP_ACCESS_FLAGS.0), 0);
    assert_eq!(a.qp.query().unwrap().access, Access::REMOTE_WRITE);
    assert_eq!(
        modify(&a.qp, &mut to(99), bits::IBV_QP_STATE.0),
        libc::EINVAL
    );

    a.qp.to_rtr(&a.to_rtr(b, &setup)).unwrap();
    // Programs may look at the structure itself.
    // SAFETY: the queue pair exists.
    assert_eq!(unsafe { (*a.qp.as_raw()).state }, ibv_qp_state::IBV_QPS_RTR);
    a.qp.to_rts(&End::ready_to_send(&setup)).unwrap();
    let mut timer = ibv_qp_attr {
        min_rnr_timer: 9,
        cur_qp_state: ibv_qp_state::IBV_QPS_RTS,
        ..Default::default()
    };
    let with_current = bits::IBV_QP_MIN_RNR_TIMER.0 | bits::IBV_QP_CUR_STATE.0;
    assert_eq!(modify(&a.qp, &mut timer, with_current), 0);
    assert_eq!(a.qp.query().unwrap().min_rnr_timer, 9);
}

#[test]
fn an_address_must_be_of_the_port_and_known() {
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().stepped(1).build().unwrap(), &setup);
    let Pair { a, b, .. } = &pair;
    let bind = InitAttributes {
        port: 1,
        pkey_index: 0,
        access: Access::MW_BIND,
    };
    assert_eq!(a.qp.to_init(&bind).unwrap_err().errno(), Some(libc::EINVAL));
    a.init(&setup).unwrap();

    let rtr = a.to_rtr(b, &setup);
    let mut other_port = rtr;
    other_port.address.port = 2;
    let mut by_lid = rtr;
    by_lid.address.destination = Destination::infiniband(1, None);
    let mut stranger = rtr;
    stranger.address.destination = Destination::global(ibnet_verbs::GlobalRoute {
        dgid: GidSlot::roce_v2([10, 9, 9, 9].into()).gid().unwrap(),
        ..rtr.address.destination.route.unwrap()
    });
    for (wrong, errno) in [
        (other_port, libc::EINVAL),
        (by_lid, libc::EINVAL),
        (stranger, libc::ETIMEDOUT),
    ] {
        assert_eq!(a.qp.to_rtr(&wrong).unwrap_err().errno(), Some(errno));
    }
    a.qp.to_rtr(&rtr).unwrap();
}

#[test]
fn a_port_that_demands_a_global_route_gets_one() {
    let port = PortSpec::infiniband().grh_required();
    let device = |name| DeviceSpec::infiniband(name).ports([port.clone()]);
    let fabric = Fabric::builder()
        .device(device("ib0"))
        .device(device("ib1"));
    let setup = Setup::default();
    let pair = Pair::unconnected(fabric.build().unwrap(), &setup);
    let Pair { a, b, .. } = &pair;
    assert!(a.context.port(1).unwrap().grh_required);
    a.init(&setup).unwrap();
    let mut rtr = a.to_rtr(b, &setup);
    assert_eq!(a.qp.to_rtr(&rtr).unwrap_err().errno(), Some(libc::EINVAL));
    let route = ibnet_verbs::GlobalRoute {
        dgid: b.context.gid(1, 0).unwrap(),
        sgid_index: 0,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
    };
    // A route does not replace the LID.
    rtr.address.destination = Destination::infiniband(0, Some(route));
    assert_eq!(a.qp.to_rtr(&rtr).unwrap_err().errno(), Some(libc::EINVAL));
    let lid = b.context.port(1).unwrap().lid;
    rtr.address.destination = Destination::infiniband(lid, Some(route));
    a.qp.to_rtr(&rtr).unwrap();
}

#[test]
fn a_draining_queue_finishes_what_it_began_and_begins_nothing() {
    let setup = Setup::default();
    let pair = Pair::stepped(5, &setup);
    let Pair { a, b, fabric } = &pair;
    let write = |wr_id| SendRequest::write(wr_id, a.sge(0, 8), b.remote(0)).signaled();
    a.send(&mut [write(1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes().len(), 1);

    // Without being asked for there is no event.
    assert_eq!(
        modify(
            &a.qp,
            &mut to(ibv_qp_state::IBV_QPS_SQD),
            bits::IBV_QP_STATE.0
        ),
        0
    );
    assert!(a.context.next_event().unwrap().is_none());
    assert_eq!(
        modify(
            &a.qp,
            &mut to(ibv_qp_state::IBV_QPS_RTS),
            bits::IBV_QP_STATE.0
        ),
        0
    );

    let mut sqd = ibv_qp_attr {
        en_sqd_async_notify: 1,
        ..to(ibv_qp_state::IBV_QPS_SQD)
    };
    let notify = bits::IBV_QP_STATE.0 | bits::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;
    assert_eq!(modify(&a.qp, &mut sqd, notify), 0);
    let event = a.context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::SQ_DRAINED);
    assert!(event.is_qp(&a.qp));
    drop(event);
    a.send(&mut [write(2)]).unwrap();
    fabric.run_until_idle();
    assert!(a.outcomes().is_empty());
    assert_eq!(
        modify(
            &a.qp,
            &mut to(ibv_qp_state::IBV_QPS_RTS),
            bits::IBV_QP_STATE.0
        ),
        0
    );
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(2, WcStatus::SUCCESS)]);
}

#[test]
fn a_reset_queue_pair_connects_anew() {
    for keeps in [false, true] {
        let device = |name| match keeps {
            true => DeviceSpec::roce(name).keeps_stale_completions(),
            false => DeviceSpec::roce(name),
        };
        let fabric = Fabric::builder()
            .device(device("sim0"))
            .device(device("sim1"));
        let setup = Setup::default();
        let pair = Pair::of(fabric.stepped(2).build().unwrap(), &setup);
        let Pair { a, b, fabric } = &pair;
        let write = |wr_id| SendRequest::write(wr_id, a.sge(0, 8), b.remote(0)).signaled();
        a.send(&mut [write(1)]).unwrap();
        b.receive_immediates([7]);
        fabric.run_until_idle();
        for end in [a, b] {
            end.qp.to_reset().unwrap();
        }
        // What was queued is forgotten, and what had completed too, or not.
        let again = Setup { psn: 77, ..setup };
        a.connect_to(b, &again).unwrap();
        b.connect_to(a, &again).unwrap();
        a.send(&mut [write(2)]).unwrap();
        fabric.run_until_idle();
        let ids: Vec<_> = a.outcomes().iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(ids, if keeps { vec![1, 2] } else { vec![2] });
        assert!(b.outcomes().is_empty());
        pair.finish();
    }
}

/// A message of which a part was placed is finished, and only then is the queue drained.
#[test]
fn a_message_that_was_begun_is_finished_while_draining() {
    let pair = Pair::stepped(5, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let tear = fabric.faults().tear_messages(&a.qp, When::ALWAYS);
    a.memory.write(0, &[1; 512]);
    let write = |wr_id| SendRequest::write(wr_id, a.sge(0, 512), b.remote(0)).signaled();
    a.send(&mut [write(1), write(2)]).unwrap();
    fabric.step();
    assert_eq!(tear.struck(), 1);
    let mut sqd = ibv_qp_attr {
        en_sqd_async_notify: 1,
        ..to(ibv_qp_state::IBV_QPS_SQD)
    };
    let notify = bits::IBV_QP_STATE.0 | bits::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;
    assert_eq!(modify(&a.qp, &mut sqd, notify), 0);
    assert!(a.context.next_event().unwrap().is_none());
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!(b.memory.read(0..512), [1; 512]);
    let event = a.context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::SQ_DRAINED);
}

/// While it is drained, a queue pair can be given another way to its peer.
#[test]
fn the_address_can_be_changed_while_draining() {
    let pair = Pair::stepped(5, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let write = SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled();
    a.send(&mut [write]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!(
        modify(
            &a.qp,
            &mut to(ibv_qp_state::IBV_QPS_SQD),
            bits::IBV_QP_STATE.0
        ),
        0
    );
    let query = fabric.library().functions().query_qp;
    let (mut now, mut init) = (ibv_qp_attr::default(), Default::default());
    // SAFETY: the queue pair exists, and the arguments are valid.
    assert_eq!(unsafe { query(a.qp.as_raw(), &mut now, 0, &mut init) }, 0);
    // Its own address: there is no queue pair of the peer's number.
    now.ah_attr.grh.dgid.raw = a
        .to_rtr(a, &Setup::default())
        .address
        .destination
        .route
        .unwrap()
        .dgid
        .0;
    assert_eq!(modify(&a.qp, &mut now, bits::IBV_QP_AV.0), 0);
    assert_eq!(
        modify(
            &a.qp,
            &mut to(ibv_qp_state::IBV_QPS_RTS),
            bits::IBV_QP_STATE.0
        ),
        0
    );
    a.send(&mut [write]).unwrap();
    fabric.advance(std::time::Duration::from_secs(1));
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
}

/// A completion of before the reset must not free a place of after it.
#[test]
fn stale_completions_free_nothing() {
    let device = |name| DeviceSpec::roce(name).keeps_stale_completions();
    let fabric = Fabric::builder()
        .device(device("sim0"))
        .device(device("sim1"));
    let setup = Setup {
        send_wr: 2,
        ..Setup::default()
    };
    let pair = Pair::of(fabric.stepped(2).build().unwrap(), &setup);
    let Pair { a, b, fabric } = &pair;
    let write = SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled();
    a.send(&mut [write, write]).unwrap();
    fabric.run_until_idle();
    for (own, peer) in [(a, b), (b, a)] {
        own.qp.to_reset().unwrap();
        own.connect_to(peer, &setup).unwrap();
    }
    a.send(&mut [write, write]).unwrap();
    assert_eq!(a.outcomes().len(), 2, "of before");
    assert_eq!(
        a.send(&mut [write]).unwrap_err().errno(),
        Some(libc::ENOMEM)
    );
    fabric.run_until_idle();
    assert_eq!(a.outcomes().len(), 2);
    a.send(&mut [write]).unwrap();
}

#[test]
fn only_reliable_connections_are_made() {
    let fabric = two_roce().build().unwrap();
    let context = open_all(&fabric).remove(0);
    let (pd, cq) = (
        context.allocate_pd().unwrap(),
        context.create_cq(4).unwrap(),
    );
    let mut attributes = ibnet_verbs::sys::ibv_qp_init_attr {
        send_cq: cq.as_raw(),
        recv_cq: cq.as_raw(),
        qp_type: ibnet_verbs::sys::ibv_qp_type::IBV_QPT_UD,
        ..Default::default()
    };
    // SAFETY: the domain and the queue exist.
    let qp = unsafe { (fabric.library().functions().create_qp)(pd.as_raw(), &mut attributes) };
    assert!(qp.is_null());
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EOPNOTSUPP)
    );
}
