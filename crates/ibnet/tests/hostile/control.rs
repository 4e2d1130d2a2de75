//! The control channel of connections that stand: anything but a proper Close ends the
//! connection with an error that says what came.

use ibnet::Wait;
use std::net::Shutdown;

use ibnet::Error;
use ibnet_simverbs::Random;

use crate::rogue::{Entry, Receiver, Sender, Trap};
use crate::stage::{Stage, recv_failure, says, send_failure};
use crate::wire::{
    CLOSING, Closing, ENDPOINT, Endpoint, HELLO, PLAN, READY, REFUSAL, Ready, Refusal, VERSION,
    frame, frame_of,
};

/// What arrives, and what the error says. `None`: the line is closed, in one direction.
type Case = (Option<Vec<u8>>, &'static str);

/// News of a path: its number, its epoch, and what has become of it.
fn news(words: &[u8]) -> Vec<u8> {
    let body = [&[PATH], words].concat();
    frame_of(body.len() as u32, VERSION, &body)
}

const PATH: u8 = 6;
const DOWN: u8 = 0;
const DRAINED: u8 = 1;

const OUT_OF_TURN: &str = "a message out of turn on the control channel";
const PEER: &str = "evilhost, process 666";

fn cases(trap: &Trap) -> Vec<Case> {
    let end = crate::rogue::End::new(&trap.device);
    let endpoint = Endpoint {
        queue_pairs: vec![end.end()],
        ring: end.area(),
    };
    let refusal = |reason: &[u8]| {
        let reason = reason.to_vec();
        frame(REFUSAL, &Refusal { reason })
    };
    let counts = |count| vec![7; count];
    let some = |bytes: Vec<u8>, what| (Some(bytes), what);
    vec![
        some(b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not this version"),
        some(vec![0; 6], "not this version"),
        some(frame_of(0, VERSION, &[]), "a message length out of range"),
        some(
            frame_of(65_537, VERSION, &[]),
            "a message length out of range",
        ),
        some(frame_of(1, VERSION, &[99]), "a message that does not parse"),
        some(
            frame_of(3, VERSION, &[3, 0, 0]),
            "bytes after the end of a message",
        ),
        some(frame(READY, &Ready {}), OUT_OF_TURN),
        some(frame(HELLO, &trap.device.hello([7; 16])), OUT_OF_TURN),
        some(frame(PLAN, &trap.plan(&end)), OUT_OF_TURN),
        some(frame(ENDPOINT, &endpoint), OUT_OF_TURN),
        some(
            frame(
                CLOSING,
                &Closing {
                    parts_taken: counts(129),
                },
            ),
            "counts of too many paths",
        ),
        some(news(&[128, 0, DOWN]), "a path that cannot exist"),
        some(news(&[1, 0, DOWN]), "news of a path that does not exist"),
        // This end does not recover.
        some(news(&[0, 0, DOWN]), "no path could be made to work again"),
        some(refusal(&[b'x'; 513]), "a refusal that is too long"),
        some(
            refusal(b"out of\x07 luck"),
            "the peer's end failed: out of luck",
        ),
        (
            None,
            "it closed the control channel without a Close message",
        ),
    ]
}

#[test]
fn of_a_sender() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let none = || {
        frame(
            CLOSING,
            &Closing {
                parts_taken: vec![],
            },
        )
    };
    let counts = |parts_taken: &[u64]| {
        let parts_taken = parts_taken.to_vec();
        frame(CLOSING, &Closing { parts_taken })
    };
    let mut cases = cases(&trap);
    // A Close from a receiver has a count for each path, of parts that were sent. Two of them,
    // because one was sent by then.
    let never_sent = "counts parts which were never sent";
    cases.extend([
        (Some(none()), never_sent),
        (Some(counts(&[2])), never_sent),
        (Some(counts(&[u64::MAX])), never_sent),
        (Some(counts(&[1, 0])), never_sent),
        // One part was sent, and has completed.
        (
            Some(news(&[0, 0, DRAINED, 2])),
            "a count of parts that were never sent",
        ),
        (
            Some(news(&[0, 0, DRAINED, 0])),
            "a count of parts that were never sent",
        ),
        (
            Some(news(&[0, 0, DRAINED, 1])),
            "no path could be made to work again",
        ),
        (Some(counts(&[1])), "the peer closed the connection"),
        (Some(counts(&[0])), "the peer closed the connection"),
    ]);
    let mut attacked = Vec::new();
    for (bytes, what) in cases {
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        // A message is on its way, and has arrived, when the peer begins.
        receiver.announce(&receiver.entry(256));
        let buffer = receiver.sending.registrar().buffer(4).unwrap();
        let sent = receiver.sending.send(buffer, 7).wait().unwrap();
        receiver.sending.finish(sent).wait().unwrap();
        match bytes {
            Some(bytes) => receiver.line.say(&bytes),
            None => receiver.line.hang_up(Shutdown::Write),
        }
        attacked.push((receiver, what));
    }
    // At once, because each waits a moment for what may still arrive.
    for (receiver, what) in &mut attacked {
        let error = send_failure(&mut receiver.sending);
        says(&error, &[PEER, what]);
        // And again, from every later call (pitfall 82).
        says(&send_failure(&mut receiver.sending), &[PEER, what]);
    }
    drop((attacked, trap, victim));
    stage.end();
}

#[test]
fn a_close_cannot_count_what_was_not_posted() {
    // A message that waits for the others of its group has not left. Were it taken for arrived, its
    // memory would be the application's again, and be sent from later.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
    for id in [256, 257] {
        let entry = Entry {
            group: 2,
            position: (id % 2) as u8,
            ..receiver.entry(id)
        };
        receiver.announce(&entry);
    }
    let memory = [7_u8; 4];
    let sending = &mut receiver.sending;
    let data = memory.as_ptr().cast_mut();
    // SAFETY: the memory outlives the connection, and is only read.
    let region = unsafe { sending.registrar().register(data, 4) }.unwrap();
    // SAFETY: as above.
    let sent = unsafe { sending.raw().isend(data, 4, 7, Some(&region)) };
    let sent = sent.unwrap().unwrap();
    let parts_taken = vec![1];
    receiver.line.say(&frame(CLOSING, &Closing { parts_taken }));
    // This looks at what the peer says, and sends nothing: the memory is not registered.
    let error = crate::stage::until(|| {
        // SAFETY: nothing is sent.
        let refused = unsafe { receiver.sending.raw().isend(data, 4, 7, None) }.unwrap_err();
        (!matches!(refused, Error::InvalidArgument(_))).then_some(refused)
    });
    says(&error, &[PEER, "counts parts which were never sent"]);
    assert!(receiver.sending.raw().test(sent).is_err());
    drop((region, receiver, trap, victim));
    stage.end();
}

#[test]
fn of_a_receiver() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let trap = Trap::new(&stage.fabric);
    let mut cases = cases(&trap);
    // A sender's Close means nothing but that.
    for parts_taken in [vec![], vec![u64::MAX; 128]] {
        let bytes = frame(CLOSING, &Closing { parts_taken });
        cases.push((Some(bytes), "the peer closed the connection"));
    }
    let mut attacked = Vec::new();
    for (bytes, what) in cases {
        let mut sender = Sender::connect(&mut besieged, &stage.fabric, |_| {});
        match bytes {
            Some(bytes) => sender.line.say(&bytes),
            None => sender.line.hang_up(Shutdown::Write),
        }
        attacked.push((sender, what));
    }
    for (sender, what) in &mut attacked {
        says(&recv_failure(&mut sender.receiving), &[PEER, what]);
        says(&recv_failure(&mut sender.receiving), &[PEER, what]);
    }
    drop((attacked, trap));
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn words_that_came_with_the_last_of_the_handshake_are_heard() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let (mut connecting, mut line, _) = trap.lure(&victim);
    let end = crate::rogue::End::new(&trap.device);
    line.say(&frame(PLAN, &trap.plan(&end)));
    crate::stage::until(|| {
        assert!(connecting.try_now().unwrap().is_none());
        line.hear::<Endpoint>(ENDPOINT)
    });
    // In one piece, after which nothing more ever comes.
    let reason = b"no more".to_vec();
    line.say(&[frame(READY, &Ready {}), frame(REFUSAL, &Refusal { reason })].concat());
    let mut sending = crate::stage::until(|| connecting.try_now().unwrap());
    says(&send_failure(&mut sending), &[PEER, "no more"]);
    drop((sending, connecting, line, end, trap, victim));
    stage.end();
}

#[test]
fn any_bytes_in_any_pieces() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let mut random = Random::new(1);
    let good: Vec<Vec<u8>> = cases(&trap)
        .into_iter()
        .filter_map(|(bytes, _)| bytes)
        .collect();
    let mut attacked = Vec::new();
    for _ in 0..64 {
        let mut bytes = good[random.index(good.len())].clone();
        for _ in 0..random.index(4) {
            let at = random.index(bytes.len());
            bytes[at] = random.next_u32() as u8;
        }
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        let cut = random.index(bytes.len());
        receiver.line.say(&bytes[..cut]);
        let _ = receiver
            .sending
            .send(receiver.sending.registrar().buffer(1).unwrap(), 0)
            .try_now();
        receiver.line.say(&bytes[cut..]);
        // What is not whole by then is cut off.
        receiver.line.hang_up(Shutdown::Write);
        attacked.push(receiver);
    }
    for receiver in &mut attacked {
        says(&send_failure(&mut receiver.sending), &[PEER]);
    }
    drop((attacked, trap, victim));
    stage.end();
}
