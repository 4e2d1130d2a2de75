//! Every field of every message of the handshake, one at a time out of its range, and messages
//! out of turn.

use ibnet::{ConnectOptions, Error, Wait};

use crate::rig::log::Log;
use crate::rogue::{Device, End, Line, Sender, Trap};
use crate::stage::{Besieged, Stage, connect_failure, recv_failure, says, send_failure, until};
use crate::wire::{
    CLOSING, Closing, ENDPOINT, Endpoint, HELLO, Hello, INFINIBAND, Offer, PLAN, Plan, READY,
    REFUSAL, Ready, Refusal, VERSION, body, frame, frame_of,
};

const UNPARSED: &str = "a message that does not parse";

/// What a spoilt device is refused for; the same in a greeting and in a plan.
type SpoilOffer = (&'static str, fn(&mut Offer));

const OFFERS: &[SpoilOffer] = &[
    ("a device name of unusable length", |offer| {
        offer.name.clear()
    }),
    ("a device name of unusable length", |offer| {
        offer.name = vec![b'x'; 65]
    }),
    (UNPARSED, |offer| offer.name = vec![0xff, 0xfe]),
    ("port 0", |offer| offer.port = 0),
    (UNPARSED, |offer| offer.link = 2),
    (UNPARSED, |offer| offer.link = u64::MAX),
    ("an InfiniBand port with an Ethernet's address", |offer| {
        offer.link = INFINIBAND
    }),
    (UNPARSED, |offer| offer.lid = 1 << 16),
    ("no LID, no GID", |offer| {
        (offer.link, offer.gid, offer.roce_version) = (INFINIBAND, [0; 16], None);
    }),
    ("an Ethernet port without a GID", |offer| {
        offer.gid = [0; 16]
    }),
    ("a prefix longer than its address", |offer| {
        offer.prefix_length = Some(129)
    }),
    ("a prefix longer than its address", |offer| {
        offer.gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        offer.prefix_length = Some(33);
    }),
    ("a RoCE version that does not exist", |offer| {
        offer.roce_version = Some(0)
    }),
    ("a RoCE version that does not exist", |offer| {
        offer.roce_version = Some(3)
    }),
    ("an MTU that does not exist", |offer| offer.mtu = 0),
    ("an MTU that does not exist", |offer| offer.mtu = 1500),
    ("an MTU that does not exist", |offer| offer.mtu = 8192),
    (UNPARSED, |offer| offer.mtu = 1 << 32),
    ("a maximum message size too small", |offer| {
        offer.max_message = 0
    }),
    ("a maximum message size too small", |offer| {
        offer.max_message = 127
    }),
    (UNPARSED, |offer| offer.max_message = 1 << 32),
    (UNPARSED, |offer| offer.reorders = 2),
];

/// The listener drops the client without an answer, and its log says why.
fn is_dropped(besieged: &mut Besieged, bytes: &[u8], why: &str) {
    Log::of_process().take();
    let mut line = Line::call(besieged.address());
    line.say(bytes);
    until(|| {
        assert!(besieged.listener.accept().try_now().unwrap().is_none());
        line.has_ended().then_some(())
    });
    assert!(line.listen().is_empty(), "a stranger was told something");
    let lines = Log::of_process().take();
    let name = line.name();
    let is_told = |text: &String| text.contains(&name) && text.contains(why);
    assert!(lines.iter().any(is_told), "{why}, of {name}: {lines:?}");
}

#[test]
fn every_field_of_a_hello() {
    // Pitfalls 38 and 48.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let good = device.hello(besieged.cookie());
    type Spoil = (&'static str, fn(&mut Hello));
    let spoilers: &[Spoil] = &[
        ("a host name that is too long", |hello| {
            hello.party.host = vec![b'h'; 65]
        }),
        (UNPARSED, |hello| hello.party.host = vec![0xc0, 0xaf]),
        (UNPARSED, |hello| hello.party.process = 1 << 32),
        ("a number of devices out of range", |hello| {
            hello.party.devices.clear()
        }),
        ("a number of devices out of range", |hello| {
            hello.party.devices = vec![hello.party.devices[0].clone(); 9];
        }),
        ("a number of queue pairs out of range", |hello| {
            hello.queue_pairs = 0
        }),
        ("a number of queue pairs out of range", |hello| {
            hello.queue_pairs = 129
        }),
        ("a number of queue pairs out of range", |hello| {
            hello.queue_pairs = 255
        }),
        ("a service level that does not exist", |hello| {
            hello.service_level = 16
        }),
        ("a service level that does not exist", |hello| {
            hello.service_level = 255
        }),
    ];
    drop(device);
    let before = stage.fabric.live_objects();
    for (why, spoil) in spoilers {
        let mut hello = good.clone();
        spoil(&mut hello);
        is_dropped(&mut besieged, &frame(HELLO, &hello), why);
    }
    for (why, spoil) in OFFERS {
        let mut hello = good.clone();
        spoil(&mut hello.party.devices[0]);
        is_dropped(&mut besieged, &frame(HELLO, &hello), why);
    }
    // A choice that is neither yes nor no.
    let mut last = body(HELLO, &good);
    assert_eq!(last.pop(), Some(0), "no notices");
    last.push(2);
    is_dropped(
        &mut besieged,
        &frame_of(last.len() as u32, VERSION, &last),
        UNPARSED,
    );
    assert_eq!(stage.fabric.live_objects(), before);
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn a_client_without_the_cookie_learns_nothing() {
    // Pitfall 49.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let other = stage.open("good", |_| {}).listen(0).unwrap();
    let device = Device::open(&stage.fabric);
    let secret = besieged.cookie();
    let mut nearly = secret;
    nearly[15] ^= 1;
    let others = other.handle().to_bytes()[28..44].try_into().unwrap();
    for cookie in [[0; 16], [0xff; 16], nearly, others] {
        let hello = frame(HELLO, &device.hello(cookie));
        is_dropped(&mut besieged, &hello, "a wrong cookie");
    }
    drop((device, other));
    // Who has the right one and nothing to connect is told.
    let device = Device::open(&stage.fabric);
    let mut hello = device.hello(secret);
    let offer = &mut hello.party.devices[0];
    (offer.link, offer.lid, offer.roce_version) = (INFINIBAND, 5, None);
    let mut line = Line::call(besieged.address());
    line.say(&frame(HELLO, &hello));
    says(&besieged.failure(), &["evil:1", "InfiniBand", "real:1"]);
    let refusal: Refusal = until(|| line.hear(REFUSAL));
    assert!(
        String::from_utf8(refusal.reason)
            .unwrap()
            .contains("no way")
    );
    drop((device, line));
    besieged.serves();
    drop(besieged);
    stage.end();
}

#[test]
fn messages_out_of_turn() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let end = End::new(&device);
    let endpoint = Endpoint {
        queue_pairs: vec![end.end()],
        ring: end.area(),
    };
    let hello = frame(HELLO, &device.hello(besieged.cookie()));
    let trap = Trap::new(&stage.fabric);
    let plan = frame(PLAN, &trap.plan(&end));
    let ready = frame(READY, &Ready {});
    let endpoint = frame(ENDPOINT, &endpoint);
    let closing = frame(
        CLOSING,
        &Closing {
            parts_taken: vec![],
        },
    );
    let out_of_turn = "a message out of turn";
    for bytes in [&ready, &plan, &endpoint, &closing] {
        is_dropped(&mut besieged, bytes, out_of_turn);
    }
    // The same after a good greeting: the listener is told by the error what went wrong.
    for (bytes, what) in [
        (&ready, out_of_turn),
        (&plan, out_of_turn),
        (&hello, out_of_turn),
        (&closing, "it closed the connection"),
    ] {
        let mut line = Line::call(besieged.address());
        line.say(&[&hello[..], bytes].concat());
        says(&besieged.failure(), &[&line.name(), what]);
    }
    drop((end, device));

    let victim = stage.open("real", |_| {});
    for (bytes, what) in [
        (&ready, out_of_turn),
        (&endpoint, out_of_turn),
        (&hello, out_of_turn),
        (&closing, "it closed the connection"),
    ] {
        let (mut connecting, mut line, _) = trap.lure(&victim);
        line.say(bytes);
        let at = trap.socket.local_addr().unwrap().to_string();
        says(&connect_failure(&mut connecting), &[&at, what]);
        // An attempt that has ended stays ended (pitfall 51).
        assert!(matches!(
            connecting.try_now(),
            Err(Error::InvalidArgument(_))
        ));
    }
    drop((victim, trap));
    besieged.serves();
    drop(besieged);
    stage.end();
}

#[test]
fn every_field_of_a_plan() {
    // Pitfalls 38 and 48.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let end = End::new(&trap.device);
    let good = trap.plan(&end);
    type Spoil = (&'static str, fn(&mut Plan));
    let number = "a queue pair number out of range";
    let address = "a memory area at an impossible address";
    let rkeys = "a number of rkeys that is not that of its devices";
    let spoilers: &[Spoil] = &[
        ("a host name that is too long", |plan| {
            plan.party.host = vec![b'h'; 65]
        }),
        ("a number of devices out of range", |plan| {
            plan.party.devices.clear()
        }),
        ("a number of devices out of range", |plan| {
            plan.party.devices = vec![plan.party.devices[0].clone(); 9];
        }),
        ("a number of paths out of range", |plan| plan.paths.clear()),
        ("a number of paths out of range", |plan| {
            plan.paths = vec![plan.paths[0].clone(); 129]
        }),
        ("a path over a device that was not offered", |plan| {
            plan.paths[0].connector_device = 1;
        }),
        ("a path over a device that cannot exist", |plan| {
            plan.paths[0].connector_device = 8
        }),
        ("a path over a device that cannot exist", |plan| {
            plan.paths[0].connector_device = 255
        }),
        ("a path over a device that it does not have", |plan| {
            plan.paths[0].listener_device = 1
        }),
        ("a path over a device that it does not have", |plan| {
            plan.paths[0].listener_device = 255;
        }),
        ("an MTU that does not exist", |plan| plan.paths[0].mtu = 0),
        ("an MTU that does not exist", |plan| {
            plan.paths[0].mtu = 1000
        }),
        (UNPARSED, |plan| plan.paths[0].mtu = u64::MAX),
        (UNPARSED, |plan| plan.paths[0].reorders = 2),
        (
            "a number of queue pairs that is not that of its paths",
            |plan| {
                plan.queue_pairs.clear();
            },
        ),
        (number, |plan| plan.queue_pairs[0].number = 0),
        (number, |plan| plan.queue_pairs[0].number = 1),
        (number, |plan| plan.queue_pairs[0].number = 1 << 24),
        (UNPARSED, |plan| plan.queue_pairs[0].number = 1 << 32),
        ("a packet sequence number out of range", |plan| {
            plan.queue_pairs[0].psn = 1 << 24;
        }),
        ("a ring entry of impossible size", |plan| {
            plan.entry_bytes = 0
        }),
        ("a ring entry of impossible size", |plan| {
            plan.entry_bytes = 48
        }),
        ("a ring entry of impossible size", |plan| {
            plan.entry_bytes = 64
        }),
        (address, |plan| plan.size_table.address = 0),
        (address, |plan| plan.size_table.address += 1),
        (address, |plan| plan.size_table.address = !63),
        (rkeys, |plan| plan.size_table.rkeys.clear()),
        (rkeys, |plan| plan.size_table.rkeys.push(1)),
        (UNPARSED, |plan| plan.size_table.rkeys[0] = 1 << 32),
    ];
    let refuses = |why: &str, plan: &Plan| {
        let (mut connecting, mut line, _) = trap.lure(&victim);
        let before = stage.fabric.live_objects();
        line.say(&frame(PLAN, plan));
        let error = connect_failure(&mut connecting);
        let at = trap.socket.local_addr().unwrap().to_string();
        says(&error, &[&at, why]);
        // The liar is told, too, and nothing was made for it.
        let refusal: Refusal = until(|| line.hear(REFUSAL));
        assert!(String::from_utf8(refusal.reason).unwrap().contains(why));
        assert_eq!(stage.fabric.live_objects(), before);
    };
    for (why, spoil) in spoilers {
        let mut plan = good.clone();
        spoil(&mut plan);
        refuses(why, &plan);
    }
    for (why, spoil) in OFFERS {
        let mut plan = good.clone();
        spoil(&mut plan.party.devices[0]);
        refuses(why, &plan);
    }
    drop((end, trap));
    drop(victim);
    stage.end();
}

#[test]
fn every_field_of_an_endpoint() {
    // Pitfalls 38 and 48.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let end = End::new(&device);
    let good = Endpoint {
        queue_pairs: vec![end.end()],
        ring: end.area(),
    };
    type Spoil = (&'static str, fn(&mut Endpoint));
    let number = "a queue pair number out of range";
    let address = "a memory area at an impossible address";
    let spoilers: &[Spoil] = &[
        ("a number of paths out of range", |endpoint| {
            endpoint.queue_pairs.clear()
        }),
        ("a number of paths out of range", |endpoint| {
            endpoint.queue_pairs = vec![endpoint.queue_pairs[0].clone(); 129];
        }),
        ("a number of queue pairs that was not agreed", |endpoint| {
            endpoint.queue_pairs = vec![endpoint.queue_pairs[0].clone(); 2];
        }),
        (number, |endpoint| endpoint.queue_pairs[0].number = 0),
        (number, |endpoint| endpoint.queue_pairs[0].number = 1 << 24),
        (UNPARSED, |endpoint| {
            endpoint.queue_pairs[0].number = 1 << 32
        }),
        ("a packet sequence number out of range", |endpoint| {
            endpoint.queue_pairs[0].psn = 1 << 24;
        }),
        (UNPARSED, |endpoint| {
            endpoint.queue_pairs[0].ece = Some(crate::wire::Ece {
                vendor_id: 1 << 32,
                options: 0,
            });
        }),
        (address, |endpoint| endpoint.ring.address = 0),
        (address, |endpoint| endpoint.ring.address += 32),
        (address, |endpoint| endpoint.ring.address = !0x3fff),
        ("a number of rkeys out of range", |endpoint| {
            endpoint.ring.rkeys.clear()
        }),
        ("a number of rkeys out of range", |endpoint| {
            endpoint.ring.rkeys = vec![1; 9]
        }),
        (
            "a number of rkeys that is not that of its devices",
            |endpoint| {
                endpoint.ring.rkeys = vec![1; 2];
            },
        ),
        (UNPARSED, |endpoint| endpoint.ring.rkeys[0] = 1 << 32),
    ];
    let before = stage.fabric.live_objects();
    for (why, spoil) in spoilers {
        let mut endpoint = good.clone();
        spoil(&mut endpoint);
        let mut line = Line::call(besieged.address());
        line.say(&frame(HELLO, &device.hello(besieged.cookie())));
        until(|| {
            assert!(besieged.listener.accept().try_now().unwrap().is_none());
            line.hear::<Plan>(PLAN)
        });
        line.say(&frame(ENDPOINT, &endpoint));
        says(&besieged.failure(), &[&line.name(), why]);
        let refusal: Refusal = until(|| line.hear(REFUSAL));
        assert!(String::from_utf8(refusal.reason).unwrap().contains(why));
        assert_eq!(stage.fabric.live_objects(), before);
    }
    drop((end, device));
    besieged.serves();
    drop(besieged);
    stage.end();
}

#[test]
fn refusals_are_words_and_nothing_else() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let at = trap.socket.local_addr().unwrap().to_string();
    let refusal = |reason: &[u8]| {
        let (mut connecting, mut line, _) = trap.lure(&victim);
        let reason = reason.to_vec();
        line.say(&frame(REFUSAL, &Refusal { reason }));
        connect_failure(&mut connecting)
    };
    let told = refusal("no\r\n\x1b[2J\u{202e}\0 room".as_bytes());
    says(&told, &[&at, "refused the connection: no[2J room"]);
    assert!(told.to_string().chars().all(|c| !c.is_control()));
    says(&refusal(&[b'x'; 513]), &[&at, "a refusal that is too long"]);
    says(&refusal(&[0xff]), &[&at, UNPARSED]);

    // From a client, in the middle.
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let mut line = Line::call(besieged.address());
    line.say(&frame(HELLO, &device.hello(besieged.cookie())));
    until(|| {
        assert!(besieged.listener.accept().try_now().unwrap().is_none());
        line.hear::<Plan>(PLAN)
    });
    line.say(&frame(
        REFUSAL,
        &Refusal {
            reason: b"changed my mind".to_vec(),
        },
    ));
    says(&besieged.failure(), &[&line.name(), "changed my mind"]);
    drop((line, device));
    besieged.serves();
    drop((besieged, trap, victim));
    stage.end();
}

#[test]
fn a_ready_that_comes_too_early_does_no_harm() {
    // It arrives with the plan, before the listener can know the own queue pairs: the connection
    // stands as far as this end can tell, and ends as any whose peer is gone.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let (mut connecting, mut line, _) = trap.lure(&victim);
    let end = End::new(&trap.device);
    let early = [frame(PLAN, &trap.plan(&end)), frame(READY, &Ready {})].concat();
    line.say(&early);
    let mut sending = until(|| connecting.try_now().unwrap());
    drop(line);
    says(
        &send_failure(&mut sending),
        &["evilhost, process 666", "gone"],
    );
    drop((sending, connecting, end, trap, victim));
    stage.end();
}

#[test]
fn a_client_may_leave_before_its_connection_is_taken() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let Sender {
        line,
        end,
        mut receiving,
        ..
    } = Sender::connect(&mut besieged, &stage.fabric, |_| {});
    drop((line, end));
    says(&recv_failure(&mut receiving), &["evilhost, process 666"]);
    drop(receiving);
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn a_handle_is_no_way_in_without_a_listener() {
    // Pitfall 50: whatever is in it, it leads to an error.
    let stage = Stage::new();
    let victim = stage.open("real", |config| config.socket_retries = 0);
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let handle = crate::stage::handle(gone, [7; 16]);
    let error = match victim.connect(0, &handle, ConnectOptions::default()) {
        Ok(mut connecting) => connect_failure(&mut connecting),
        Err(error) => error,
    };
    says(&error, &[&gone.to_string()]);
    drop(victim);
    stage.end();
}
