//! The exercise: messages of all kinds over one connection, every byte of them checked.
//!
//! Both ends compute the same list. The sizes are those at which something changes: nothing, a byte,
//! the granule of cuts, and around the sizes at which a message is cut into one part more. Buffers
//! are as large as their message, larger, or too small for it.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ptr;

use ibnet::raw::{RecvBuffer, RequestId};
use ibnet::{Buffer, RecvConnection, SendConnection, Wait};

use crate::cast::ensure;
use crate::log;
use crate::pattern::{fill, mismatch};
use crate::play::Failure;

/// What the messages depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exercise {
    /// Tells the data of one exercise from that of others.
    pub(super) seed: u64,
    /// The most parts that a message is cut into.
    pub(super) parts: usize,
    /// Bytes that a part has at least.
    pub(super) least: usize,
}

/// One message and the buffer for it, in bytes.
#[derive(Clone, Copy)]
struct Message {
    size: usize,
    room: usize,
    seed: u64,
}

/// Requests that are outstanding at once.
const WINDOW: usize = 32;

/// What is in a buffer before anything arrives.
const UNTOUCHED: u8 = 0xa5;

impl Exercise {
    /// Receives what [`send`](Self::send) sends.
    pub(super) fn receive(&self, receiving: &mut RecvConnection) -> Result<(), Failure> {
        let mut window = VecDeque::new();
        for message in self.messages() {
            if window.len() == WINDOW
                && let Some((message, ticket)) = window.pop_front()
            {
                check(&message, receiving.finish(ticket).wait()?)?;
            }
            let buffer = room_for(&message, receiving)?;
            window.push_back((message, receiving.recv(buffer, 1).wait()?));
        }
        for (message, ticket) in window {
            check(&message, receiving.finish(ticket).wait()?)?;
        }
        receive_nothing(receiving)?;
        for group in self.groups() {
            let buffers = group
                .iter()
                .enumerate()
                .map(|(tag, message)| Ok((room_for(message, receiving)?, tag as i32)))
                .collect::<Result<Vec<_>, Failure>>()?;
            let ticket = receiving.recv_group(buffers).wait()?;
            for (message, buffer) in group.iter().zip(receiving.finish(ticket).wait()?) {
                check(message, buffer)?;
            }
        }
        Ok(())
    }

    /// Sends what [`receive`](Self::receive) receives.
    pub(super) fn send(&self, sending: &mut SendConnection) -> Result<(), Failure> {
        // Some of the messages are cut.
        log::expecting_warnings(|| self.send_all(sending))
    }

    fn send_all(&self, sending: &mut SendConnection) -> Result<(), Failure> {
        let mut window = VecDeque::new();
        for message in self.messages() {
            if window.len() == WINDOW
                && let Some(ticket) = window.pop_front()
            {
                finish(sending, ticket)?;
            }
            let buffer = filled(sending, &message)?;
            window.push_back(start(sending, buffer, 1)?);
        }
        for ticket in window {
            finish(sending, ticket)?;
        }
        send_nothing(sending)?;
        for group in self.groups() {
            // In another order than that of the buffers.
            let turn = group.len() / 2;
            let mut tickets = Vec::new();
            for place in (0..group.len()).rev() {
                let tag = (place + turn) % group.len();
                let buffer = filled(sending, &group[tag])?;
                tickets.push(start(sending, buffer, tag as i32)?);
            }
            for ticket in tickets {
                finish(sending, ticket)?;
            }
        }
        Ok(())
    }

    fn messages(&self) -> Vec<Message> {
        let mut sizes = vec![
            0, 1, 7, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 8192, 8193, 20_001,
        ];
        let mut cuts: Vec<usize> = (2..=self.parts.min(3)).chain([self.parts]).collect();
        cuts.dedup();
        for parts in cuts.into_iter().filter(|parts| *parts > 1) {
            let border = parts * self.least;
            sizes.extend([border - 128, border - 1, border, border + 1]);
            sizes.extend([border + 127, border + 128, border + 129]);
        }
        let numbered = sizes.into_iter().enumerate();
        numbered.map(|(n, size)| self.message(n, size)).collect()
    }

    /// The groups of a second round: 1 to 8 messages each.
    fn groups(&self) -> Vec<Vec<Message>> {
        // Some of several parts, unless that takes large ones.
        let largest = (self.parts.min(4) * self.least + 1000).min(20_000);
        (1..=8)
            .map(|members| {
                let place = |member: usize| 1000 + members * 8 + member;
                let size = |member: usize| place(member) * 5003 % largest;
                (0..members)
                    .map(|member| self.message(place(member), size(member)))
                    .collect()
            })
            .collect()
    }

    fn message(&self, number: usize, size: usize) -> Message {
        let room = match (number as u64 + self.seed) % 4 {
            0 => size,
            1 => size + 1,
            2 => size + 1000,
            // The message will be cut, unless there is nothing to cut.
            _ => size - size.div_ceil(3),
        };
        Message {
            size,
            room,
            seed: self.seed << 32 | number as u64,
        }
    }
}

fn filled(sending: &SendConnection, message: &Message) -> Result<Buffer, Failure> {
    let mut buffer = sending.registrar().buffer(message.size)?;
    fill(&mut buffer, message.seed);
    Ok(buffer)
}

fn room_for(message: &Message, receiving: &RecvConnection) -> Result<Buffer, Failure> {
    // More memory than is announced, to see whether anything is written there.
    let mut buffer = receiving.registrar().buffer(message.room + 64)?;
    buffer.fill(UNTOUCHED);
    buffer.set_length(message.room);
    Ok(buffer)
}

fn check(message: &Message, mut buffer: Buffer) -> Result<(), Failure> {
    let Message { size, room, seed } = *message;
    let expected = size.min(room);
    ensure(buffer.len() == expected, || {
        format!(
            "{} bytes instead of {expected} ({size} into {room})",
            buffer.len()
        )
    })?;
    buffer.set_length(room + 64);
    // What a message that was cut begins with is what it is made of, but for the last word.
    let (arrived, rest) = buffer.split_at(expected);
    let wrong = if size == expected {
        mismatch(arrived, seed)
    } else {
        mismatch(&arrived[..expected / 8 * 8], seed)
    };
    ensure(wrong.is_none(), || {
        format!("wrong data at {wrong:?} of {expected} ({size} into {room})")
    })?;
    ensure(rest.iter().all(|byte| *byte == UNTOUCHED), || {
        format!("bytes behind a message of {expected} were changed ({size} into {room})")
    })
}

/// Empty messages, for which there need not be any memory.
const NOTHINGS: usize = 3;

fn receive_nothing(receiving: &mut RecvConnection) -> Result<(), Failure> {
    let nowhere = [RecvBuffer {
        data: ptr::null_mut(),
        capacity: 0,
        tag: 9,
        region: None,
    }];
    for _ in 0..NOTHINGS {
        // SAFETY: there is no memory to stay valid.
        let request = until_some(|| unsafe { receiving.raw().irecv(&nowhere) })?;
        let received = until_some(|| receiving.raw().test(request))?;
        ensure(received.sizes() == [0], || {
            format!("{:?} bytes into no buffer", received.sizes())
        })?;
    }
    Ok(())
}

fn send_nothing(sending: &mut SendConnection) -> Result<(), Failure> {
    for round in 0..NOTHINGS {
        // The last one is something, but the buffer is none: it is cut.
        let mut buffer = sending.registrar().buffer(8)?;
        if round + 1 == NOTHINGS {
            fill(&mut buffer, 0);
            let sent = start(sending, buffer, 9)?;
            finish(sending, sent)?;
            continue;
        }
        // SAFETY: there is no memory to stay valid.
        let request = until_some(|| unsafe { sending.raw().isend(ptr::null(), 0, 9, None) })?;
        let sent = until_some(|| sending.raw().test(request))?;
        ensure(sent == 0, || format!("{sent} bytes of nothing were sent"))?;
    }
    Ok(())
}

/// A send of the raw layer, which cuts what is too long, and its buffer.
pub(super) struct Sent {
    request: RequestId,
    /// Leaked if anything fails meanwhile: the device may still read it.
    buffer: ManuallyDrop<Buffer>,
}

/// Starts to send `buffer` as NCCL does.
pub(super) fn start(
    sending: &mut SendConnection,
    buffer: Buffer,
    tag: i32,
) -> Result<Sent, Failure> {
    let (data, length) = (buffer.as_ptr(), buffer.len());
    // SAFETY: the buffer is kept until the request is done, and leaked if something fails before.
    let request = until_some(|| unsafe {
        sending
            .raw()
            .isend(data, length, tag, Some(buffer.region()))
    })?;
    let buffer = ManuallyDrop::new(buffer);
    Ok(Sent { request, buffer })
}

/// Waits until it is done.
pub(super) fn finish(sending: &mut SendConnection, sent: Sent) -> Result<Buffer, Failure> {
    until_some(|| sending.raw().test(sent.request))?;
    Ok(ManuallyDrop::into_inner(sent.buffer))
}

/// Tries `attempt`, a raw call, until it gives something.
pub(super) fn until_some<T>(
    mut attempt: impl FnMut() -> Result<Option<T>, ibnet::Error>,
) -> Result<T, Failure> {
    loop {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        std::thread::yield_now();
    }
}
