//! What changes while a transport is open: addresses, LIDs, links. The choice follows, and the GID
//! table is read again only when there is a reason.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, Error, RecvConnection, SendConnection, Transport, Wait};
use ibnet_simverbs::{Fabric, GidSlot, HcaPort, When};
use ibnet_verbs::{EventType, Gid};

use crate::drivers::calls;
use crate::log::Log;
use crate::machine::Machine;

const MACHINE: &str = "
    rdma a0 on virtual guid=c1 : eth 4xEDR; eth 4xEDR
    rdma b0 on virtual guid=c2 : ib 4xEDR";

struct Bench {
    transport: Transport,
    fabric: Fabric,
    _machine: Machine,
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Self {
        let machine = Machine::new(MACHINE);
        let fabric = machine.fabric();
        let transport = machine.open(&fabric, settings).unwrap();
        Self {
            transport,
            fabric,
            _machine: machine,
        }
    }

    fn port(&self, device: &str, port: u8) -> HcaPort {
        self.fabric.hca(device).unwrap().port(port).unwrap()
    }

    /// A connection attempt of a device to itself.
    fn attempt(&self, device: usize) -> Result<(), Error> {
        self.connect(device).map(drop)
    }

    fn connect(&self, device: usize) -> Result<(SendConnection, RecvConnection), Error> {
        let mut listener = self.transport.listen(device)?;
        let options = ConnectOptions::default();
        let mut connecting = self
            .transport
            .connect(device, &listener.handle(), options)?;
        let (mut sending, mut receiving) = (None, None);
        while sending.is_none() || receiving.is_none() {
            if sending.is_none() {
                sending = connecting.try_now()?;
            }
            if receiving.is_none() {
                receiving = listener.accept().try_now()?;
            }
        }
        Ok((sending.unwrap(), receiving.unwrap()))
    }

    /// The GID that the first port would use.
    fn chosen(&self) -> String {
        let report = self.transport.port_reports(0).unwrap().remove(0);
        report.gid.map_or_else(
            |error| error.to_string(),
            |selection| selection.entry.gid.to_string(),
        )
    }

    /// Attempts until the number of times that the table was read has moved, for events are told by
    /// another thread.
    fn attempt_until_read(&self, device: usize) {
        let before = table_reads();
        let deadline = Instant::now() + Duration::from_secs(10);
        while table_reads() == before {
            assert!(Instant::now() < deadline, "the table is never read again");
            let _ = self.attempt(device);
        }
    }
}

fn table_reads() -> u64 {
    calls("query_gid_table")
}

fn v4(last: u8) -> GidSlot {
    GidSlot::roce_v2(Ipv4Addr::new(10, 0, 0, last))
}

#[test]
fn the_table_is_read_once_while_nothing_changes() {
    // Pitfall 32: once for each port, to see whether it can be used.
    let bench = Bench::new(&[]);
    let before = table_reads();
    assert_eq!(before, 3);
    for _ in 0..100 {
        bench.attempt(0).unwrap();
    }
    bench.attempt(1).unwrap();
    assert_eq!(table_reads(), before);
}

#[test]
fn each_end_of_a_connection_asks_for_its_address_once() {
    const CONNECTIONS: u64 = 10;
    let bench = Bench::new(&[]);
    bench.attempt(0).unwrap();
    let before = calls("query_gid");
    for _ in 0..CONNECTIONS {
        bench.attempt(0).unwrap();
    }
    let asked = calls("query_gid") - before;
    // It may be asked for again where a machine is so busy that the listener is reached late.
    assert!(
        (2 * CONNECTIONS..3 * CONNECTIONS).contains(&asked),
        "{asked}"
    );
}

#[test]
fn a_changed_table_is_read_again() {
    // Pitfall 7.
    let bench = Bench::new(&[]);
    bench.attempt(0).unwrap();
    // The chosen entry itself is looked at before every attempt, event or not.
    let before = table_reads();
    bench.port("a0", 1).set_gids([GidSlot::Empty, v4(77)]);
    bench.attempt(0).unwrap();
    assert!(table_reads() > before);
    assert_eq!(bench.chosen(), "::ffff:10.0.0.77");
    // A better entry elsewhere in the table is told by the event.
    bench.port("a0", 1).set_gids([
        GidSlot::roce_v2_ipv6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        v4(77),
        v4(5),
    ]);
    bench.attempt_until_read(0);
}

/// A message over it.
fn talk(sending: &mut SendConnection, receiving: &mut RecvConnection) -> Result<(), Error> {
    let receive = receiving.recv(receiving.registrar().buffer(5)?, 0).wait()?;
    let mut buffer = sending.registrar().buffer(5)?;
    buffer.copy_from_slice(b"hello");
    let send = sending.send(buffer, 0).wait()?;
    assert_eq!(receiving.finish(receive).wait()?[..], *b"hello");
    sending.finish(send).wait().map(drop).map_err(Error::from)
}

#[test]
fn the_choice_follows_every_change_and_connections_work_with_it() {
    let bench = Bench::new(&[]);
    let link_local = GidSlot::roce_v2_ipv6("fe80::7".parse().unwrap());
    let global = GidSlot::roce_v2_ipv6("fd00::7".parse().unwrap());
    let old = GidSlot::roce_v1(Ipv4Addr::new(10, 0, 0, 1));
    let other_subnet = GidSlot::roce_v2(Ipv4Addr::new(10, 9, 0, 1));
    let unreadable = GidSlot::Unreadable(nix::errno::Errno::EINVAL as i32);
    for (what, table, chosen) in [
        ("the usual one", vec![old, v4(1)], "::ffff:10.0.0.1"),
        (
            "an address in front",
            vec![old, v4(2), v4(1)],
            "::ffff:10.0.0.2",
        ),
        (
            "the first removed",
            vec![old, GidSlot::Empty, v4(1)],
            "::ffff:10.0.0.1",
        ),
        ("the other way round", vec![v4(1), v4(2)], "::ffff:10.0.0.1"),
        ("two subnets", vec![other_subnet, v4(1)], "::ffff:10.9.0.1"),
        (
            "one subnet left",
            vec![GidSlot::Empty, v4(1)],
            "::ffff:10.0.0.1",
        ),
        ("IPv6 alone", vec![link_local, global], "fd00::7"),
        ("the link's own address alone", vec![link_local], "fe80::7"),
        (
            "another's in between",
            vec![unreadable, link_local, v4(3)],
            "::ffff:10.0.0.3",
        ),
    ] {
        bench.port("a0", 1).set_gids(table);
        assert_eq!(bench.chosen(), chosen, "{what}");
        let (mut sending, mut receiving) = bench.connect(0).unwrap();
        talk(&mut sending, &mut receiving).unwrap();
    }
}

/// A receive, of which the sender cannot learn.
fn announce(receiving: &mut RecvConnection) -> Result<(), Error> {
    let receive = receiving.recv(receiving.registrar().buffer(5)?, 0).wait()?;
    receiving
        .finish(receive)
        .wait()
        .map(drop)
        .map_err(Error::from)
}

#[test]
fn a_connection_whose_address_has_gone_says_so_and_new_ones_use_the_new_one() {
    let bench = Bench::new(&[("NCCL_IB_TIMEOUT", "1"), ("NCCL_IB_RETRY_CNT", "1")]);
    let (mut sending, mut receiving) = bench.connect(0).unwrap();
    talk(&mut sending, &mut receiving).unwrap();
    let old = bench.chosen();
    bench.port("a0", 1).set_gids([GidSlot::Empty, v4(99)]);
    let error = announce(&mut receiving).unwrap_err().to_string();
    let address = old.trim_start_matches("::ffff:");
    for part in [
        address,
        "has gone from GID 3 of a0:1",
        "connections made from now on",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let (mut sending, mut receiving) = bench.connect(0).unwrap();
    talk(&mut sending, &mut receiving).unwrap();
    assert_eq!(bench.chosen(), "::ffff:10.0.0.99");
    // Another reason is told as such.
    bench.port("a0", 1).down();
    let error = announce(&mut receiving).unwrap_err().to_string();
    assert!(!error.contains("has gone"), "{error}");
    assert!(error.contains("did not answer"), "{error}");
}

#[test]
fn a_device_that_failed_serves_again() {
    // Pitfall 8: a fatal event ends the connections that there are, not those to come.
    let bench = Bench::new(&[]);
    let (mut sending, mut receiving) = bench.connect(0).unwrap();
    talk(&mut sending, &mut receiving).unwrap();
    bench.fabric.hca("a0").unwrap().fail();
    let deadline = Instant::now() + Duration::from_secs(10);
    let error = loop {
        match talk(&mut sending, &mut receiving) {
            Ok(()) => assert!(Instant::now() < deadline, "the event is never told"),
            Err(error) => break error,
        }
    };
    drop(error);
    let (mut sending, mut receiving) = bench.connect(0).unwrap();
    talk(&mut sending, &mut receiving).unwrap();
}

#[test]
fn a_completion_queue_that_fails_ends_its_own_connection_only() {
    let bench = Bench::new(&[]);
    let (mut sending, mut receiving) = bench.connect(0).unwrap();
    let (mut other_sending, mut other_receiving) = bench.connect(0).unwrap();
    let overrun = bench.fabric.faults().overrun_cq("a0", When::Nth(1));
    let mut outcome = talk(&mut sending, &mut receiving);
    let deadline = Instant::now() + Duration::from_secs(10);
    while outcome.is_ok() {
        assert!(Instant::now() < deadline, "the event is never told");
        outcome = talk(&mut sending, &mut receiving);
    }
    assert_eq!(overrun.struck(), 1);
    for _ in 0..100 {
        talk(&mut other_sending, &mut other_receiving).unwrap();
    }
}

#[test]
fn events_find_their_device_although_the_list_was_sorted() {
    // Pitfall 102: the kernel lists them the other way round.
    let machine = Machine::new(
        "pci 01:00.0
         pci 02:00.0
         rdma late on 02:00.0 guid=c2 : eth 4xEDR
         rdma early on 01:00.0 guid=c1 : eth 4xEDR",
    );
    let fabric = machine.fabric();
    let transport = machine.open(&fabric, &[]).unwrap();
    let names: Vec<String> = transport
        .devices()
        .into_iter()
        .map(|info| info.name)
        .collect();
    assert_eq!(names, ["early", "late"]);
    let bench = Bench {
        transport,
        fabric,
        _machine: machine,
    };
    bench.attempt(0).unwrap();
    bench.attempt(1).unwrap();
    bench.port("late", 1).report(EventType::GID_CHANGE);
    bench.attempt_until_read(1);
    let before = table_reads();
    bench.attempt(0).unwrap();
    assert_eq!(table_reads(), before, "the event was for the other device");
}

#[test]
fn events_are_for_their_port() {
    // Pitfall 5: two ports of one device, and one thread that reads the events of both.
    let bench = Bench::new(&[]);
    bench.attempt(0).unwrap();
    bench.attempt(1).unwrap();
    bench.port("a0", 2).report(EventType::GID_CHANGE);
    bench.attempt_until_read(1);
    let before = table_reads();
    bench.attempt(0).unwrap();
    assert_eq!(table_reads(), before, "the event was for the other port");
    for kind in [
        EventType::PKEY_CHANGE,
        EventType::SM_CHANGE,
        EventType::CLIENT_REREGISTER,
        EventType::PORT_ACTIVE,
    ] {
        bench.port("a0", 1).report(kind);
        bench.attempt_until_read(0);
    }
}

#[test]
fn a_storm_of_events_is_read_to_its_end() {
    // Pitfall 6: every event is acknowledged, and none ends the thread.
    let bench = Bench::new(&[]);
    let storm = bench.fabric.faults().event_storm("a0", 10_000);
    assert!(storm.struck() > 0);
    bench.attempt(0).unwrap();
    bench.port("a0", 1).set_gids([v4(9)]);
    bench.attempt(0).unwrap();
    bench.port("a0", 1).set_gids([v4(9), v4(8)]);
    bench.attempt_until_read(0);
    let Bench {
        transport, fabric, ..
    } = bench;
    drop(transport);
    assert!(
        fabric.live_objects().is_empty(),
        "{:?}",
        fabric.live_objects()
    );
}

#[test]
fn a_port_that_goes_down_is_not_used_and_comes_back() {
    let bench = Bench::new(&[]);
    bench.attempt(0).unwrap();
    bench.port("a0", 1).down();
    let error = bench.attempt(0).unwrap_err();
    assert!(error.to_string().contains("a0:1: its state is"), "{error}");
    // The other port is none of its business.
    bench.attempt(1).unwrap();
    bench.port("a0", 1).up();
    bench.attempt(0).unwrap();
}

#[test]
fn a_new_lid_is_noticed() {
    let bench = Bench::new(&[]);
    let lid = |bench: &Bench| bench.transport.port_reports(2).unwrap()[0].lid;
    bench.attempt(2).unwrap();
    let before = table_reads();
    bench.port("b0", 1).set_lid(0x77);
    bench.attempt(2).unwrap();
    assert_eq!(lid(&bench), 0x77);
    assert!(table_reads() > before);
}

#[test]
fn without_an_address_the_error_shows_the_table() {
    let bench = Bench::new(&[("NCCL_IB_ADDR_RANGE", "10.0.0.0/8")]);
    bench.attempt(0).unwrap();
    bench
        .port("a0", 1)
        .set_gids([GidSlot::roce_v2(Ipv4Addr::new(192, 168, 0, 1))]);
    let error = bench.attempt(0).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NoGid { .. }), "{text}");
    for part in ["a0:1", "`ranges`", "192.168.0.1"] {
        assert!(text.contains(part), "{text}");
    }
    // A failure is not kept.
    bench.port("a0", 1).set_gids([v4(3)]);
    bench.attempt(0).unwrap();
}

#[test]
fn each_port_has_its_own_index() {
    let bench = Bench::new(&[("NCCL_IB_GID_INDEX", "a0:1=1,a0:2=2")]);
    for (device, index) in [(0, 1), (1, 2)] {
        let report = bench.transport.port_reports(device).unwrap().remove(0);
        assert_eq!(report.gid.unwrap().entry.index, index);
    }
}

/// As with NCCL, which goes on, too: with a warning, once for each port.
#[test]
fn a_family_or_version_that_no_gid_has_is_a_warning() {
    Log::of_process().take();
    let wish = [
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_ROCE_VERSION_NUM", "1"),
    ];
    let bench = Bench::new(&wish);
    let warnings = || {
        let lines = Log::of_process().take().into_iter();
        lines
            .filter(|line| line.contains("no GID is as asked for"))
            .collect::<Vec<_>>()
    };
    // Its entries are of both families and versions.
    bench.attempt(0).unwrap();
    assert_eq!(warnings(), [""; 0]);
    bench.port("a0", 1).set_gids([v4(3)]);
    bench.attempt_until_read(0);
    bench.attempt(0).unwrap();
    let lines = warnings();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "a0:1: no GID is as asked for; 0: RoCEv2 10.0.0.3",
        "chosen although not IPv6, as asked for (`family`)",
        "and not version 1, as asked for (`roce_version`)",
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    bench.port("a0", 1).set_gids([v4(4)]);
    bench.attempt_until_read(0);
    bench.attempt(0).unwrap();
    assert_eq!(bench.chosen(), "::ffff:10.0.0.4");
    assert_eq!(warnings(), [""; 0]);
}

#[test]
fn partitions_are_found_in_the_table_of_the_port() {
    for setting in [
        ("NCCL_IB_PKEY", "0"),
        ("NCCL_IB_PKEY_VALUE", "0xffff"),
        ("NCCL_IB_PKEY_VALUE", "0x7fff"),
    ] {
        let bench = Bench::new(&[setting]);
        bench.attempt(0).unwrap();
        let report = bench.transport.port_reports(0).unwrap().remove(0);
        assert_eq!(report.pkey_index.unwrap(), 0, "{setting:?}");
    }
    let machine = Machine::new(MACHINE);
    for (setting, says) in [
        (
            ("NCCL_IB_PKEY", "1"),
            "P_Key index 1 (`partition`) in a table of 1",
        ),
        (
            ("NCCL_IB_PKEY_VALUE", "0x8001"),
            "0x8001 (`partition`) is not in its table, which has 0xffff",
        ),
    ] {
        let error = machine.open(&machine.fabric(), &[setting]).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("a0:1") && error.contains(says), "{error}");
    }
}

#[test]
fn a_removed_device_ends_what_runs_on_it_and_nothing_else() {
    let bench = Bench::new(&[]);
    bench.attempt(0).unwrap();
    bench.fabric.hca("a0").unwrap().remove();
    assert!(bench.attempt(0).is_err());
    bench.attempt(2).unwrap();
    let gid = bench.transport.port_reports(2).unwrap().remove(0).gid;
    assert_ne!(gid.unwrap().entry.gid, Gid([0; 16]));
}
