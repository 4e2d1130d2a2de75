//! Both directions at once.

use std::thread;
use std::time::Duration;

use ibnet::{Duplex, DuplexOptions, Error, ListenOptions, Transport, Wait};

use crate::rig::{PATIENCE, fabric, transport};

fn pair(from: &Transport, to: &Transport, options: DuplexOptions) -> (Duplex, Duplex) {
    let mut listener = to
        .listen_with(1, ListenOptions::default().notify(options.notify))
        .unwrap();
    let handle = listener.handle();
    thread::scope(|scope| {
        let accepted = scope.spawn(move || {
            let mut accepting = Duplex::accept(to, 1, &mut listener, options);
            accepting.wait_for(PATIENCE).unwrap().unwrap()
        });
        let mut connecting = Duplex::connect(from, 0, &handle, options);
        let connected = connecting.wait_for(PATIENCE).unwrap().unwrap();
        (connected, accepted.join().unwrap())
    })
}

fn say(duplex: &mut Duplex, bytes: &[u8]) {
    let mut buffer = duplex.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    let ticket = duplex.send(buffer).wait().unwrap();
    duplex.finish(ticket).wait().unwrap();
}

#[test]
fn messages_go_both_ways_in_order_until_one_end_closes() {
    let fabric = fabric(4, 0);
    for notify in [true, false] {
        let (one, other) = (transport(&fabric), transport(&fabric));
        let options = DuplexOptions::default().notify(notify).buffers(4);
        let (mut left, mut right) = pair(&one, &other, options.capacity(100));
        let echo = thread::spawn(move || {
            while let Some(message) = right.next().wait().unwrap() {
                say(&mut right, &message);
                right.post(message).unwrap();
            }
            right.close().unwrap();
        });
        // Many more than there are buffers, of every length.
        for round in 0..50 {
            say(&mut left, &vec![round as u8; 2 * round]);
            let mut next = left.next();
            let message = next.wait_for(PATIENCE).unwrap().unwrap().unwrap();
            assert_eq!(message[..], vec![round as u8; 2 * round]);
            left.post(message).unwrap();
        }
        left.close().unwrap();
        echo.join().unwrap();
    }
    assert_eq!(fabric.live_objects().qps, 0);
}

#[test]
fn a_wait_for_a_message_that_ends_takes_none() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let options = DuplexOptions::default().buffers(2);
    let (mut left, mut right) = pair(&transport, &transport, options);
    let waited = left.next().wait_for(Duration::from_millis(20)).unwrap();
    assert!(waited.is_none());
    for word in [&b"first"[..], b"second"] {
        say(&mut right, word);
    }
    for word in [&b"first"[..], b"second"] {
        let message = left.next().wait_for(PATIENCE).unwrap().unwrap().unwrap();
        assert_eq!(message[..], *word);
    }
    // Both buffers are out.
    let failed = left.next().wait().unwrap_err();
    assert!(
        matches!(failed.error, Error::InvalidArgument(_)),
        "{failed}"
    );
}

#[test]
fn a_peer_that_does_not_close_is_an_error_and_no_end() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut left, mut right) = pair(&transport, &transport, DuplexOptions::default());
    say(&mut right, b"last words");
    drop(right);
    let message = left.next().wait().unwrap().unwrap();
    assert_eq!(message[..], *b"last words");
    let failed = left.next().wait().unwrap_err();
    assert!(matches!(failed.error, Error::PeerLost { .. }), "{failed}");
    assert_eq!(failed.returned.unwrap().len(), 1 << 16);
}
