//! Many requests, many messages, and numbers that come to their end.

use std::collections::VecDeque;

use ibnet::{GroupTicket, RecvConnection, SendConnection, SendTicket, Wait};

use super::duet;
use crate::cast::{Cast, ensure};
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            scene: ONE_AND_TWO,
            ..duet(
                "many/256-outstanding-and-slots-recycled",
                &[requests_receiver, requests_sender],
            )
        },
        Scenario {
            scene: ONE_AND_TWO,
            ..duet(
                "many/32-groups-of-8-outstanding-and-slots-recycled",
                &[groups_receiver, groups_sender],
            )
        },
        Scenario {
            scene: ONE_AND_TWO,
            ..duet("many/ids-come-round", &[ids_receiver, ids_sender])
        },
    ]
}

const ONE_AND_TWO: Scene = Scene::Ends(&[(1, 1), (2, 2)]);

/// Messages of one scenario. Each slot is used again 512 times where that takes no long.
fn messages(cast: &Cast) -> u64 {
    if cast.is_simulated() {
        1 << 17
    } else {
        1 << 13
    }
}

/// A stream of numbered messages, in groups of `group` of which `groups` are outstanding.
struct Stream {
    messages: u64,
    group: usize,
    groups: usize,
}

impl Stream {
    fn receive(&self, receiving: &mut RecvConnection) -> Result<(), Failure> {
        let mut window: VecDeque<GroupTicket> = VecDeque::new();
        let mut next = 0;
        let mut posted = 0;
        while next < self.messages {
            let mut buffers = Vec::new();
            if window.len() == self.groups || posted >= self.messages {
                let Some(oldest) = window.pop_front() else {
                    break;
                };
                for buffer in receiving.finish(oldest).wait()? {
                    ensure(*buffer == next.to_le_bytes()[..], || {
                        format!("message {next} holds {:?}", &buffer[..])
                    })?;
                    next += 1;
                    buffers.push(buffer);
                }
            }
            if posted < self.messages {
                while buffers.len() < self.group {
                    buffers.push(receiving.registrar().buffer(8)?);
                }
                let tagged = buffers.into_iter().zip(0..).collect();
                window.push_back(receiving.recv_group(tagged).wait()?);
                posted += self.group as u64;
            }
        }
        ensure(next == self.messages, || format!("{next} messages arrived"))
    }

    fn send(&self, sending: &mut SendConnection) -> Result<(), Failure> {
        let mut window: VecDeque<SendTicket> = VecDeque::new();
        let mut first = 0;
        while first < self.messages {
            // Within a group, the last one first.
            for member in (0..self.group as u64).rev() {
                let mut buffer = if window.len() < self.group * self.groups {
                    sending.registrar().buffer(8)?
                } else {
                    let oldest = window.pop_front().ok_or("nothing is outstanding")?;
                    sending.finish(oldest).wait()?
                };
                buffer.copy_from_slice(&(first + member).to_le_bytes());
                window.push_back(sending.send(buffer, member as i32).wait()?);
            }
            first += self.group as u64;
        }
        for ticket in window {
            sending.finish(ticket).wait()?;
        }
        Ok(())
    }
}

fn requests(cast: &Cast) -> Stream {
    Stream {
        messages: messages(cast),
        group: 1,
        groups: 256,
    }
}

fn groups(cast: &Cast) -> Stream {
    Stream {
        messages: messages(cast),
        group: 8,
        groups: 32,
    }
}

fn requests_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    requests(cast).receive(&mut receiving)
}

fn requests_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| config.queue_pairs = 2)?;
    let mut sending = cast.connect_to(0, &transport)?;
    requests(cast).send(&mut sending)
}

fn groups_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let mut receiving = cast.accept_from(1, &transport)?;
    groups(cast).receive(&mut receiving)
}

fn groups_sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| config.queue_pairs = 2)?;
    let mut sending = cast.connect_to(0, &transport)?;
    groups(cast).send(&mut sending)
}

/// Ids of a first announcement from which the numbers' ends are near: of 32 bits, of the bits in
/// an immediate, and of 64 bits, each met in the middle of a group and of a lap of the ring.
const FIRST_IDS: &[u64] = &[
    (1 << 32) - 301,
    (1 << 23) - 301,
    u64::MAX - 300,
    u64::MAX - 7,
    u64::MAX,
    0,
];

const AROUND_THE_END: Stream = Stream {
    messages: 450,
    group: 3,
    groups: 85,
};

fn ids_receiver(cast: &mut Cast) -> Result<(), Failure> {
    for first in FIRST_IDS {
        let transport = cast.transport_with(|config| config.first_entry = *first)?;
        let mut receiving = cast.accept_from(1, &transport)?;
        AROUND_THE_END
            .receive(&mut receiving)
            .map_err(|error| format!("from {first:#x}: {error}"))?;
        cast.meet(1)?;
    }
    Ok(())
}

fn ids_sender(cast: &mut Cast) -> Result<(), Failure> {
    for first in FIRST_IDS {
        let transport = cast.transport_with(|config| config.queue_pairs = 2)?;
        let mut sending = cast.connect_to(0, &transport)?;
        AROUND_THE_END
            .send(&mut sending)
            .map_err(|error| format!("from {first:#x}: {error}"))?;
        cast.meet(0)?;
    }
    Ok(())
}
