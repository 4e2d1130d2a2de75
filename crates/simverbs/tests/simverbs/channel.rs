//! Completion channels: being told of completions.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ibnet_simverbs::When;
use ibnet_verbs::{CompletionChannel, RecvRequest, SendRequest, WcStatus};

use crate::pairs::{End, Setup, open_all, two_roce};

/// A pair whose receiver has a channel.
fn pair() -> (ibnet_simverbs::Fabric, End, End, CompletionChannel) {
    let fabric = two_roce().build().unwrap();
    let contexts = open_all(&fabric);
    let setup = Setup::default();
    let channel = contexts[1].create_channel().unwrap();
    let cq = contexts[1].create_cq_with_channel(64, &channel).unwrap();
    let (a, b) = (
        End::new(&contexts[0], &setup),
        End::with_cq(&contexts[1], &setup, &cq),
    );
    a.connect_to(&b, &setup).unwrap();
    b.connect_to(&a, &setup).unwrap();
    b.receive(&mut [RecvRequest::new(1); 8]).unwrap();
    (fabric, a, b, channel)
}

fn is_readable(channel: &CompletionChannel) -> bool {
    let mut poll = libc::pollfd {
        fd: channel.fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the argument is one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

fn send(a: &End) {
    a.send(&mut [SendRequest::send(1, None)]).unwrap();
}

#[test]
fn a_weaker_request_does_not_weaken_an_earlier_one() {
    let (_fabric, a, b, channel) = pair();
    b.cq.request_notification(false).unwrap();
    b.cq.request_notification(true).unwrap();
    send(&a);
    drop(channel.next_event().unwrap().unwrap());
    // What is posted to a queue pair that has failed is flushed at once.
    b.qp.to_error().unwrap();
    b.cq.request_notification(false).unwrap();
    b.receive(&mut [RecvRequest::new(9)]).unwrap();
    drop(channel.next_event().unwrap().unwrap());
    assert_eq!(b.outcomes().last(), Some(&(9, WcStatus::WR_FLUSH_ERR)));
}

#[test]
fn a_notification_can_be_lost() {
    let (fabric, a, b, channel) = pair();
    let fault = fabric.faults().lose_notifications("sim1", When::Nth(2));
    for is_told in [true, false, true] {
        b.cq.request_notification(false).unwrap();
        send(&a);
        assert_eq!(channel.next_event().unwrap().is_some(), is_told);
    }
    assert_eq!(fault.struck(), 1);
    assert_eq!(b.outcomes().len(), 3);
}

#[test]
fn a_queue_is_not_destroyed_before_its_events_are_acknowledged() {
    let (_fabric, a, b, channel) = pair();
    b.cq.request_notification(false).unwrap();
    send(&a);
    let event = channel.next_event().unwrap().unwrap();
    let is_acknowledged = AtomicBool::new(false);
    thread::scope(|scope| {
        let destroyer = scope.spawn(|| {
            drop(b);
            assert!(is_acknowledged.load(Ordering::SeqCst), "it did not wait");
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!destroyer.is_finished());
        is_acknowledged.store(true, Ordering::SeqCst);
        drop(event);
        destroyer.join().unwrap();
    });
}

#[test]
fn waiters_are_woken_when_the_device_is_removed() {
    let (fabric, _a, _b, channel) = pair();
    assert!(channel.next_event().unwrap().is_none());
    fabric.hca("sim1").unwrap().remove();
    assert!(is_readable(&channel));
    assert_eq!(channel.next_event().unwrap_err().errno(), Some(libc::EIO));
}

/// Without polling, a timer has to be fired.
#[test]
fn a_sleeper_is_woken_by_a_completion_that_waited_for_a_timer() {
    let (fabric, a, b, channel) = pair();
    let delay = Duration::from_millis(20);
    let fault = fabric.faults().delay_completions("sim1", delay..=delay);
    b.cq.request_notification(false).unwrap();
    send(&a);
    assert_eq!(fault.struck(), 1);
    let mut poll = libc::pollfd {
        fd: channel.fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the argument is one valid entry.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 20_000) }, 1);
    drop(channel.next_event().unwrap().unwrap());
    assert_eq!(b.outcomes().len(), 1);
}

/// The thread that fires timers does not keep the fabric.
#[test]
fn the_fabric_ends_with_its_last_user() {
    let (fabric, a, b, channel) = pair();
    let library = fabric.library();
    drop((fabric, a, b, channel));
    let start = std::time::Instant::now();
    while !library.devices().unwrap().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the fabric lives on"
        );
        thread::yield_now();
    }
}
