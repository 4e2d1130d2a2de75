//! A receiver that writes what it likes into the sender's ring.

use ibnet::Wait;
use ibnet_verbs::WcStatus;

use crate::rogue::{Entry, Receiver, Trap};
use crate::stage::{Stage, says, send_failure};

const PEER: &str = "evilhost, process 666";

#[test]
fn announcements_that_cannot_be() {
    // Pitfalls 70 and 71: judged before anything is read by them, and never waited for.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    type Spoil = fn(&mut Entry);
    let spoilers: &[Spoil] = &[
        |entry| entry.group = 0,
        |entry| entry.group = 9,
        |entry| entry.group = 255,
        |entry| entry.position = 1,
        |entry| entry.position = 255,
        |entry| entry.capacity = 1 << 31,
        |entry| entry.capacity = u32::MAX,
    ];
    for spoil in spoilers {
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        let mut entry = receiver.entry(256);
        spoil(&mut entry);
        assert_eq!(receiver.announce(&entry), WcStatus::SUCCESS);
        let error = send_failure(&mut receiver.sending);
        says(&error, &[PEER, "whose group, position or size cannot be"]);
    }
    // The later entries of a group are judged as the first is.
    let spoilers: &[Spoil] = &[
        |entry| entry.group = 3,
        |entry| entry.position = 0,
        |entry| entry.capacity = u32::MAX,
    ];
    for spoil in spoilers {
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        let mut entries = [256, 257].map(|id| Entry {
            group: 2,
            position: (id % 2) as u8,
            tag: if id == 256 { 99 } else { 7 },
            ..receiver.entry(id)
        });
        spoil(&mut entries[1]);
        for entry in &entries {
            assert_eq!(receiver.announce(entry), WcStatus::SUCCESS);
        }
        says(&send_failure(&mut receiver.sending), &[PEER, "whose group"]);
    }
    drop((trap, victim));
    stage.end();
}

#[test]
fn an_entry_that_is_not_due_is_not_seen() {
    // Pitfall 70: no thread spins on what never comes.
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
    // A later one, another lap's, and only the second of a group of two.
    for id in [257, 512, 0, u64::MAX] {
        receiver.announce(&receiver.entry(id));
    }
    let buffer = receiver.sending.registrar().buffer(4).unwrap();
    let mut sending = receiver.sending.send(buffer, 7);
    let sent = sending.try_now().unwrap();
    assert!(sent.is_none(), "sent to an entry that is not due");
    let buffer = sending.into_inner().unwrap();
    let first = Entry {
        group: 2,
        tag: 1,
        ..receiver.entry(256)
    };
    receiver.announce(&first);
    assert!(
        receiver.sending.send(buffer, 9).try_now().is_err(),
        "entry 257 is of another group"
    );
    drop((receiver, trap, victim));
    stage.end();
}

#[test]
fn keys_and_addresses_that_lead_nowhere() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    type Spoil = fn(&mut Entry);
    let spoilers: &[Spoil] = &[
        |entry| entry.rkey ^= 0xff,
        |entry| entry.rkey = 0,
        |entry| entry.address = 0,
        |entry| entry.address = u64::MAX - 3,
        |entry| entry.address += 1 << 20,
    ];
    for spoil in spoilers {
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        let mut entry = receiver.entry(256);
        spoil(&mut entry);
        assert_eq!(receiver.announce(&entry), WcStatus::SUCCESS);
        let error = send_failure(&mut receiver.sending);
        says(
            &error,
            &[PEER, "REM_ACCESS_ERR", "the peer does not allow the access"],
        );
    }
    drop((trap, victim));
    stage.end();
}

#[test]
fn the_ring_is_all_that_can_be_written() {
    let stage = Stage::new();
    let victim = stage.open("real", |_| {});
    let trap = Trap::new(&stage.fabric);
    let ring_bytes = 256 * 32;
    type Attack = fn(&Receiver, u64) -> WcStatus;
    let attacks: &[(WcStatus, Attack)] = &[
        (WcStatus::REM_ACCESS_ERR, |receiver, _| {
            let ring = &receiver.ring;
            receiver
                .end
                .write(&[0; 64], ring.address - 64, ring.rkeys[0])
        }),
        (WcStatus::REM_ACCESS_ERR, |receiver, end| {
            receiver.end.write(&[0; 64], end, receiver.ring.rkeys[0])
        }),
        (WcStatus::REM_ACCESS_ERR, |receiver, end| {
            receiver
                .end
                .write(&[0; 64], end - 32, receiver.ring.rkeys[0])
        }),
        (WcStatus::REM_ACCESS_ERR, |receiver, _| {
            let ring = &receiver.ring;
            receiver
                .end
                .write(&[0; 64], ring.address, ring.rkeys[0] ^ 1)
        }),
        // It can be written, and not be read.
        (WcStatus::REM_INV_REQ_ERR, |receiver, _| {
            let ring = &receiver.ring;
            receiver.end.read_remote(ring.address, ring.rkeys[0])
        }),
    ];
    for (status, attack) in attacks {
        let mut receiver = Receiver::accept(&trap, &victim, |_| {}).unwrap();
        let end = receiver.ring.address + ring_bytes;
        assert_eq!(attack(&receiver, end), *status);
        // The victim's queue pair is out of order by that, and its device says so.
        says(&send_failure(&mut receiver.sending), &[PEER]);
    }
    drop((trap, victim));
    stage.end();
}
