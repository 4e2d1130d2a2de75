//! Messages in one direction: both ends in one thread, or one end.

use std::time::Instant;

use super::buffer::Buffer;
use super::counter::Instructions;
use super::lane::{Receiver, Sender, Slots};
use super::patience::Patience;
use super::usage;
use crate::net::{Comm, Result};
use crate::protocol::{Answer, Flow};

/// Sends and receives over the first `flow.connections` of the given connections, in one thread.
pub(super) fn both(sends: &[Comm], receives: &[Comm], flow: Flow, yields: bool) -> Result<Answer> {
    let buffers = Buffers::new(flow, 2 * flow.connections)?;
    let ends = sends.iter().zip(receives).take(flow.connections);
    let lanes = ends
        .zip(buffers.0.chunks(2))
        .map(|((send, receive), pair)| {
            let sender = Sender::new(send, Slots::new(send, &pair[0], &flow)?, flow);
            let receiver = Receiver::new(receive, Slots::new(receive, &pair[1], &flow)?, flow);
            Ok((sender, receiver))
        });
    let mut lanes: Vec<(Sender<'_>, Receiver<'_>)> = lanes.collect::<Result<_>>()?;
    let mut patience = Patience::new("sending and receiving", yields);
    let mut run = |receives: u64| -> Result<()> {
        let mut left = 0;
        for (sender, receiver) in &mut lanes {
            receiver.limit += receives;
            sender.limit += receives * flow.group as u64;
            left += receives * (flow.group as u64 + 1);
        }
        while left > 0 {
            let before = left;
            for (sender, receiver) in &mut lanes {
                receiver.post()?;
                sender.post()?;
                let done = receiver.done + sender.done;
                receiver.test()?;
                sender.test()?;
                left -= receiver.done + sender.done - done;
            }
            if left == before {
                patience.again()?;
            } else {
                patience.renew();
            }
        }
        Ok(())
    };
    run(flow.warm_up)?;
    let start = Start::now();
    run(flow.receives)?;
    Ok(start.moved(&flow))
}

/// Sends over the first connections.
pub(super) fn send(comms: &[Comm], flow: Flow, yields: bool) -> Result<Answer> {
    let buffers = Buffers::new(flow, flow.connections)?;
    let lanes = comms
        .iter()
        .zip(&buffers.0)
        .map(|(comm, buffer)| Ok(Sender::new(comm, Slots::new(comm, buffer, &flow)?, flow)));
    let mut lanes: Vec<Sender<'_>> = lanes.collect::<Result<_>>()?;
    let group = flow.group as u64;
    let mut clock = Clock::new(flow, lanes.len(), group);
    let mut patience = Patience::new("sending", yields);
    // There is no stop between warming up and measuring: the peer would run ahead.
    for sender in &mut lanes {
        sender.limit = (flow.warm_up + flow.receives) * group;
    }
    let mut done = 0;
    while done < clock.total {
        let before = done;
        for sender in &mut lanes {
            let already = sender.done;
            sender.post()?;
            sender.test()?;
            done += sender.done - already;
        }
        clock.at(done);
        if done == before {
            patience.again()?;
        } else {
            patience.renew();
        }
    }
    Ok(clock.answer(&flow))
}

/// Receives over the first connections.
pub(super) fn receive(comms: &[Comm], flow: Flow, yields: bool) -> Result<Answer> {
    let buffers = Buffers::new(flow, flow.connections)?;
    let lanes = comms
        .iter()
        .zip(&buffers.0)
        .map(|(comm, buffer)| Ok(Receiver::new(comm, Slots::new(comm, buffer, &flow)?, flow)));
    let mut lanes: Vec<Receiver<'_>> = lanes.collect::<Result<_>>()?;
    let mut clock = Clock::new(flow, lanes.len(), 1);
    let mut patience = Patience::new("receiving", yields);
    for receiver in &mut lanes {
        receiver.limit = flow.warm_up + flow.receives;
    }
    let mut done = 0;
    while done < clock.total {
        let before = done;
        for receiver in &mut lanes {
            let already = receiver.done;
            receiver.post()?;
            receiver.test()?;
            done += receiver.done - already;
        }
        clock.at(done);
        if done == before {
            patience.again()?;
        } else {
            patience.renew();
        }
    }
    Ok(clock.answer(&flow))
}

/// One buffer per end, every page there.
struct Buffers(Vec<Buffer>);

impl Buffers {
    fn new(flow: Flow, count: usize) -> Result<Self> {
        let make = |_| {
            let buffer = Buffer::new(Slots::bytes(&flow))?;
            buffer.touch();
            Ok(buffer)
        };
        (0..count).map(make).collect::<Result<_>>().map(Self)
    }
}

/// Starts when warming up is over.
struct Clock {
    start: Option<Start>,
    warm: u64,
    total: u64,
}

impl Clock {
    /// `unit`: how much is counted for one receive.
    fn new(flow: Flow, lanes: usize, unit: u64) -> Self {
        let scale = lanes as u64 * unit;
        Self {
            start: None,
            warm: flow.warm_up * scale,
            total: (flow.warm_up + flow.receives) * scale,
        }
    }

    #[inline]
    fn at(&mut self, done: u64) {
        if self.start.is_none() && done >= self.warm {
            self.start = Some(Start::now());
        }
    }

    fn answer(self, flow: &Flow) -> Answer {
        // Without a start there was nothing to be done.
        self.start.unwrap_or_else(Start::now).moved(flow)
    }
}

/// When measuring began.
struct Start {
    instructions: Option<Instructions>,
    processor: f64,
    began: Instant,
}

impl Start {
    fn now() -> Self {
        Self {
            instructions: Instructions::start(),
            processor: usage::thread(),
            began: Instant::now(),
        }
    }

    fn moved(self, flow: &Flow) -> Answer {
        let seconds = self.began.elapsed().as_secs_f64();
        Answer::Moved {
            seconds,
            processor: usage::thread() - self.processor,
            messages: flow.receives * (flow.group * flow.connections) as u64,
            instructions: self.instructions.and_then(Instructions::stop),
        }
    }
}
