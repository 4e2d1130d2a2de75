//! The scene of a test: a fabric, transports on it, and what was there before.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ibnet::{
    Config, ConnectOptions, Connecting, Error, Handle, Listener, RecvConnection, SendConnection,
    Transport, Wait,
};
use ibnet_simverbs::{DeviceSpec, Fabric, LiveObjects};

use crate::rig::log::Log;
use crate::rig::{End, build, established, eventually};

/// Three devices: `real` of the end under attack, `good` of a client that behaves, `evil` of the
/// attacker. One test at a time, because the process's descriptors are counted.
pub(crate) struct Stage {
    pub(crate) fabric: Fabric,
    before: Traces,
    _only: MutexGuard<'static, ()>,
}

/// What a process leaves behind when it forgets something.
#[derive(Debug)]
struct Traces {
    descriptors: usize,
    events_threads: usize,
}

impl Traces {
    fn now() -> Self {
        let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            events_threads: tasks
                .filter_map(|task| of_task(task.unwrap()).ok())
                .filter(|name| name.trim() == "ibnet-events")
                .count(),
        }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Log::of_process().take();
        let before = Traces::now();
        let devices = ["real", "good", "evil"].map(DeviceSpec::roce);
        Self {
            fabric: build(devices),
            before,
            _only: only,
        }
    }

    /// A transport on one device. A queue pair without a peer is given up after some
    /// milliseconds.
    pub(crate) fn open(&self, device: &str, change: impl FnOnce(&mut Config)) -> Transport {
        let set = |config: &mut Config| {
            config.connect_timeout = Some(Duration::from_secs(10));
            config.ack_timeout = Some(Duration::from_millis(4));
            config.retry_count = 1;
            change(config);
        };
        End::open(&self.fabric, device, set).transport
    }

    /// A listener on the device under attack, and a client that behaves.
    pub(crate) fn listen(&self) -> Besieged {
        let good = self.open("good", |_| {});
        let listener = self.open("real", |_| {}).listen(0).unwrap();
        Besieged {
            before: self.fabric.live_objects(),
            fabric: self.fabric.clone(),
            listener,
            good,
        }
    }

    /// After everything was dropped: nothing is left.
    pub(crate) fn end(self) {
        let left = self.fabric.live_objects();
        assert!(left.is_empty(), "left on the devices: {left:?}");
        drop(self.fabric);
        let now = Traces::now();
        // There may be fewer: what the test before has dropped closes a little later.
        let is_clean = now.descriptors <= self.before.descriptors
            && now.events_threads <= self.before.events_threads;
        assert!(
            is_clean,
            "left in the process: {now:?}, before {:?}",
            self.before
        );
    }
}

/// A listener with enemies.
pub(crate) struct Besieged {
    pub(crate) listener: Listener,
    good: Transport,
    fabric: Fabric,
    before: LiveObjects,
}

impl Besieged {
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.handle().address()
    }

    /// The secret, from where the handle's description says that it is.
    pub(crate) fn cookie(&self) -> [u8; 16] {
        self.listener.handle().to_bytes()[28..44]
            .try_into()
            .unwrap()
    }

    /// Polls until a client has failed; others may connect meanwhile.
    pub(crate) fn failure(&mut self) -> Error {
        until(|| self.listener.accept().try_now().err())
    }

    /// Polls a few times more; no client may connect or fail.
    pub(crate) fn nothing_happens(&mut self) {
        for _ in 0..10 {
            assert!(self.listener.accept().try_now().unwrap().is_none());
        }
    }

    /// The attack has left nothing, and a good client is served as ever.
    pub(crate) fn is_unharmed(&mut self) {
        assert_eq!(self.fabric.live_objects(), self.before, "something is left");
        self.serves();
        assert_eq!(self.fabric.live_objects(), self.before, "something is left");
    }

    /// A good client connects and sends a message.
    pub(crate) fn serves(&mut self) {
        let handle = self.listener.handle();
        let connecting = self.good.connect(0, &handle, ConnectOptions::default());
        let (sending, receiving) = established(connecting.unwrap(), &mut self.listener);
        exchange(sending, receiving);
    }
}

/// Sends a message, and closes.
pub(crate) fn exchange(mut sending: SendConnection, mut receiving: RecvConnection) {
    let buffer = receiving.registrar().buffer(100).unwrap();
    let receive = receiving.recv(buffer, 7).wait().unwrap();
    let mut buffer = sending.registrar().buffer(5).unwrap();
    buffer.copy_from_slice(b"hello");
    let send = sending.send(buffer, 7).wait().unwrap();
    assert_eq!(&receiving.finish(receive).wait().unwrap()[..], b"hello");
    sending.finish(send).wait().unwrap();
    sending.close().unwrap();
    receiving.close().unwrap();
}

/// Polls a connection in the making until it has failed.
pub(crate) fn connect_failure(connecting: &mut Connecting) -> Error {
    until(|| match connecting.try_now() {
        Ok(None) => None,
        Ok(Some(_)) => panic!("connected"),
        Err(error) => Some(error),
    })
}

/// Sends until the connection has failed.
pub(crate) fn send_failure(sending: &mut SendConnection) -> Error {
    let mut tickets = Vec::new();
    until(|| {
        let buffer = sending.registrar().buffer(8).unwrap();
        match sending.send(buffer, 7).try_now() {
            Ok(ticket) => tickets.extend(ticket),
            Err(failed) => return Some(failed.error),
        }
        if tickets.is_empty() {
            return None;
        }
        let failed = sending.finish_any(&mut tickets).try_now().err();
        failed.map(|failed| failed.error)
    })
}

/// Receives until the connection has failed.
pub(crate) fn recv_failure(receiving: &mut RecvConnection) -> Error {
    let buffer = receiving.registrar().buffer(100).unwrap();
    let ticket = match receiving.recv(buffer, 7).wait() {
        Ok(ticket) => ticket,
        Err(failed) => return failed.error,
    };
    let mut receive = receiving.finish(ticket);
    until(|| match receive.try_now() {
        Ok(Some(_)) => panic!("a message arrived"),
        Ok(None) => None,
        Err(failed) => Some(failed.error),
    })
}

/// A handle for a listener elsewhere, from its description.
pub(crate) fn handle(address: SocketAddr, cookie: [u8; 16]) -> Handle {
    let SocketAddr::V4(v4) = address else {
        panic!("{address} is not IPv4")
    };
    let mut bytes = [0; Handle::SIZE];
    bytes[..4].copy_from_slice(b"IBNT");
    bytes[4..6].copy_from_slice(&[2, 4]);
    bytes[6..8].copy_from_slice(&v4.port().to_be_bytes());
    bytes[8..12].copy_from_slice(&v4.ip().octets());
    bytes[28..44].copy_from_slice(&cookie);
    Handle::from_bytes(&bytes).unwrap()
}

/// Asks again and again.
pub(crate) fn until<T>(ask: impl FnMut() -> Option<T>) -> T {
    eventually("what is waited for", ask)
}

/// The error says all of this.
#[track_caller]
pub(crate) fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
