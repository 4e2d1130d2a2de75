//! Ports, links and addresses while connections use them.

use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot, LossReason, PortSpec};
use ibnet_verbs::{EventType, PortState, SendRequest, WcStatus};

use crate::pairs::{End, Pair, Setup, in_both_modes, open_all, two_roce};

fn write(a: &End, b: &End, wr_id: u64) -> SendRequest {
    SendRequest::write(wr_id, a.sge(0, 8), b.remote(0)).signaled()
}

/// Long enough for the default setup to run out of retries.
const LONG: Duration = Duration::from_millis(10);

#[test]
fn a_port_that_is_down_loses_everything_until_it_is_up() {
    for device in ["sim0", "sim1"] {
        let pair = Pair::stepped(2, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let port = fabric.hca(device).unwrap().port(1).unwrap();
        port.down();
        a.send(&mut [write(a, b, 1)]).unwrap();
        fabric.run_until_idle();
        assert!(a.outcomes().is_empty());
        port.up();
        fabric.advance(LONG);
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        port.down();
        a.send(&mut [write(a, b, 2)]).unwrap();
        fabric.advance(LONG);
        assert_eq!(a.outcomes(), [(2, WcStatus::RETRY_EXC_ERR)]);
        assert_eq!(fabric.counters().lost(LossReason::PortDown), 5);
    }
}

/// The case that breaks transports which remember their GID index.
#[test]
fn a_gid_that_moved_while_the_port_was_down_needs_a_new_index() {
    let setup = Setup::default();
    let pair = Pair::stepped(2, &setup);
    let Pair { a, b, fabric } = &pair;
    let old = a.to_rtr(b, &setup);
    let port = fabric.hca("sim0").unwrap().port(1).unwrap();
    let gids = port.gids();
    port.down();
    // Index 3 moves to index 5.
    port.set_gids([
        gids[0],
        gids[1],
        GidSlot::Empty,
        GidSlot::Empty,
        gids[2],
        gids[3],
    ]);
    port.up();
    let kinds: Vec<_> = std::iter::from_fn(|| a.context.next_event().unwrap())
        .map(|event| event.kind())
        .collect();
    let expected = [
        EventType::PORT_ERR,
        EventType::GID_CHANGE,
        EventType::PORT_ACTIVE,
    ];
    assert_eq!(kinds, expected);

    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert!(fabric.counters().lost(LossReason::SourceAddressGone) > 0);

    // The old index is empty now; the new one works, and the peer notices nothing.
    a.qp.to_reset().unwrap();
    a.init(&setup).unwrap();
    assert_eq!(a.qp.to_rtr(&old).unwrap_err().errno(), Some(libc::EINVAL));
    b.qp.to_reset().unwrap();
    a.qp.to_rtr(&a.to_rtr(b, &setup)).unwrap();
    a.qp.to_rts(&End::ready_to_send(&setup)).unwrap();
    assert_ne!(a.to_rtr(b, &setup).address, old.address);
    b.connect_to(a, &setup).unwrap();
    a.send(&mut [write(a, b, 2)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(2, WcStatus::SUCCESS)]);
}

#[test]
fn a_peer_whose_address_is_gone_is_not_reached() {
    let pair = Pair::stepped(2, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let port = fabric.hca("sim1").unwrap().port(1).unwrap();
    port.set_gids([GidSlot::roce_v2([10, 0, 0, 77].into())]);
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert_eq!(fabric.counters().lost(LossReason::NoSuchAddress), 4);
    // And cannot be connected to.
    a.qp.to_reset().unwrap();
    let setup = Setup::default();
    a.init(&setup).unwrap();
    let mut rtr = a.to_rtr(b, &setup);
    rtr.address = a.to_rtr(a, &setup).address;
    a.qp.to_rtr(&rtr).unwrap();
}

#[test]
fn an_infiniband_port_with_another_lid_is_not_reached() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0"))
        .device(DeviceSpec::infiniband("ib1"))
        .stepped(1);
    let pair = Pair::of(fabric.build().unwrap(), &Setup::default());
    let Pair { a, b, fabric } = &pair;
    fabric.hca("ib1").unwrap().port(1).unwrap().set_lid(99);
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert!(fabric.counters().lost(LossReason::NoSuchAddress) > 0);
}

#[test]
fn networks_do_not_reach_each_other() {
    let setup = Setup::default();
    let on = |network| PortSpec::roce().network(network);
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("rail0").ports([on(0)]))
        .device(DeviceSpec::roce("rail1").ports([on(1)]));
    let pair = Pair::unconnected(fabric.build().unwrap(), &setup);
    let error = pair.a.connect_to(&pair.b, &setup).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ETIMEDOUT));

    // Two InfiniBand subnets may have the same LIDs.
    let on = |network| PortSpec::infiniband().lid(7, 0).network(network);
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("rail0").ports([on(0)]))
        .device(DeviceSpec::infiniband("rail1").ports([on(1)]))
        .stepped(1);
    let pair = Pair::of(fabric.build().unwrap(), &setup);
    let Pair { a, b, fabric } = &pair;
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
}

#[test]
fn partitions_do_not_talk_to_each_other() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0").ports([PortSpec::roce().pkeys([0x8001])]))
        .device(DeviceSpec::roce("sim1").ports([PortSpec::roce().pkeys([0x8002])]))
        .stepped(1);
    let pair = Pair::of(fabric.build().unwrap(), &Setup::default());
    let Pair { a, b, fabric } = &pair;
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert_eq!(fabric.counters().lost(LossReason::PartitionMismatch), 4);
}

#[test]
fn the_second_port_of_a_device_is_a_port_of_its_own() {
    let device = |name| DeviceSpec::roce(name).ports([PortSpec::roce(), PortSpec::roce()]);
    let fabric = Fabric::builder()
        .device(device("sim0"))
        .device(device("sim1"));
    let setup = Setup::default();
    let mut pair = Pair::unconnected(fabric.stepped(1).build().unwrap(), &setup);
    pair.b.port = 2;
    let Pair { a, b, fabric } = &pair;
    a.connect_to(b, &setup).unwrap();
    b.connect_to(a, &setup).unwrap();
    fabric.hca("sim1").unwrap().port(1).unwrap().down();
    assert_eq!(b.context.port(1).unwrap().state, PortState::DOWN);
    assert_eq!(b.context.port(2).unwrap().state, PortState::ACTIVE);
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
}

#[test]
fn a_queue_pair_is_reached_only_through_its_own_port() {
    let device = |name| DeviceSpec::roce(name).ports([PortSpec::roce(), PortSpec::roce()]);
    let fabric = Fabric::builder()
        .device(device("sim0"))
        .device(device("sim1"));
    let setup = Setup::default();
    let mut pair = Pair::unconnected(fabric.stepped(1).build().unwrap(), &setup);
    // `a` believes that `b` is behind the second port.
    pair.b.port = 2;
    pair.a.connect_to(&pair.b, &setup).unwrap();
    pair.b.port = 1;
    pair.b.connect_to(&pair.a, &setup).unwrap();
    let Pair { a, b, fabric } = &pair;
    a.send(&mut [write(a, b, 1)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(1, WcStatus::RETRY_EXC_ERR)]);
    assert_eq!(fabric.counters().lost(LossReason::PeerMismatch), 4);
}

#[test]
fn what_a_port_sends_to_itself_does_not_use_the_link() {
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().stepped(1).build().unwrap(), &setup);
    let Pair { a, fabric, .. } = &pair;
    let cut = fabric.faults().cut_link("sim0", 1, Duration::from_secs(60));
    a.connect_to(a, &setup).unwrap();
    a.send(&mut [write(a, a, 1)]).unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    assert_eq!(cut.struck(), 0);
    // But it needs the port.
    fabric.hca("sim0").unwrap().port(1).unwrap().down();
    a.send(&mut [write(a, a, 2)]).unwrap();
    fabric.advance(LONG);
    assert_eq!(a.outcomes(), [(2, WcStatus::RETRY_EXC_ERR)]);
}

#[test]
fn an_address_can_be_taken_over_from_a_device_that_is_gone() {
    let setup = Setup::default();
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .device(DeviceSpec::roce("sim1"))
        .device(DeviceSpec::roce("spare"))
        .build()
        .unwrap();
    let contexts = open_all(&fabric);
    let (a, b) = (
        End::new(&contexts[0], &setup),
        End::new(&contexts[1], &setup),
    );
    a.init(&setup).unwrap();
    let rtr = a.to_rtr(&b, &setup);
    let gids = fabric.hca("sim1").unwrap().port(1).unwrap().gids();
    fabric.hca("sim1").unwrap().remove();
    assert_eq!(
        a.qp.to_rtr(&rtr).unwrap_err().errno(),
        Some(libc::ETIMEDOUT)
    );
    fabric.hca("spare").unwrap().port(1).unwrap().set_gids(gids);
    a.qp.to_rtr(&rtr).unwrap();
}

#[test]
fn connecting_over_a_dead_link_fails() {
    let setup = Setup::default();
    let fabric = two_roce().build().unwrap();
    let contexts = open_all(&fabric);
    let (a, b) = (
        End::new(&contexts[0], &setup),
        End::new(&contexts[1], &setup),
    );
    a.init(&setup).unwrap();
    let rtr = a.to_rtr(&b, &setup);
    let errno = || a.qp.to_rtr(&rtr).err().and_then(|error| error.errno());
    let ports = ["sim0", "sim1"].map(|name| fabric.hca(name).unwrap().port(1).unwrap());
    ports[0].down();
    assert_eq!(errno(), Some(libc::ENETUNREACH));
    ports[0].up();
    ports[1].down();
    assert_eq!(errno(), Some(libc::ETIMEDOUT));
    ports[1].up();
    let own = fabric.faults().cut_link("sim0", 1, Duration::from_secs(60));
    assert_eq!(errno(), Some(libc::ETIMEDOUT));
    own.disarm();
    let cut = fabric.faults().cut_link("sim1", 1, Duration::from_secs(60));
    assert_eq!(errno(), Some(libc::ETIMEDOUT));
    cut.disarm();
    assert_eq!(errno(), None);
    assert_eq!(cut.struck(), 0, "no message was lost");
}

#[test]
fn a_failed_end_can_be_made_anew_while_the_other_waits() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        a.qp.to_error().unwrap();
        b.qp.to_error().unwrap();
        for (own, peer) in [(a, b), (b, a)] {
            own.qp.to_reset().unwrap();
            own.connect_to(
                peer,
                &Setup {
                    psn: 500,
                    ..Setup::default()
                },
            )
            .unwrap();
        }
        a.send(&mut [write(a, b, 1)]).unwrap();
        b.send(&mut [write(b, a, 2)]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(b.outcomes(), [(2, WcStatus::SUCCESS)]);
    });
}
