//! Futures that are dropped before their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use ibnet::{ConnectOptions, ListenOptions, RecvConnection, Transport, Wait};

use crate::rig::executor::{both, poll_once, run};
use crate::rig::{BOTH, fabric, join_notified, sent, space, transport};

#[test]
fn what_was_not_posted_is_given_back() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let buffer = sent(&sending, b"not yet");
    let mut posting = sending.send(buffer, 0);
    poll_once(&mut posting);
    let buffer = posting.into_inner().unwrap();
    assert_eq!(sending.outstanding(), 0);

    let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
    let (send, _) = run(sending.send(buffer, 0));
    let (message, _) = run(receiving.finish(ticket));
    assert_eq!(message.unwrap()[..], *b"not yet");
    sending.finish(send.unwrap()).wait().unwrap();
}

#[test]
fn a_ticket_that_is_taken_out_is_as_good_as_before() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
    let mut waiting = receiving.finish(ticket);
    poll_once(&mut waiting);
    let ticket = waiting.into_inner().unwrap();
    let mut waiting = receiving.finish(ticket);
    poll_once(&mut waiting);
    let ticket = waiting.into_inner().unwrap();
    let send = sending
        .send(sent(&sending, b"after all"), 0)
        .wait()
        .unwrap();
    let (message, _) = run(receiving.finish(ticket));
    assert_eq!(message.unwrap()[..], *b"after all");

    let mut waiting = sending.finish(send);
    // It is done already, perhaps; the ticket then was used up.
    let is_done = {
        let mut context = Context::from_waker(Waker::noop());
        std::pin::Pin::new(&mut waiting)
            .poll(&mut context)
            .is_ready()
    };
    assert_eq!(waiting.into_inner().is_none(), is_done);
}

#[test]
fn requests_whose_futures_were_dropped_go_on_and_make_room() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let regions = fabric.live_objects().mrs;
    // More than the table of requests holds.
    for round in 0..600_u32 {
        let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
        poll_once(&mut receiving.finish(ticket));
        let send = sending.send(sent(&sending, &round.to_le_bytes()), 0).wait();
        if round % 2 == 0 {
            drop(sending.finish(send.unwrap()));
        } else {
            sending.finish(send.unwrap()).wait().unwrap();
        }
    }
    // The messages of the abandoned receives were taken, each by its own: this one is not theirs.
    let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
    let send = sending.send(sent(&sending, b"mine"), 0).wait().unwrap();
    let (message, _) = run(receiving.finish(ticket));
    assert_eq!(message.unwrap()[..], *b"mine");
    sending.finish(send).wait().unwrap();
    // Their buffers were freed, but for those that the last call may have found unfinished.
    assert!(fabric.live_objects().mrs < regions + 20);
    assert!(receiving.outstanding() < 20 && sending.outstanding() < 20);
}

#[test]
fn an_accept_that_is_dropped_loses_no_client() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let mut listener = transport
        .listen_with(1, ListenOptions::default().notify(true))
        .unwrap();
    let mut connecting = transport
        .connect(
            0,
            &listener.handle(),
            ConnectOptions::default().notify(true),
        )
        .unwrap();
    // The client is let in and greets; then who accepts is gone for a while.
    poll_once(&mut listener.accept());
    assert!(connecting.try_now().unwrap().is_none());
    poll_once(&mut listener.accept());
    let (accepted, _) = run(both(connecting, listener.accept()));
    assert!(accepted.0.is_ok() && accepted.1.is_ok());
}

/// Drops everything when it is woken, as a runtime that shuts down may do with its tasks.
struct DropsAll {
    all: Mutex<Option<(RecvConnection, Transport)>>,
    is_done: AtomicBool,
}

impl Wake for DropsAll {
    fn wake(self: Arc<Self>) {
        let all = self.all.lock().unwrap().take();
        drop(all);
        // Not reached if that panics.
        self.is_done.store(true, Ordering::Release);
    }
}

#[test]
fn a_waker_may_drop_the_last_user_of_the_transport() {
    let fabric = fabric(4, 0);
    for is_by_completion in [true, false] {
        let transport = transport(&fabric);
        let sender_transport = crate::rig::transport(&fabric);
        let mut listener = transport
            .listen_with(1, ListenOptions::default().notify(true))
            .unwrap();
        let connecting = sender_transport
            .connect(
                0,
                &listener.handle(),
                ConnectOptions::default().notify(true),
            )
            .unwrap();
        let ((sending, receiving), _) = run(both(connecting, listener.accept()));
        let (mut sending, mut receiving) = (sending.unwrap(), receiving.unwrap());
        drop(listener);

        let waker = Arc::new(DropsAll {
            all: Mutex::new(None),
            is_done: AtomicBool::new(false),
        });
        let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
        let mut waiting = receiving.finish(ticket);
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            std::pin::Pin::new(&mut waiting)
                .poll(&mut context)
                .is_pending()
        );
        let as_waker = Waker::from(Arc::clone(&waker));
        let mut context = Context::from_waker(&as_waker);
        assert!(
            std::pin::Pin::new(&mut waiting)
                .poll(&mut context)
                .is_pending()
        );
        drop(waiting);
        *waker.all.lock().unwrap() = Some((receiving, transport));

        if is_by_completion {
            let send = sending.send(sent(&sending, b"x"), 0).wait().unwrap();
            // It may have arrived when the receiver leaves, or not.
            let _ = sending.finish(send).wait();
        } else {
            sending.close().unwrap();
        }
        // Everything of the receiver's transport is gone, and its thread has not hung or panicked.
        let deadline = Instant::now() + crate::rig::PATIENCE;
        while fabric.live_objects().contexts > 4 || !waker.is_done.load(Ordering::Acquire) {
            assert!(Instant::now() < deadline, "the transport lives on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
