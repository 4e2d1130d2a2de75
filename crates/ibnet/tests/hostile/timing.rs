//! Peers that take their time: one that stalls is dropped at the deadline, and holds up no other.

use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, Error, Wait};

use crate::rogue::{Device, Line, Trap};
use crate::stage::{Stage, connect_failure, says, until};
use crate::wire::{ENDPOINT, Endpoint, HELLO, PLAN, Plan, frame};

const SOON: Duration = Duration::from_secs(1);

#[test]
fn a_client_that_stalls_in_any_state_is_dropped_at_the_deadline() {
    // Pitfalls 37 and 49.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let attacked = stage.open("real", |config| config.connect_timeout = Some(SOON));
    besieged.listener = attacked.listen(0).unwrap();
    let before = stage.fabric.live_objects();
    let device = Device::open(&stage.fabric);
    let hello = frame(HELLO, &device.hello(besieged.cookie()));
    let start = Instant::now();
    let mut strangers = [0, 1, 5, 6, hello.len() - 1].map(|cut| {
        let mut line = Line::call(besieged.address());
        line.say(&hello[..cut]);
        line
    });
    // Knows the cookie, and is given a queue pair.
    let mut known = [0, 1, 6, 20].map(|cut| {
        let mut line = Line::call(besieged.address());
        line.say(&hello);
        until(|| {
            assert!(besieged.listener.accept().try_now().unwrap().is_none());
            line.hear::<Plan>(PLAN)
        });
        line.say(&frame(ENDPOINT, &Ignored)[..cut]);
        line
    });
    besieged.serves();
    let mut timeouts = Vec::new();
    until(|| {
        match besieged.listener.accept().try_now() {
            Ok(connection) => assert!(connection.is_none()),
            Err(error) => timeouts.push(error),
        }
        (timeouts.len() == known.len()).then_some(())
    });
    assert!(start.elapsed() >= SOON);
    for (line, error) in known.iter_mut().zip(&timeouts) {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        says(
            error,
            &["on real", "the client's queue pairs", "`connect_timeout`"],
        );
        until(|| line.has_ended().then_some(()));
        let name = line.name();
        assert!(
            timeouts
                .iter()
                .any(|error| error.to_string().contains(&name)),
            "{name}"
        );
    }
    for line in &mut strangers {
        until(|| {
            besieged.nothing_happens();
            line.has_ended().then_some(())
        });
        assert!(line.listen().is_empty());
    }
    drop((strangers, known, device));
    assert_eq!(stage.fabric.live_objects(), before);
    besieged.serves();
    drop((besieged, attacked));
    stage.end();
}

/// An endpoint that does not exist, long enough to be cut.
struct Ignored;

impl crate::wire::Wire for Ignored {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend([0; 40]);
    }

    fn get(_: &mut &[u8]) -> Self {
        Self
    }
}

#[test]
fn a_listener_that_stalls_in_any_state_is_given_up_at_the_deadline() {
    // Pitfall 37.
    let stage = Stage::new();
    let victim = stage.open("real", |config| config.connect_timeout = Some(SOON));
    let trap = Trap::new(&stage.fabric);
    let end = crate::rogue::End::new(&trap.device);
    let plan = frame(PLAN, &trap.plan(&end));
    let at = trap.socket.local_addr().unwrap().to_string();
    let before = stage.fabric.live_objects();
    let mut attempts = Vec::new();
    for cut in [0, 1, 6, plan.len() - 1] {
        let (connecting, mut line, _) = trap.lure(&victim);
        line.say(&plan[..cut]);
        attempts.push((connecting, line, "the listener's plan"));
    }
    let (mut connecting, mut line, _) = trap.lure(&victim);
    line.say(&plan);
    until(|| {
        assert!(connecting.try_now().unwrap().is_none());
        line.hear::<Endpoint>(ENDPOINT)
    });
    attempts.push((connecting, line, "the listener's queue pairs"));
    for (connecting, line, waiting_for) in &mut attempts {
        let error = connect_failure(connecting);
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        says(
            &error,
            &["connecting real", &at, waiting_for, "`connect_timeout`"],
        );
        until(|| line.has_ended().then_some(()));
    }
    drop(attempts);
    assert_eq!(stage.fabric.live_objects(), before);
    // Not even the socket is taken.
    let options = ConnectOptions::default();
    let handle = crate::stage::handle(trap.socket.local_addr().unwrap(), [1; 16]);
    let mut connecting = victim.connect(0, &handle, options).unwrap();
    assert!(matches!(
        connect_failure(&mut connecting),
        Error::Timeout { .. }
    ));
    drop((connecting, end, trap, victim));
    stage.end();
}

#[test]
fn three_hundred_idle_strangers_and_a_good_client() {
    // Pitfall 49: one stalled stranger once blocked everybody.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let hello = {
        let device = Device::open(&stage.fabric);
        frame(HELLO, &device.hello(besieged.cookie()))
    };
    let mut strangers: Vec<Line> = (0..150).map(|_| Line::call(besieged.address())).collect();
    besieged.nothing_happens();
    strangers.extend((0..150).map(|number: usize| {
        let mut line = Line::call(besieged.address());
        // Some have begun to speak.
        line.say(&hello[..number % 20]);
        line
    }));
    besieged.serves();
    besieged.serves();
    // More than are let wait have made room, the oldest first.
    let dropped = strangers
        .iter_mut()
        .filter_map(|line| line.has_ended().then_some(()));
    assert!(dropped.count() >= 300 - 256);
    assert!(!strangers.last_mut().unwrap().has_ended());
    drop(strangers);
    besieged.nothing_happens();
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn abandoned_halves_leave_nothing() {
    // Pitfall 36: a listener closed in mid-accept, and a connect that is never polled again.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let end = crate::rogue::End::new(&trap.device);
    let hello = frame(HELLO, &trap.device.hello(besieged.cookie()));
    let before = stage.fabric.live_objects();

    let mut line = Line::call(besieged.address());
    line.say(&hello);
    until(|| {
        assert!(besieged.listener.accept().try_now().unwrap().is_none());
        line.hear::<Plan>(PLAN)
    });
    assert_ne!(stage.fabric.live_objects(), before, "nothing was under way");
    let (mut connecting, mut other, _) = trap.lure(&victim);
    other.say(&frame(PLAN, &trap.plan(&end)));
    until(|| {
        assert!(connecting.try_now().unwrap().is_none());
        other.hear::<Endpoint>(ENDPOINT)
    });
    drop((besieged, connecting));
    until(|| (line.has_ended() && other.has_ended()).then_some(()));
    drop((line, other, end, trap, victim));
    stage.end();
}

#[test]
fn a_greeting_that_came_while_the_listener_was_busy_is_heard_before_room_is_made() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let device = Device::open(&stage.fabric);
    let hello = frame(HELLO, &device.hello(besieged.cookie()));
    let mut good = Line::call(besieged.address());
    besieged.nothing_happens();
    good.say(&hello);
    // The listener is not asked for longer than a greeting may take, and strangers come in numbers.
    let strangers: Vec<Line> = (0..300).map(|_| Line::call(besieged.address())).collect();
    std::thread::sleep(Duration::from_millis(1200));
    until(|| {
        assert!(besieged.listener.accept().try_now().unwrap().is_none());
        assert!(!good.has_ended(), "it was taken for a stranger");
        good.hear::<Plan>(PLAN)
    });
    drop((strangers, good));
    besieged.failure();
    drop(device);
    drop(besieged);
    stage.end();
}
