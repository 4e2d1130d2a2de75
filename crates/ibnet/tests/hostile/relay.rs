//! A relay in the middle, between a client and a listener that are both ours: slow, cutting
//! the line, and keeping what was said to say it again.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ibnet::{ConnectOptions, Connecting, Error, RecvConnection, SendConnection, Wait};

use crate::rogue::Line;
use crate::stage::{Besieged, Stage, exchange, handle, recv_failure, says, until};

/// Passes bytes on.
struct Relay {
    socket: TcpListener,
    to: SocketAddr,
    /// Client's side and listener's side.
    lines: Option<[TcpStream; 2]>,
    /// What the client and the listener have said.
    said: [Vec<u8>; 2],
}

impl Relay {
    fn before(besieged: &Besieged) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            to: besieged.address(),
            lines: None,
            said: [Vec::new(), Vec::new()],
        }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Passes on at most one byte in each direction.
    fn pass(&mut self) {
        if self.lines.is_none() {
            let Ok((client, _)) = self.socket.accept() else {
                return;
            };
            let lines = [client, TcpStream::connect(self.to).unwrap()];
            for line in &lines {
                line.set_nonblocking(true).unwrap();
                line.set_nodelay(true).unwrap();
            }
            self.lines = Some(lines);
        }
        for from in [0, 1] {
            let Some(lines) = &mut self.lines else { return };
            let mut byte = [0];
            match lines[from].read(&mut byte) {
                Ok(1) => {
                    self.said[from].push(byte[0]);
                    let _ = lines[1 - from].write_all(&byte);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => self.lines = None,
            }
        }
    }

    fn passed(&self) -> usize {
        self.said[0].len() + self.said[1].len()
    }
}

/// A client that goes through the relay.
fn connect(stage: &Stage, besieged: &Besieged, relay: &Relay) -> Connecting {
    let client = stage.open("evil", |_| {});
    let handle = handle(relay.address(), besieged.cookie());
    client
        .connect(0, &handle, ConnectOptions::default())
        .unwrap()
}

/// Both ends through the relay until each has its connection; gives what was said, too.
fn through(
    stage: &Stage,
    besieged: &mut Besieged,
    pause: impl Fn(usize),
) -> (SendConnection, RecvConnection, Relay) {
    let mut relay = Relay::before(besieged);
    let mut connecting = connect(stage, besieged, &relay);
    let (mut sending, mut receiving) = (None, None);
    until(|| {
        relay.pass();
        pause(relay.passed());
        if sending.is_none() {
            sending = connecting.try_now().unwrap();
        }
        if receiving.is_none() {
            receiving = besieged.listener.accept().try_now().unwrap();
        }
        (sending.is_some() && receiving.is_some()).then_some(())
    });
    (sending.unwrap(), receiving.unwrap(), relay)
}

#[test]
fn a_byte_at_a_time_with_pauses_is_a_connection_all_the_same() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let pause = |passed| {
        if passed % 40 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    };
    let (sending, receiving, relay) = through(&stage, &mut besieged, pause);
    // Others are served between two bytes.
    besieged.serves();
    exchange(sending, receiving);
    drop(relay);
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn cut_after_any_byte_it_is_an_error_at_both_ends() {
    // Pitfalls 34 and 35: whatever was made by then is gone.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let (sending, receiving, relay) = through(&stage, &mut besieged, |_| {});
    // Some numbers are random and may be shorter or longer the next time.
    let nearly_all = relay.passed() - 16;
    exchange(sending, receiving);
    drop(relay);
    let before = stage.fabric.live_objects();
    // And when the listener's end stands, and its last word has not arrived.
    let cuts = (1..nearly_all).map(Some).chain([None]);
    for cut in cuts {
        let mut relay = Relay::before(&besieged);
        let mut connecting = connect(&stage, &besieged, &relay);
        let mut accepted = None;
        while cut.map_or_else(|| accepted.is_none(), |cut| relay.passed() < cut) {
            relay.pass();
            assert!(connecting.try_now().unwrap().is_none());
            if accepted.is_none() {
                accepted = besieged.listener.accept().try_now().unwrap();
            }
        }
        relay.lines = None;
        let peer = relay.address().to_string();
        // Nor can anybody call again.
        drop(relay.socket);
        let error: Error = until(|| match connecting.try_now() {
            Err(error) => Some(error),
            Ok(connected) => {
                assert!(connected.is_none(), "connected after {cut:?} bytes");
                None
            }
        });
        says(&error, &[&peer]);
        drop((connecting, accepted));
        until(|| {
            // A client that was known by then has failed by its own name.
            match besieged.listener.accept().try_now() {
                Ok(connection) => assert!(connection.is_none()),
                Err(error) => says(&error, &["accepting 127.0.0.1", "on real"]),
            }
            (stage.fabric.live_objects() == before).then_some(())
        });
    }
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn what_was_said_before_is_no_way_in() {
    // An attacker has listened to a whole handshake and says the client's words again. The cookie
    // is right, so the listener plans; but the queue pair that these words name is gone, or another
    // client's, which only listens to its own peer.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let (sending, receiving, relay) = through(&stage, &mut besieged, |_| {});
    let words = relay.said[0].clone();
    let before = stage.fabric.live_objects();

    let mut line = Line::call(besieged.address());
    line.say(&words);
    let mut replayed = until(|| besieged.listener.accept().try_now().unwrap());
    let error = recv_failure(&mut replayed);
    says(&error, &["evil:1", &line.name(), "did not answer"]);
    drop((line, replayed));
    assert_eq!(stage.fabric.live_objects(), before);

    // The first client has noticed nothing.
    exchange(sending, receiving);
    drop(relay);

    // Now its queue pair is gone, too.
    let mut line = Line::call(besieged.address());
    line.say(&words);
    let mut replayed = until(|| besieged.listener.accept().try_now().unwrap());
    says(
        &recv_failure(&mut replayed),
        &["evil:1", &line.name(), "did not answer"],
    );
    drop((line, replayed));

    // To another listener, even of the same process, they are a stranger's.
    let mut other = stage.listen();
    let mut line = Line::call(other.address());
    line.say(&words);
    until(|| {
        assert!(other.listener.accept().try_now().unwrap().is_none());
        line.has_ended().then_some(())
    });
    assert!(line.listen().is_empty());
    drop((line, other));
    besieged.serves();
    drop(besieged);
    stage.end();
}
