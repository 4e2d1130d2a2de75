//! Ends that are late: once they know each other neither gives up while the TCP connection lives.

use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ibnet::{Connecting, Listener, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{Fabric, Verb, When};
use ibnet_verbs::QueuePairState;
use tracing::Level;
use tracing::subscriber::with_default;

use crate::rig::log::Log;
use crate::rig::{End, PATIENCE, ends, eventually, fabric, message};

/// Longer than strangers are waited for, and than a late peer once was.
const LATE: Duration = Duration::from_secs(62);

/// How far one or both ends have come when they are late, in polls: from nothing to almost all.
const POLLS: [usize; 5] = [0, 1, 2, 4, 6];

/// An attempt that takes more polls than these: there are many queue pairs to make.
struct Attempt {
    connecting: Connecting,
    listener: Listener,
    // Last: both are of these.
    _ends: (End, End),
    _fabric: Fabric,
}

impl Attempt {
    fn new() -> Self {
        let fabric = fabric(1, 1);
        let ends = ends(&fabric, |config| config.queue_pairs = 64);
        let listener = ends.1.listen();
        Self {
            connecting: ends.0.connect(&listener),
            listener,
            _ends: ends,
            _fabric: fabric,
        }
    }

    fn advance(&mut self, polls: usize) {
        for _ in 0..polls {
            assert!(self.connecting.try_now().unwrap().is_none());
            assert!(self.listener.accept().try_now().unwrap().is_none());
        }
    }

    fn address(&self) -> String {
        self.listener.handle().address().to_string()
    }

    /// Goes on on two threads, of which each begins after its pause.
    fn finish(self, connect_after: Duration, accept_after: Duration, log: &Log) {
        let Self {
            connecting,
            mut listener,
            ..
        } = self;
        thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                thread::sleep(accept_after);
                with_default(log.clone(), || accepted(&mut listener))
            });
            thread::sleep(connect_after);
            let mut sending = with_default(log.clone(), || connected(connecting));
            message(&mut sending, &mut receiving.join().unwrap(), 1000, 1000);
        });
    }
}

#[test]
fn a_late_peer_is_waited_for() {
    // Pitfall 37: a deadline for what only the libraries do would also hit a program that is busy.
    // All at the same time: this takes as long as one.
    let log = Log::of(Level::INFO);
    let log = &log;
    let mut unaccepted = Vec::new();
    thread::scope(|scope| {
        for polls in POLLS {
            for late in [(LATE, Duration::ZERO), (Duration::ZERO, LATE), (LATE, LATE)] {
                let mut attempt = Attempt::new();
                attempt.advance(polls);
                if late == (Duration::ZERO, LATE) {
                    unaccepted.push(attempt.address());
                }
                scope.spawn(move || attempt.finish(late.0, late.1, log));
            }
        }
        scope.spawn(a_driver_that_takes_long);
        scope.spawn(strangers_do_have_a_limit);
    });
    let lines = log.lines();
    let told = |words: &[&str]| {
        lines
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    for address in unaccepted {
        let who = format!("connecting s0 to the listener at {address}");
        assert!(
            told(&[&who, "waiting for the listener's", "for 10 s now"]),
            "{lines:#?}"
        );
        assert!(told(&[&who, "for 30 s now"]), "{lines:#?}");
    }
    assert!(told(&[
        "accepting 127.0.0.1:",
        "process",
        "on r0",
        "the client's queue pairs",
        "for 10 s now"
    ]));
    assert!(told(&[
        "r0 listens on 127.0.0.1:",
        "no peer has connected",
        "for 10 s now"
    ]));
}

fn connected(mut connecting: Connecting) -> SendConnection {
    let waited = connecting.wait_for(LATE + PATIENCE).unwrap();
    waited.expect("a connection at the sender")
}

fn accepted(listener: &mut Listener) -> RecvConnection {
    let waited = listener.accept().wait_for(LATE + PATIENCE).unwrap();
    waited.expect("a connection at the receiver")
}

/// `NCCL_IB_MQP_RETRY_*` beyond a minute in sum is not cut short by the other end.
fn a_driver_that_takes_long() {
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| {
        config.modify_retry_pause = Duration::from_secs(1);
    });
    // 1 + 2 + … + 11 s.
    let to_rtr = Verb::ModifyQpTo(QueuePairState::RTR);
    let refused = (1..=11).map(|nth| {
        let faults = fabric.faults();
        faults.fail_call(to_rtr, "r0", When::Nth(nth), nix::libc::ETIMEDOUT)
    });
    let refused: Vec<_> = refused.collect();
    let mut listener = receiver.listen();
    let connecting = sender.connect(&listener);
    thread::scope(|scope| {
        let receiving = scope.spawn(move || accepted(&mut listener));
        let mut sending = connected(connecting);
        message(&mut sending, &mut receiving.join().unwrap(), 1000, 1000);
    });
    assert!(refused.iter().all(|fault| fault.struck() == 1));
}

fn strangers_do_have_a_limit() {
    let fabric = fabric(1, 1);
    let (_sender, receiver) = ends(&fabric, |_| {});
    let mut listener = receiver.listen();
    let mut stranger = TcpStream::connect(listener.handle().address()).unwrap();
    assert!(listener.accept().wait_for(LATE).unwrap().is_none());
    stranger.set_nonblocking(true).unwrap();
    eventually("the end", || stranger.read(&mut [0]).ok());
}
