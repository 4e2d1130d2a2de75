//! Peers whose words are well-formed and not true: queue pairs, addresses, keys and devices that
//! are not there.

use ibnet::Wait;

use crate::rogue::{Device, End, Line, Receiver, Sender, Trap};
use crate::stage::{Stage, recv_failure, says, send_failure, until};
use crate::wire::{ENDPOINT, Endpoint, HELLO, INFINIBAND, PLAN, Plan, REFUSAL, Refusal, frame};

const PEER: &str = "evilhost, process 666";

#[test]
fn of_a_client() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    type Lie = (&'static str, fn(&mut Endpoint));
    let lies: &[Lie] = &[
        ("did not answer", |endpoint| {
            endpoint.queue_pairs[0].number = 0xff_fff0
        }),
        ("does not allow the access", |endpoint| {
            endpoint.ring.rkeys[0] ^= 0xff
        }),
        ("does not allow the access", |endpoint| {
            endpoint.ring.rkeys[0] = 0
        }),
        ("does not allow the access", |endpoint| {
            endpoint.ring.address = 64
        }),
        ("does not allow the access", |endpoint| {
            endpoint.ring.address += 1 << 20
        }),
    ];
    for (what, lie) in lies {
        let mut sender = Sender::connect(&mut besieged, &stage.fabric, lie);
        let error = recv_failure(&mut sender.receiving);
        says(
            &error,
            &[
                "real:1",
                "evil:1",
                PEER,
                &sender.line.name(),
                "queue pair",
                what,
            ],
        );
        drop(sender);
        besieged.is_unharmed();
    }
    drop(besieged);
    stage.end();
}

#[test]
fn of_a_client_whose_address_does_not_exist() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let impatient = stage.open("real", |config| config.modify_retries = 0);
    besieged.listener = impatient.listen(0).unwrap();
    let device = Device::open(&stage.fabric);
    let end = End::new(&device);
    let mut hello = device.hello(besieged.cookie());
    hello.party.devices[0].gid[15] ^= 0x55;
    let mut line = Line::call(besieged.address());
    line.say(&frame(HELLO, &hello));
    let endpoint = Endpoint {
        queue_pairs: vec![end.end()],
        ring: end.area(),
    };
    line.say(&frame(ENDPOINT, &endpoint));
    let name = line.name();
    says(&besieged.failure(), &["real", PEER, &name, "10.0.0.86"]);
    // It is told what the matter is.
    until(|| line.hear::<Plan>(PLAN));
    let refusal: Refusal = until(|| line.hear(REFUSAL));
    assert!(
        String::from_utf8(refusal.reason)
            .unwrap()
            .contains("10.0.0.86")
    );
    drop((line, end, device));
    besieged.serves();
    drop((besieged, impatient));
    stage.end();
}

#[test]
fn of_a_listener() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let before = stage.fabric.live_objects();

    // It announces a buffer, and its queue pair is gone when the data comes.
    let receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
    receiver.announce(&receiver.entry(256));
    let Receiver {
        line,
        end,
        mut sending,
        ..
    } = receiver;
    drop(end);
    let error = send_failure(&mut sending);
    says(&error, &["real:1", "evil:1", PEER, "did not answer"]);
    drop((sending, line));
    assert_eq!(stage.fabric.live_objects(), before);

    // A queue pair that does not exist: nothing can be announced through it, so nothing is ever sent; the
    // connection is one whose peer is silent.
    let mut receiver = Receiver::accept(&trap, &victim, |plan| {
        plan.queue_pairs[0].number = 0xff_fff0;
    })
    .unwrap();
    let buffer = receiver.sending.registrar().buffer(8).unwrap();
    assert!(
        receiver
            .sending
            .send(buffer, 7)
            .try_now()
            .unwrap()
            .is_none()
    );
    receiver.sending.close().unwrap();
    drop((receiver.line, receiver.end));
    assert_eq!(stage.fabric.live_objects(), before);
    drop((trap, victim));
    stage.end();
}

#[test]
fn of_a_listener_whose_address_does_not_exist() {
    let stage = Stage::new();
    let impatient = stage.open("real", |config| config.modify_retries = 0);
    let trap = Trap::new(&stage.fabric);
    let before = stage.fabric.live_objects();
    let nowhere = Receiver::accept(&trap, &impatient, |plan| {
        plan.party.devices[0].gid[15] ^= 0x55;
    });
    let error = nowhere.err().expect("a way to no address");
    let at = trap.socket.local_addr().unwrap().to_string();
    says(&error, &["real", "evilhost, process 666", &at, "10.0.0.86"]);
    assert_eq!(stage.fabric.live_objects(), before);
    drop((trap, impatient));
    stage.end();
}

#[test]
fn of_a_listener_that_offers_another_kind_of_port() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let refused = Receiver::accept(&trap, &victim, |plan| {
        let offer = &mut plan.party.devices[0];
        (offer.link, offer.lid, offer.roce_version) = (INFINIBAND, 5, None);
    });
    let error = refused.err().expect("a path from Ethernet to InfiniBand");
    let at = trap.socket.local_addr().unwrap().to_string();
    says(&error, &[&at, "a path between ports that cannot talk"]);
    drop((trap, victim));
    stage.end();
}

#[test]
fn of_a_listener_whose_ports_take_longer_packets() {
    // Pitfall 40: each end keeps to its own limit, whatever the plan says.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let mut receiver = Receiver::accept(&trap, &victim, |plan| {
        plan.party.devices[0].mtu = 4096;
        plan.paths[0].mtu = 4096;
    })
    .unwrap();
    receiver.announce(&receiver.entry(256));
    let buffer = receiver.sending.registrar().buffer(5).unwrap();
    let sent = receiver.sending.send(buffer, 7).wait().unwrap();
    receiver.sending.finish(sent).wait().unwrap();
    drop((receiver, trap, victim));
    stage.end();
}
