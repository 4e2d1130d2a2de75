//! A late peer is not a dead peer: a connection comes to stand however long one of the programs is busy with
//! something else, and the log says who waits for whom.
#![allow(clippy::unwrap_used)]

#[path = "hostile/log.rs"]
mod log;

use std::thread;
use std::time::{Duration, Instant};

use ibnet::{Config, ConnectOptions, Connecting, InterfaceFilter, Listener, Transport};
use simverbs::{DeviceSpec, Fabric};

/// The limit that every step once had, and a little more.
const LATE: Duration = Duration::from_secs(61);

/// A connection in the making.
struct Attempt {
    listener: Listener,
    connecting: Connecting,
    sending: bool,
    receiving: bool,
}

impl Attempt {
    fn begin(transport: &Transport) -> Self {
        let listener = transport.listen(1).unwrap();
        let options = ConnectOptions::default();
        let connecting = transport.connect(0, &listener.handle(), options).unwrap();
        Self {
            listener,
            connecting,
            sending: false,
            receiving: false,
        }
    }

    fn poll_sender(&mut self) {
        if !self.sending {
            self.sending = self.connecting.poll().unwrap().is_some();
        }
    }

    fn poll_receiver(&mut self) {
        if !self.receiving {
            self.receiving = self.listener.poll_accept().unwrap().is_some();
        }
    }

    fn address(&self) -> String {
        self.listener.handle().address().to_string()
    }
}

#[test]
fn whoever_is_late_is_waited_for() {
    // Pitfall 37: a deadline for what only the libraries do would also hit a program that is busy.
    log::begin();
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("s0"))
        .device(DeviceSpec::roce("r0"))
        .build()
        .unwrap();
    let mut config = Config::default();
    config.interfaces = InterfaceFilter::parse("=lo");
    // More than a few polls make: so that there is a middle of the handshake.
    config.queue_pairs = 64;
    let transport = Transport::with_library(fabric.library(), config).unwrap();

    // The listener's program has not called accept.
    let mut unaccepted = Attempt::begin(&transport);
    // Neither end is asked for again in the middle of it, then one, then the other.
    let mut middle = [(); 2].map(|()| Attempt::begin(&transport));
    for attempt in &mut middle {
        for _ in 0..3 {
            attempt.poll_sender();
            attempt.poll_receiver();
        }
        assert!(!attempt.sending && !attempt.receiving);
    }
    // No peer has come.
    let mut lonely = transport.listen(1).unwrap();

    let begun = Instant::now();
    while begun.elapsed() < LATE {
        unaccepted.poll_sender();
        middle[0].poll_sender();
        middle[1].poll_receiver();
        assert!(lonely.poll_accept().unwrap().is_none());
        thread::sleep(Duration::from_millis(5));
    }
    let lines = log::take();
    let said = |words: &[&str]| {
        let lines = lines
            .iter()
            .filter(|line| words.iter().all(|word| line.contains(word)));
        lines.count()
    };
    // After 10, 30 and 70 s from the beginning.
    let plan = "for the listener's plan";
    let address = unaccepted.address();
    let connecting = ["connecting s0", &address, plan];
    assert_eq!(said(&connecting), 2, "{lines:?}");
    let first = [&connecting[..], &["since 10 s"]].concat();
    assert_eq!(said(&first), 1, "{lines:?}");
    assert_eq!(
        said(&["accepting", "on r0", "for the client's queue pairs"]),
        2,
        "{lines:?}"
    );
    let address = lonely.handle().address().to_string();
    assert_eq!(
        said(&["accepting on r0", "no peer has connected", &address]),
        2,
        "{lines:?}"
    );

    let [first, second] = middle;
    for mut attempt in [unaccepted, first, second] {
        while !(attempt.sending && attempt.receiving) {
            assert!(
                begun.elapsed() < LATE + Duration::from_secs(30),
                "no connection"
            );
            attempt.poll_sender();
            attempt.poll_receiver();
        }
    }
}
