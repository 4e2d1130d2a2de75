//! Moving data: sizes, groups, tags, many outstanding requests.

use std::time::Duration;

use ibnet::{Buffer, RecvConnection, SendConnection, Wait};

use super::exercise::{finish, start};
use super::{duet, duet_everywhere};
use crate::cast::{Cast, ensure};
use crate::log;
use crate::pattern::{fill, mismatch};
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        duet_everywhere("data/sizes", &[sizes_receiver, sizes_sender]),
        Scenario {
            limit: Duration::from_secs(300),
            ..duet("data/one-gibibyte", &[gibibyte_receiver, gibibyte_sender])
        },
        duet_everywhere(
            "data/groups-with-shuffled-tags",
            &[groups_receiver, groups_sender],
        ),
        duet(
            "data/256-outstanding",
            &[outstanding_receiver, outstanding_sender],
        ),
        duet(
            "data/oversize-is-cut-with-one-warning",
            &[cut_receiver, cut_sender],
        ),
        duet(
            "data/registering-while-sending",
            &[registering_receiver, registering_sender],
        ),
        Scenario {
            name: "data/ring-of-four",
            scene: Scene::OneDeviceAndPair,
            roles: &[ring_member, ring_member, ring_member, ring_member],
            limit: Duration::from_secs(120),
            needs_processes: None,
        },
    ]
}

/// (bytes sent, bytes of room). Soft-RoCE's largest message is 8 MiB, so the large ones are split;
/// the size is told by sum, as announced and in the table.
const SIZES: &[(usize, usize)] = &[
    (0, 0),
    (0, 4096),
    (1, 1),
    (1, 100),
    (7, 7),
    (63, 64),
    (64, 64),
    (65, 128),
    (127, 127),
    (128, 128),
    (129, 200),
    (4095, 4096),
    (4096, 4096),
    (4097, 8192),
    (65_537, 65_537),
    ((1 << 20) + 3, 1 << 21),
    (8 << 20, 8 << 20),
    ((8 << 20) + 1, (8 << 20) + 1),
    ((8 << 20) + 1, 9 << 20),
    ((24 << 20) + 5, (24 << 20) + 5),
    ((24 << 20) + 5, 32 << 20),
];

fn sizes_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    for (round, (size, room)) in SIZES.iter().enumerate() {
        let mut buffer = receiving.registrar().buffer(*room)?;
        buffer.fill(0xa5);
        let ticket = receiving.recv(buffer, round as i32).wait()?;
        let mut buffer = receiving.finish(ticket).wait()?;
        ensure(buffer.len() == *size, || {
            format!("{} bytes instead of {size}", buffer.len())
        })?;
        check(&buffer, round as u64)?;
        // What lies behind the message is untouched.
        buffer.set_length(*room);
        ensure(buffer[*size..].iter().all(|byte| *byte == 0xa5), || {
            format!("bytes after a message of {size} were changed")
        })?;
    }
    receiving.close()?;
    Ok(())
}

fn sizes_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    for (round, (size, _)) in SIZES.iter().enumerate() {
        let buffer = filled(&sending, *size, round as u64)?;
        let ticket = sending.send(buffer, round as i32).wait()?;
        let buffer = sending.finish(ticket).wait()?;
        check(&buffer, round as u64)?;
    }
    sending.close()?;
    Ok(())
}

const GIBIBYTE: usize = 1 << 30;

fn gibibyte_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let ticket = receiving
        .recv(receiving.registrar().buffer(GIBIBYTE)?, 0)
        .wait()?;
    let buffer = receiving.finish(ticket).wait()?;
    ensure(buffer.len() == GIBIBYTE, || {
        format!("{} bytes arrived", buffer.len())
    })?;
    check(&buffer, 30)
}

fn gibibyte_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    let buffer = filled(&sending, GIBIBYTE, 30)?;
    let ticket = sending.send(buffer, 0).wait()?;
    sending.finish(ticket).wait()?;
    Ok(())
}

const GROUP_ROUNDS: u64 = 50;

/// Size of the message with `tag` in `round`: 0 to some 40 KiB, all different.
fn group_size(round: u64, tag: u64) -> usize {
    ((round * 131 + tag * 5_003) % 40_000) as usize
}

fn groups_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    for round in 0..GROUP_ROUNDS {
        let members = 1 + round % 8;
        let group = (0..members)
            .map(|tag| Ok((receiving.registrar().buffer(40_960)?, tag as i32)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let ticket = receiving.recv_group(group).wait()?;
        for (tag, buffer) in receiving.finish(ticket).wait()?.iter().enumerate() {
            let size = group_size(round, tag as u64);
            ensure(buffer.len() == size, || {
                format!(
                    "round {round}, tag {tag}: {} bytes instead of {size}",
                    buffer.len()
                )
            })?;
            check(buffer, round << 8 | tag as u64)?;
        }
    }
    Ok(())
}

fn groups_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    for round in 0..GROUP_ROUNDS {
        let members = 1 + round % 8;
        let mut tags: Vec<u64> = (0..members).collect();
        shuffle(&mut tags, round);
        let mut tickets = Vec::new();
        for tag in tags {
            let buffer = filled(&sending, group_size(round, tag), round << 8 | tag)?;
            tickets.push(sending.send(buffer, tag as i32).wait()?);
        }
        for ticket in tickets {
            sending.finish(ticket).wait()?;
        }
    }
    Ok(())
}

const OUTSTANDING: usize = 256;

fn outstanding_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    for round in 0..3_u64 {
        let mut tickets = Vec::new();
        for number in 0..OUTSTANDING {
            let buffer = receiving.registrar().buffer(2048)?;
            match receiving.recv(buffer, number as i32).try_now()? {
                Some(ticket) => tickets.push(ticket),
                None => return Err(format!("only {number} receives could be outstanding").into()),
            }
        }
        // One more is refused, but is no error.
        let extra = receiving.registrar().buffer(1)?;
        let refused = receiving.recv(extra, 0).try_now()?;
        ensure(refused.is_none(), || {
            "the 257th receive was not refused".to_owned()
        })?;
        // Only now may the sender begin.
        cast.meet(1)?;
        // Waited for in reverse, so that all are done before the first is asked for.
        for (number, ticket) in tickets.into_iter().enumerate().rev() {
            let buffer = receiving.finish(ticket).wait()?;
            ensure(buffer.len() == 1 + number * 8, || {
                format!("{} bytes", buffer.len())
            })?;
            check(&buffer, round << 16 | number as u64)?;
        }
    }
    Ok(())
}

fn outstanding_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    for round in 0..3_u64 {
        cast.meet(0)?;
        let mut tickets = Vec::new();
        for number in 0..OUTSTANDING {
            let buffer = filled(&sending, 1 + number * 8, round << 16 | number as u64)?;
            tickets.push(sending.send(buffer, number as i32).wait()?);
        }
        for ticket in tickets {
            sending.finish(ticket).wait()?;
        }
    }
    Ok(())
}

fn cut_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    for room in [100, 0, 8 << 20] {
        let ticket = receiving
            .recv(receiving.registrar().buffer(room)?, 0)
            .wait()?;
        let buffer = receiving.finish(ticket).wait()?;
        ensure(buffer.len() == room, || {
            format!("{} bytes instead of {room}", buffer.len())
        })?;
        check(&buffer, 1)?;
    }
    Ok(())
}

fn cut_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    let before = log::warnings();
    for size in [101, 5000, 9 << 20] {
        let buffer = filled(&sending, size, 1)?;
        let sent = start(&mut sending, buffer, 0)?;
        finish(&mut sending, sent)?;
    }
    let warnings = log::warnings() - before;
    ensure(warnings == 1, || {
        format!("{warnings} warnings instead of one")
    })
}

/// Messages that are moved while others register.
const ACCOMPANIED: u64 = 250;

fn registering_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    register_beside(receiving.registrar(), || {
        for number in 0..ACCOMPANIED {
            let ticket = receiving
                .recv(receiving.registrar().buffer(1000)?, 0)
                .wait()?;
            check(&receiving.finish(ticket).wait()?, number)?;
        }
        Ok(())
    })
}

fn registering_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut sending = cast.connect_to(0, &transport)?;
    register_beside(sending.registrar(), || {
        for number in 0..ACCOMPANIED {
            let buffer = filled(&sending, 1000, number)?;
            let ticket = sending.send(buffer, 0).wait()?;
            sending.finish(ticket).wait()?;
        }
        Ok(())
    })
}

/// Runs `work` while two other threads register and deregister as fast as they can.
fn register_beside(
    registrar: ibnet::Registrar,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let (stop, registered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let (registrar, stop, registered) = (registrar.clone(), &stop, &registered);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        registrar.buffer(64 << 10)?;
                        registered.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), ibnet::Error>(())
                })
            })
            .collect();
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        for thread in busy {
            thread
                .join()
                .map_err(|_| "a registering thread panicked")??;
        }
        outcome
    })?;
    let count = registered.load(Ordering::Relaxed);
    ensure(count > 0, || "nothing was registered meanwhile".to_owned())
}

/// Each of four processes receives from the one before and sends to the one after, at once.
fn ring_member(cast: &mut Cast) -> Result<(), Failure> {
    let (me, transport) = (cast.role(), cast.transport()?);
    let (before, after) = ((me + 3) % 4, (me + 1) % 4);
    let mut listener = cast.listen(&transport)?;
    cast.publish(before, &listener)?;
    let handle = cast.learn(after)?;
    // Both at once: neither may wait for the other.
    let mut connecting = cast.connect(&transport, &handle)?;
    let (mut sending, mut receiving): (Option<SendConnection>, Option<RecvConnection>) =
        (None, None);
    while sending.is_none() || receiving.is_none() {
        if sending.is_none() {
            sending = connecting.try_now()?;
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now()?;
        }
        std::thread::yield_now();
    }
    let (Some(mut sending), Some(mut receiving)) = (sending, receiving) else {
        return Err("the loop above ended too early".into());
    };
    for round in 0..200_u64 {
        let size = (round * 977 % 100_000) as usize;
        let receive = receiving
            .recv(receiving.registrar().buffer(100_000)?, 3)
            .wait()?;
        let buffer = filled(&sending, size, round << 8 | me as u64)?;
        let send = sending.send(buffer, 3).wait()?;
        let buffer = receiving.finish(receive).wait()?;
        ensure(buffer.len() == size, || {
            format!("{} bytes instead of {size}", buffer.len())
        })?;
        check(&buffer, round << 8 | before as u64)?;
        sending.finish(send).wait()?;
    }
    Ok(())
}

fn filled(sending: &SendConnection, size: usize, seed: u64) -> Result<Buffer, Failure> {
    let mut buffer = sending.registrar().buffer(size)?;
    fill(&mut buffer, seed);
    Ok(buffer)
}

fn check(bytes: &[u8], seed: u64) -> Result<(), Failure> {
    match mismatch(bytes, seed) {
        None => Ok(()),
        Some(offset) => Err(format!(
            "wrong data at offset {offset} of {} (seed {seed:#x})",
            bytes.len()
        )
        .into()),
    }
}

/// Deterministic for each seed.
fn shuffle(items: &mut [u64], seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for last in (1..items.len()).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        items.swap(last, (random >> 33) as usize % (last + 1));
    }
}
