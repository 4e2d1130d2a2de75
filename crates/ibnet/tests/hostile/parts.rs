//! A sender that tells of parts which are none: immediates by hand, from the table in
//! `immediate`.

use ibnet::Wait;
use ibnet_verbs::WcStatus;

use crate::rogue::Sender;
use crate::stage::{Besieged, Stage, says, until};

const PEER: &str = "evilhost, process 666";

/// An immediate: slot, how the size is told, parts, lap.
fn immediate(slot: u32, told: u32, parts: u32, lap: u32) -> u32 {
    slot | told << 8 | (parts - 1) << 10 | lap << 17
}

/// Lets a sender loose on a receiver that waits for one message of at most 100 bytes, announced
/// as entry 256, and gives what the receiver says of it.
fn attack(
    stage: &Stage,
    besieged: &mut Besieged,
    act: impl FnOnce(&Sender, (u64, u64)),
) -> Result<Vec<u8>, ibnet::Error> {
    let mut sender = Sender::connect(besieged, &stage.fabric, |_| {});
    let buffer = sender.receiving.registrar().buffer(100).unwrap();
    let ticket = sender.receiving.recv(buffer, 7).wait().unwrap();
    // The announcement has come when its last word has.
    let entry = until(|| {
        let entry = sender.end.read(0, 32);
        (entry[24..] == 256_u64.to_le_bytes()).then_some(entry)
    });
    let u32_at = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
    assert_eq!((u32_at(8), u32_at(12)), (100, 7), "capacity and tag");
    let address = u64::from_le_bytes(entry[..8].try_into().unwrap());
    act(&sender, (address, u32_at(20).into()));
    let mut receive = sender.receiving.finish(ticket);
    until(|| match receive.try_now() {
        Ok(Some(buffer)) => Some(Ok(buffer.to_vec())),
        Ok(None) => None,
        Err(failed) => Some(Err(failed.error)),
    })
}

#[test]
fn a_good_part_is_taken() {
    // Or else the tests below would prove nothing.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let good = attack(&stage, &mut besieged, |sender, to| {
        sender.end.write_with(immediate(0, 0, 1, 1), b"fine", to);
    });
    assert_eq!(good.unwrap(), b"fine");
    let in_three = attack(&stage, &mut besieged, |sender, (address, rkey)| {
        for (part, bytes) in [b"fi", b"ne", b"ly"].iter().enumerate() {
            let to = (address + 2 * part as u64, rkey);
            sender.end.write_with(immediate(0, 0, 3, 1), *bytes, to);
        }
    });
    assert_eq!(in_three.unwrap(), b"finely");
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn parts_that_cannot_be() {
    // Pitfall 38, for what comes with the data.
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let unexpected = "a part of a message that is not expected";
    let too_large = "a message larger than its buffer, or in too many parts";
    type Act = fn(&Sender, (u64, u64));
    let cases: &[(&str, Act)] = &[
        (too_large, |sender, to| {
            // Too long, it says, with a length that fits.
            sender.end.write_with(immediate(0, 3, 1, 1), b"x", to);
        }),
        (unexpected, |sender, to| {
            sender.end.write_with(u32::MAX, b"x", to);
        }),
        (unexpected, |sender, to| {
            sender.end.write_with(immediate(1, 0, 1, 1), b"x", to);
        }),
        (unexpected, |sender, to| {
            sender.end.write_with(immediate(255, 0, 1, 1), b"x", to);
        }),
        (unexpected, |sender, to| {
            sender.end.write_with(immediate(0, 0, 1, 0), b"x", to);
        }),
        (unexpected, |sender, to| {
            sender.end.write_with(immediate(0, 0, 1, 2), b"x", to);
        }),
        // The registration is larger than what was announced: the memory allows it, the size not.
        (too_large, |sender, to| {
            sender.end.write_with(immediate(0, 0, 1, 1), &[1; 101], to);
        }),
        (too_large, |sender, to| {
            sender.end.write_with(immediate(0, 0, 2, 1), &[1; 60], to);
            sender.end.write_with(immediate(0, 0, 2, 1), &[1; 41], to);
        }),
        // Two parts of three, and then it were one.
        (too_large, |sender, to| {
            sender.end.write_with(immediate(0, 0, 3, 1), b"x", to);
            sender.end.write_with(immediate(0, 0, 3, 1), b"x", to);
            sender.end.write_with(immediate(0, 0, 1, 1), b"x", to);
        }),
        // The size in the table, which the attacker alone has written.
        (too_large, |sender, to| {
            let table = &sender.plan.size_table;
            let size = 101_u32.to_le_bytes();
            sender.end.write(&size, table.address, table.rkeys[0]);
            sender.end.write_with(immediate(0, 2, 1, 1), b"x", to);
        }),
        (too_large, |sender, to| {
            let table = &sender.plan.size_table;
            sender.end.write(&[0xff; 4], table.address, table.rkeys[0]);
            sender.end.write_with(immediate(0, 2, 1, 1), b"x", to);
        }),
        (
            "something other than a write with immediate",
            |sender, _| {
                sender.end.send();
            },
        ),
    ];
    for (what, act) in cases {
        let error = attack(&stage, &mut besieged, act).expect_err(what);
        says(&error, &[PEER, what]);
    }
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn a_message_twice_is_one_too_many() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    let mut sender = Sender::connect(&mut besieged, &stage.fabric, |_| {});
    let receiving = &mut sender.receiving;
    let buffers: Vec<_> = (0..2)
        .map(|_| receiving.registrar().buffer(8).unwrap())
        .collect();
    let mut tickets = Vec::new();
    for buffer in buffers {
        tickets.push(receiving.recv(buffer, 7).wait().unwrap());
    }
    until(|| (sender.end.read(32 + 24, 8) == 257_u64.to_le_bytes()).then_some(()));
    for _ in 0..2 {
        sender.end.write_with(immediate(0, 1, 1, 1), b"", (0, 0));
    }
    // The first was good; with the second the connection has failed.
    let second = tickets.pop().unwrap();
    let first = tickets.pop().unwrap();
    match sender.receiving.finish(first).wait() {
        Ok(buffer) => {
            assert_eq!(buffer.len(), 8);
            let failed = sender.receiving.finish(second).wait().unwrap_err();
            says(
                &failed.error,
                &[PEER, "a part of a message that is not expected"],
            );
        }
        Err(failed) => says(
            &failed.error,
            &[PEER, "a part of a message that is not expected"],
        ),
    }
    drop(sender);
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}

#[test]
fn memory_that_was_not_announced_cannot_be_reached() {
    let stage = Stage::new();
    let mut besieged = stage.listen();
    type Act = fn(&Sender, (u64, u64));
    let acts: &[Act] = &[
        // Beyond the registration, the table of sizes, with another's key, and reading.
        |sender, (address, rkey)| {
            let beyond = address + (1 << 20);
            let status = sender.end.write(&[1; 8], beyond, rkey);
            assert_eq!(status, WcStatus::REM_ACCESS_ERR);
        },
        |sender, _| {
            let table = &sender.plan.size_table;
            let status = sender
                .end
                .write(&[1; 8], table.address + 1020, table.rkeys[0]);
            assert_eq!(status, WcStatus::REM_ACCESS_ERR);
        },
        |sender, (address, rkey)| {
            let status = sender.end.write(&[1; 8], address, rkey ^ 1);
            assert_eq!(status, WcStatus::REM_ACCESS_ERR);
        },
        |sender, (address, rkey)| {
            let status = sender.end.read_remote(address, rkey);
            assert_eq!(status, WcStatus::REM_INV_REQ_ERR);
        },
    ];
    for act in acts {
        let error = attack(&stage, &mut besieged, act).unwrap_err();
        says(&error, &[PEER]);
    }
    besieged.is_unharmed();
    drop(besieged);
    stage.end();
}
