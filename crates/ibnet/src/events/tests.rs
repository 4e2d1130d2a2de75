//! Who is told of what, without a device.
#![allow(clippy::unwrap_used)]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;

fn pair() -> (Arc<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(one), listener.accept().unwrap().0)
}

fn wait_for(flags: &EventFlags, bits: u32) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while flags.bits() & bits == 0 {
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn data_raises_attention_once_until_rearmed() {
    let events = EventThread::start(true).unwrap();
    let (ours, mut theirs) = pair();
    let flags = Arc::new(EventFlags::default());
    let watch = events.watch_connection(&ours, &flags, Vec::new()).unwrap();
    theirs.write_all(b"x").unwrap();
    assert!(wait_for(&flags, CONTROL));
    flags.clear(CONTROL);
    let mut byte = [0];
    (&*ours).read_exact(&mut byte).unwrap();
    watch.arm(Interest::Read).unwrap();
    drop(theirs); // end of stream
    assert!(wait_for(&flags, CONTROL));
}

fn exposed(device: u64, port: Option<u8>, queue_pairs: &[u32]) -> Resources {
    Resources {
        device: DeviceToken(device),
        port,
        queue_pairs: queue_pairs.to_vec(),
        completion_queues: Vec::new(),
    }
}

fn fatal(device: u64, subject: Subject) -> Fatal {
    let device = DeviceToken(device);
    Fatal { device, subject }
}

#[test]
fn fatal_events_latch_on_whom_they_name() {
    let events = EventThread::start(true).unwrap();
    let (ours, _theirs) = pair();
    let mine = Arc::new(EventFlags::default());
    let uses = vec![exposed(5, None, &[7]), exposed(9, None, &[8])];
    let watch = events.watch_connection(&ours, &mine, uses).unwrap();
    for other in [
        fatal(6, Subject::Device),
        fatal(5, Subject::QueuePair(8)),
        fatal(9, Subject::QueuePair(7)),
    ] {
        events.shared.raise_fatal(other);
    }
    assert_eq!(mine.bits(), 0);
    assert_eq!(watch.fatal(), []);
    let hits = [fatal(5, Subject::QueuePair(7)), fatal(9, Subject::Device)];
    for hit in [hits[0], hits[0], hits[1]] {
        events.shared.raise_fatal(hit);
        assert_eq!(mine.bits(), FATAL);
        mine.clear(FATAL);
    }
    assert_eq!(watch.fatal(), hits);
    // A rebuilt path has another queue pair.
    watch.expose(vec![exposed(5, None, &[17])]);
    events.shared.raise_fatal(hits[0]);
    assert_eq!(mine.bits(), 0);
    events.shared.raise_fatal(fatal(5, Subject::QueuePair(17)));
    assert_eq!(mine.bits(), FATAL);
}

#[test]
fn who_does_not_want_events_is_not_hit() {
    let events = EventThread::start(false).unwrap();
    let (ours, _theirs) = pair();
    let mine = Arc::new(EventFlags::default());
    let uses = vec![exposed(5, None, &[7])];
    let _watch = events.watch_connection(&ours, &mine, uses).unwrap();
    let changes = Changes::new(1);
    let meaning = Meaning::Fatal(Subject::Device);
    events.shared.act(DeviceToken(5), &changes, meaning);
    assert_eq!(mine.bits(), 0);
    // What is known of it is out of date all the same.
    assert_eq!(changes.of(1), 1);
}

#[test]
fn port_events_are_for_their_port() {
    // Not for whichever port's thread happens to read them.
    let events = EventThread::start(true).unwrap();
    let (ours, _theirs) = pair();
    let mine = Arc::new(EventFlags::default());
    let uses = vec![exposed(5, Some(2), &[7])];
    let _watch = events.watch_connection(&ours, &mine, uses).unwrap();
    let changes = Changes::new(2);
    let act = |meaning| events.shared.act(DeviceToken(5), &changes, meaning);
    act(Meaning::PortChanged(1));
    assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (0, 1, 0));
    act(Meaning::PortChanged(2));
    assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (PORT, 1, 1));
    mine.clear(PORT);
    act(Meaning::DeviceChanged);
    assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (PORT, 2, 2));
    // Numbers that no port has are harmless.
    act(Meaning::PortChanged(0));
    act(Meaning::PortChanged(255));
    assert_eq!((changes.of(0), changes.of(255)), (0, 0));
}

#[test]
fn the_thread_ends_with_the_monitor_and_watches_outlive_it() {
    let events = EventThread::start(true).unwrap();
    let (ours, _theirs) = pair();
    let flags = Arc::new(EventFlags::default());
    let watch = events.watch_connection(&ours, &flags, Vec::new()).unwrap();
    drop(events); // joins
    assert_eq!(watch.shared.lock().sources.len(), 1);
    drop(watch);
}
