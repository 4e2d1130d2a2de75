//! Every message with every length wrong: pitfall 48, and whether anything is reserved or awaited
//! that a length asks for.

use ibnet::Wait;
use std::net::Shutdown;

use ibnet::Error;

use crate::rogue::{Device, End, Line, Trap};
use crate::stage::{Besieged, Stage, connect_failure, says, until};
use crate::wire::{
    ENDPOINT, Endpoint, HELLO, PLAN, Plan, READY, Ready, VERSION, body, frame, frame_of,
};

/// What is done to a message, and what is said of it.
struct Fault {
    what: &'static str,
    bytes: Vec<u8>,
}

const LARGEST: usize = 64 * 1024;

/// Every way to get the length of a message wrong.
fn faults(body: &[u8]) -> Vec<Fault> {
    let (length, out_of_range) = (body.len() as u32, "a message length out of range");
    let unparsed = "a message that does not parse";
    let with = |length: u32, rest: &[u8]| frame_of(length, VERSION, &[body, rest].concat());
    let mut faults = vec![
        (out_of_range, with(0, &[])),
        (out_of_range, with(LARGEST as u32 + 1, &[])),
        (out_of_range, with(u32::MAX, &[])),
        (unparsed, with(length - 1, &[])),
        (unparsed, frame_of(1, VERSION, &body[..1])),
        ("bytes after the end of a message", with(length + 1, &[0])),
        (
            "bytes after the end of a message",
            with(length + 4, b"more"),
        ),
        (
            "bytes after the end of a message",
            with(LARGEST as u32, &vec![0; LARGEST - body.len()]),
        ),
        // A kind that there is not, and a count of things that are not there.
        (
            unparsed,
            frame_of(length, VERSION, &[&[99], &body[1..]].concat()),
        ),
        (
            unparsed,
            frame_of(6, VERSION, &[body[0], 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ),
        (
            "not this version of the protocol",
            frame_of(length, VERSION + 1, body),
        ),
        (
            "not this version of the protocol",
            frame_of(length, 0, body),
        ),
        (
            "not this version of the protocol",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        ),
    ];
    if body.len() == 1 {
        // Nothing but its kind: cannot be shorter, and has no counts.
        faults.retain(|(what, _)| *what != unparsed);
    }
    let fault = |(what, bytes)| Fault { what, bytes };
    faults.into_iter().map(fault).collect()
}

/// Says all of it, or what the listener takes before it hangs up.
fn says_it(besieged: &mut Besieged, line: &mut Line, bytes: &[u8]) -> Option<Error> {
    line.say(bytes);
    until(|| match besieged.listener.accept().try_now() {
        Err(error) => Some(Some(error)),
        Ok(connection) => {
            assert!(connection.is_none());
            line.has_ended().then_some(None)
        }
    })
}

#[test]
fn of_what_a_client_says() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let end = End::new(&device);
    let hello = device.hello(besieged.cookie());
    for fault in faults(&body(HELLO, &hello)) {
        let mut line = Line::call(besieged.address());
        let error = says_it(&mut besieged, &mut line, &fault.bytes);
        assert!(error.is_none(), "a stranger is no error: {error:?}");
        assert!(line.listen().is_empty(), "a stranger was told something");
    }
    let endpoint = Endpoint {
        queue_pairs: vec![end.end()],
        ring: end.area(),
    };
    let before = stage.fabric.live_objects();
    for fault in faults(&body(ENDPOINT, &endpoint)) {
        let mut line = Line::call(besieged.address());
        line.say(&frame(HELLO, &hello));
        until(|| {
            assert!(besieged.listener.accept().try_now().unwrap().is_none());
            line.hear::<Plan>(PLAN)
        });
        let error = says_it(&mut besieged, &mut line, &fault.bytes).expect("an error");
        says(&error, &[&line.name(), fault.what]);
        assert_eq!(stage.fabric.live_objects(), before);
    }
    drop((end, device));
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn of_what_a_listener_says() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let end = End::new(&trap.device);
    let at = trap.socket.local_addr().unwrap().to_string();
    let plan = trap.plan(&end);
    let before = stage.fabric.live_objects();
    for fault in faults(&body(PLAN, &plan)) {
        let (mut connecting, mut line, _) = trap.lure(&victim);
        line.say(&fault.bytes);
        says(&connect_failure(&mut connecting), &[&at, fault.what]);
        assert_eq!(stage.fabric.live_objects(), before);
    }
    for fault in faults(&body(READY, &Ready {})) {
        let (mut connecting, mut line, _) = trap.lure(&victim);
        line.say(&frame(PLAN, &plan));
        until(|| {
            assert!(connecting.try_now().unwrap().is_none());
            line.hear::<Endpoint>(ENDPOINT)
        });
        line.say(&fault.bytes);
        says(&connect_failure(&mut connecting), &[&at, fault.what]);
        assert_eq!(stage.fabric.live_objects(), before);
    }
    drop((end, trap, victim));
    stage.end();
}

#[test]
fn messages_that_end_too_soon() {
    // Each of them cut after some bytes, and then either half of the line closed.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let end = End::new(&trap.device);
    let hello = frame(HELLO, &trap.device.hello(besieged.cookie()));
    let plan = frame(PLAN, &trap.plan(&end));
    for how in [Shutdown::Write, Shutdown::Both] {
        for cut in [0, 1, 4, 6, 7, hello.len() - 1] {
            let mut line = Line::call(besieged.address());
            line.say(&hello[..cut]);
            line.hang_up(how);
            until(|| {
                assert!(besieged.listener.accept().try_now().unwrap().is_none());
                line.has_ended().then_some(())
            });
        }
        // The whole greeting is good, but its sender will never say more.
        let mut line = Line::call(besieged.address());
        line.say(&hello);
        line.hang_up(how);
        let error = besieged.failure();
        let is_lost = matches!(error, Error::PeerLost { .. } | Error::Socket { .. });
        assert!(is_lost, "{error}");

        for cut in [0, 1, 4, 6, 7, plan.len() - 1, plan.len()] {
            let (mut connecting, mut line, _) = trap.lure(&victim);
            line.say(&plan[..cut]);
            line.hang_up(how);
            let error = connect_failure(&mut connecting);
            let is_lost = matches!(error, Error::PeerLost { .. } | Error::Socket { .. });
            assert!(is_lost, "{error}");
            says(&error, &[&trap.socket.local_addr().unwrap().to_string()]);
        }
    }
    drop((end, trap, victim));
    besieged.serves();
    drop(besieged);
    stage.end();
}
