//! Two devices, connections between them, and an executor that counts how often it polls.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ibnet::{
    Buffer, Config, ConnectOptions, ListenOptions, RecvConnection, SendConnection, Transport, Wait,
};
use ibnet_simverbs::{DeviceSpec, Fabric};

/// Nothing here takes that long unless somebody is not woken.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Long enough for somebody who polls to be found out.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

pub(crate) fn fabric() -> Fabric {
    ["sim0", "sim1", "sim2", "sim3"]
        .into_iter()
        .fold(Fabric::builder(), |builder, name| {
            builder.device(DeviceSpec::roce(name))
        })
        .build()
        .unwrap()
}

pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.interfaces = "=lo".parse().unwrap();
    config
}

pub(crate) fn transport(fabric: &Fabric) -> Transport {
    Transport::with_library(fabric.library(), config()).unwrap()
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

/// A connection from device 0 to device 1.
pub(crate) fn connect(transport: &Transport, notify: Notify) -> (SendConnection, RecvConnection) {
    connect_devices(transport, [0, 1], notify)
}

pub(crate) fn connect_devices(
    transport: &Transport,
    [from, to]: [usize; 2],
    notify: Notify,
) -> (SendConnection, RecvConnection) {
    let mut listener = transport
        .listen_with(to, listen_options(notify.receiver))
        .unwrap();
    let options = connect_options(notify.sender);
    let mut connecting = transport
        .connect(from, &listener.handle(), options)
        .unwrap();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().wait_for(LIMIT).unwrap().unwrap());
        let connected = connecting.wait_for(LIMIT).unwrap().unwrap();
        (connected, accepted.join().unwrap())
    })
}

pub(crate) fn listen_options(notify: bool) -> ListenOptions {
    ListenOptions::default().notify(notify)
}

pub(crate) fn connect_options(notify: bool) -> ConnectOptions {
    ConnectOptions::default().notify(notify)
}

pub(crate) fn sent(sending: &SendConnection, bytes: &[u8]) -> Buffer {
    let mut buffer = sending.registrar().buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

pub(crate) fn space(receiving: &RecvConnection) -> Buffer {
    receiving.registrar().buffer(64).unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread: what it gave, and how often it was polled.
pub(crate) fn run<F: Future>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let deadline = Instant::now() + LIMIT;
    for polls in 1.. {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, polls),
            Poll::Pending => {
                thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                assert!(Instant::now() < deadline, "nobody was woken");
            }
        }
    }
    unreachable!("the numbers do not end")
}

/// Polls a future once, which must not be done.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut context).is_pending());
}

/// Both at once, on one thread.
pub(crate) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    std::future::poll_fn(move |context| {
        if a_done.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(context)
        {
            a_done = Some(done);
        }
        if b_done.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(context)
        {
            b_done = Some(done);
        }
        match (a_done.take(), b_done.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (a_done, b_done) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
