//! Arguments that make no sense, and times without end.

use std::time::Duration;

use ibnet_simverbs::{
    BuildError, DeviceSpec, Fabric, GidSlot, PortSpec, Stage, Target, Verb, When,
};
use ibnet_verbs::{EventType, Gid, GidType, SendRequest, WcStatus};

use crate::pairs::{Pair, Setup};

#[test]
fn names_that_are_no_file_names_are_refused() {
    let escape = "../../../../escape";
    for spec in [
        DeviceSpec::roce(".."),
        DeviceSpec::roce("a\0b"),
        DeviceSpec::roce("a/b"),
        DeviceSpec::roce("a").pci(escape),
        DeviceSpec::roce("a")
            .pci("0000:01:00.1")
            .virtual_function_of(escape),
    ] {
        let built = Fabric::builder().device(spec).sysfs().build();
        assert!(matches!(built, Err(BuildError::Device { .. })));
    }
}

#[test]
fn time_without_end_is_no_overflow() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .stepped(1)
        .build()
        .unwrap();
    let cut = fabric.faults().cut_link("sim0", 1, Duration::MAX);
    fabric.advance(Duration::MAX);
    for _ in 0..10 {
        fabric.step();
    }
    assert_eq!(cut.struck(), 0);
    assert!(fabric.now() > Duration::from_secs(1));
}

/// The text of the panic that a mistake in a test causes.
fn refusal<T>(mistake: impl FnOnce() -> T) -> String {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(mistake));
    let payload = outcome.err().expect("a mistake was taken");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn faults_that_can_never_strike_are_refused() {
    let pair = Pair::stepped(1, &Setup::default());
    let qp = &pair.a.qp;
    let faults = pair.fabric.faults();
    let any = Target::Any;
    let once = When::Nth(1);
    let micros = Duration::from_micros;
    let refusals = [
        (refusal(|| faults.hang_work("sim7", once)), "no device"),
        (
            refusal(|| faults.hang_work(Target::QueuePair(1), once)),
            "no queue pair 0x1",
        ),
        (
            refusal(|| faults.flip_rkey(any.clone(), When::Nth(0))),
            "counted from 1",
        ),
        (
            refusal(|| faults.tear_messages(any.clone(), When::From(0))),
            "counted from 1",
        ),
        (
            refusal(|| faults.fail_call(Verb::PostSend, qp, once, 0)),
            "errno",
        ),
        (
            refusal(|| faults.fail_call(Verb::PostSend, qp, once, -libc::EIO)),
            "errno",
        ),
        (
            refusal(|| faults.fail_call(Verb::CreateCq, qp, once, libc::EIO)),
            "about no queue pair",
        ),
        (
            refusal(|| faults.fail_call(Verb::PollCq, qp, once, libc::EIO)),
            "about no queue pair",
        ),
        (
            refusal(|| faults.fail_call(Verb::GetDeviceList, "sim0", once, libc::EIO)),
            "about no device",
        ),
        (
            refusal(|| faults.fail_work(qp, once, WcStatus::SUCCESS, Stage::NotSent)),
            "IBV_WC_SUCCESS",
        ),
        (
            refusal(|| faults.delay_completions(qp, micros(2)..=micros(1))),
            "no delay",
        ),
        (
            refusal(|| faults.delay_completions(qp, micros(0)..=micros(0))),
            "no delay",
        ),
        (
            refusal(|| faults.partial_polls(qp, once)),
            "about no queue pair",
        ),
        (
            refusal(|| faults.cut_link("sim0", 2, micros(1))),
            "no port 2",
        ),
        (
            refusal(|| faults.cut_link("sim0", 1, Duration::ZERO)),
            "no time",
        ),
        (refusal(|| faults.event_storm("sim0", 0)), "no events"),
    ];
    for (refusal, words) in refusals {
        assert!(refusal.contains(words), "{refusal}");
    }
    // A panic leaves nothing armed, and the fabric usable.
    let write = SendRequest::write(1, pair.a.sge(0, 8), pair.b.remote(0)).signaled();
    pair.a.send(&mut [write]).unwrap();
    pair.fabric.run_until_idle();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::SUCCESS)]);
    pair.finish();
}

#[test]
fn ports_are_not_given_what_the_builder_refuses() {
    let port = PortSpec::infiniband;
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0").ports([port().lid(8, 2), port().lid(3, 0)]))
        .device(DeviceSpec::infiniband("ib1").ports([port().network(1).lid(20, 0)]))
        .device(DeviceSpec::roce("eth0"))
        .build()
        .unwrap();
    let port = |name: &str| fabric.hca(name).unwrap().port(1).unwrap();
    for (name, lid, words) in [
        ("ib0", 0, "1 to 0xbfff"),
        ("ib0", 0xc000, "1 to 0xbfff"),
        ("ib0", 0xffff, "1 to 0xbfff"),
        ("ib0", 9, "path bits"),
        ("eth0", 5, "Ethernet"),
    ] {
        let refusal = refusal(|| port(name).set_lid(lid));
        assert!(refusal.contains(words), "{refusal}");
    }
    let second = fabric.hca("ib0").unwrap().port(2).unwrap();
    assert!(refusal(|| second.set_lid(11)).contains("another port"));
    // That of a port in another network, and the own.
    second.set_lid(20);
    second.set_lid(20);
    assert!(refusal(|| port("ib0").set_lid(20)).contains("another port"));
    port("ib0").set_lid(4);

    let place = |errno| GidSlot::Unreadable(errno);
    let gids = port("eth0");
    assert!(refusal(|| gids.set_gids([GidSlot::Empty; 17])).contains("more GIDs"));
    assert!(refusal(|| gids.set_gid(16, GidSlot::Empty)).contains("16 places"));
    assert!(refusal(|| gids.set_gid(1, place(0))).contains("errno"));
    assert!(refusal(|| gids.set_gids([place(-5)])).contains("errno"));
    let zeros = GidSlot::of_type(Gid::default(), GidType::RoceV2);
    assert!(refusal(|| gids.set_gid(1, zeros)).contains("GidSlot::Empty"));
    for kind in [
        EventType::QP_FATAL,
        EventType::CQ_ERR,
        EventType::DEVICE_FATAL,
    ] {
        assert!(refusal(|| gids.report(kind)).contains("no event about a port"));
    }
}
