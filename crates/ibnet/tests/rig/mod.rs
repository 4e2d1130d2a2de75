//! Ends of connections on a fabric of their own, for all tests of the transport on the simulator.
#![allow(dead_code, reason = "each program of tests uses a part of it")]

pub(crate) mod executor;
pub(crate) mod log;

use std::time::{Duration, Instant};

use ibnet::{
    Buffer, Config, ConnectOptions, Connecting, Error, ListenOptions, Listener, RecvConnection,
    SendConnection, Transport, Wait,
};
use ibnet_simverbs::{DeviceSpec, Fabric};
use ibnet_verbs::Library;

/// Anything longer is a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Long enough for a thread that polls to be found out.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

/// Devices `s0`, `s1`, … for the sender and `r0`, `r1`, … for the receiver.
pub(crate) fn fabric(senders: usize, receivers: usize) -> Fabric {
    build(roce("s", senders).chain(roce("r", receivers)))
}

pub(crate) fn build(devices: impl IntoIterator<Item = DeviceSpec>) -> Fabric {
    let builder = devices
        .into_iter()
        .fold(Fabric::builder(), |builder, spec| builder.device(spec));
    builder.trace().build().unwrap()
}

pub(crate) fn roce(side: &str, count: usize) -> impl Iterator<Item = DeviceSpec> {
    (0..count).map(move |index| DeviceSpec::roce(format!("{side}{index}")))
}

/// Settings for any host: connections are made through the loop-back interface.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.interfaces = "=lo".parse().unwrap();
    config
}

/// A transport on all devices of a fabric.
pub(crate) fn transport(fabric: &Fabric) -> Transport {
    Transport::with_library(fabric.library(), config()).unwrap()
}

/// One end: its transport, and its device, which is a virtual one if it is made of several.
pub(crate) struct End {
    pub(crate) transport: Transport,
    pub(crate) device: usize,
}

impl End {
    /// On all devices whose name begins with `side`.
    pub(crate) fn open(fabric: &Fabric, side: &str, set: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        set(&mut config);
        Self::with(fabric, side, config)
    }

    /// The same, as these variables of an environment say.
    pub(crate) fn of_variables(fabric: &Fabric, side: &str, variables: &[(&str, &str)]) -> Self {
        let config = Config::from_variables(&|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        Self::with(fabric, side, config.unwrap())
    }

    fn with(fabric: &Fabric, side: &str, mut config: Config) -> Self {
        if let Some(sysfs) = fabric.sysfs_root() {
            config.sysfs = sysfs.to_owned();
        }
        Self::of_library(fabric.library(), side, config)
    }

    /// On all devices of a library whose name begins with `side`.
    pub(crate) fn of_library(library: Library, side: &str, mut config: Config) -> Self {
        config.hca = side.parse().unwrap();
        config.interfaces = "=lo".parse().unwrap();
        let transport = Transport::with_library(library, config).unwrap();
        let all: Vec<usize> = (0..transport.devices().len()).collect();
        let device = transport.merge(&all).unwrap();
        Self { transport, device }
    }

    pub(crate) fn listen(&self) -> Listener {
        self.transport.listen(self.device).unwrap()
    }

    pub(crate) fn connect(&self, listener: &Listener) -> Connecting {
        self.connect_with(listener, ConnectOptions::default())
    }

    pub(crate) fn connect_with(&self, listener: &Listener, options: ConnectOptions) -> Connecting {
        let handle = listener.handle();
        self.transport
            .connect(self.device, &handle, options)
            .unwrap()
    }
}

/// Both ends on all devices, with the same settings.
pub(crate) fn ends(fabric: &Fabric, set: impl Fn(&mut Config)) -> (End, End) {
    (End::open(fabric, "s", &set), End::open(fabric, "r", &set))
}

/// A connection that must come to stand.
pub(crate) fn join(sender: &End, receiver: &End) -> (SendConnection, RecvConnection) {
    join_with(sender, receiver, ConnectOptions::default())
}

/// The same, with what the sender's application asks for.
pub(crate) fn join_with(
    sender: &End,
    receiver: &End,
    options: ConnectOptions,
) -> (SendConnection, RecvConnection) {
    let mut listener = receiver.listen();
    established(sender.connect_with(&listener, options), &mut listener)
}

/// Which of the two ends wait rather than poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notify {
    pub(crate) sender: bool,
    pub(crate) receiver: bool,
}

pub(crate) const BOTH: Notify = Notify {
    sender: true,
    receiver: true,
};

/// A connection between two devices of one transport.
pub(crate) fn join_devices(
    transport: &Transport,
    [from, to]: [usize; 2],
    notify: Notify,
) -> (SendConnection, RecvConnection) {
    let options = ListenOptions::default().notify(notify.receiver);
    let mut listener = transport.listen_with(to, options).unwrap();
    let options = ConnectOptions::default().notify(notify.sender);
    let connecting = transport.connect(from, &listener.handle(), options);
    established(connecting.unwrap(), &mut listener)
}

/// The same from device 0 to device 1.
pub(crate) fn join_notified(
    transport: &Transport,
    notify: Notify,
) -> (SendConnection, RecvConnection) {
    join_devices(transport, [0, 1], notify)
}

/// A connection with both ends as they are by default.
pub(crate) fn connection(fabric: &Fabric) -> (SendConnection, RecvConnection) {
    let (sender, receiver) = ends(fabric, |_| {});
    join(&sender, &receiver)
}

/// How an attempt ends at each end. The listener may have nothing to tell, if the client failed
/// before it had shown that it is no stranger.
pub(crate) type Outcome = (
    Result<SendConnection, Error>,
    Option<Result<RecvConnection, Error>>,
);

/// An attempt to connect.
pub(crate) fn try_join(sender: &End, receiver: &End) -> Outcome {
    let mut listener = receiver.listen();
    attempt(sender.connect(&listener), &mut listener)
}

/// Both ends of a handshake that must come to stand.
pub(crate) fn established(
    connecting: Connecting,
    listener: &mut Listener,
) -> (SendConnection, RecvConnection) {
    let (sending, receiving) = attempt(connecting, listener);
    (sending.unwrap(), receiving.unwrap().unwrap())
}

/// Polls both ends of a handshake until it has ended.
pub(crate) fn attempt(mut connecting: Connecting, listener: &mut Listener) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    let (mut sending, mut receiving) = (None, None);
    let mut polls_after_failure = 0;
    loop {
        assert!(Instant::now() < deadline, "the handshake hangs");
        if sending.is_none() {
            sending = connecting.try_now().transpose();
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now().transpose();
        }
        match (&sending, &receiving) {
            (Some(_), Some(_)) => break,
            (Some(Err(_)), None) if polls_after_failure > 1000 => break,
            (Some(Err(_)), None) => polls_after_failure += 1,
            _ => {}
        }
    }
    (sending.unwrap(), receiving)
}

/// A buffer of the sender's, filled with `byte`.
pub(crate) fn filled(sending: &SendConnection, size: usize, byte: u8) -> Buffer {
    let mut buffer = sending.registrar().buffer(size).unwrap();
    buffer.fill(byte);
    buffer
}

/// A buffer of the sender's with these bytes.
pub(crate) fn sent(sending: &SendConnection, bytes: &[u8]) -> Buffer {
    let mut buffer = sending.registrar().buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

/// A buffer of the receiver's with room for 64 bytes.
pub(crate) fn space(receiving: &RecvConnection) -> Buffer {
    receiving.registrar().buffer(64).unwrap()
}

/// Moves a message of `size` bytes into a buffer of `room`, and checks it.
pub(crate) fn message(
    sending: &mut SendConnection,
    receiving: &mut RecvConnection,
    size: usize,
    room: usize,
) {
    let buffer = receiving.registrar().buffer(room).unwrap();
    let receive = receiving.recv(buffer, 0).wait().unwrap();
    let send = sending.send(filled(sending, size, 0x5a), 0).wait().unwrap();
    let arrived = receiving.finish(receive).wait().unwrap();
    assert_eq!(arrived.len(), size.min(room));
    assert!(arrived.iter().all(|byte| *byte == 0x5a));
    sending.finish(send).wait().unwrap();
}

/// Repeats `attempt` until it gives something.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::yield_now();
    }
}

/// Those of a device's queue pairs that lead back to themselves.
pub(crate) fn flushing(hca: &ibnet_simverbs::Hca) -> Vec<ibnet_simverbs::QueuePairView> {
    let mut all = hca.queue_pairs();
    all.retain(|view| view.attributes.remote_qp == view.number);
    all
}

/// Call when everything was closed.
pub(crate) fn expect_nothing_left(fabric: &Fabric) {
    let left = fabric.live_objects();
    assert!(left.is_empty(), "left behind: {left:?}");
}
