//! Messages back and forth over two connections, and how long they take.

use std::ptr;
use std::slice;
use std::time::Instant;

use super::buffer::Buffer;
use super::patience::Patience;
use super::pattern;
use crate::net::{Comm, Error, Memory, Request, Result};
use crate::protocol::{Answer, Volley};
use crate::stats;

/// Receives that are posted in advance, so that the peer never waits for one: as many as NCCL has under
/// way on a channel (`NCCL_STEPS`).
const AHEAD: usize = 8;

/// Sends and waits for the answer.
pub(super) fn ping(send: &Comm, receive: &Comm, volley: Volley, yields: bool) -> Result<Answer> {
    let buffers = (Buffer::new(volley.size)?, Buffer::new(volley.size * AHEAD)?);
    let mut ends = Ends::new(send, receive, &buffers, volley, yields)?;
    // At most so many as the controller has asked for, which is bounded.
    let mut samples = Vec::with_capacity(volley.rounds as usize);
    for round in 0..volley.warm_up + volley.rounds {
        let began = Instant::now();
        ends.send(round)?;
        ends.receive(round)?;
        if round >= volley.warm_up {
            samples.push(began.elapsed().as_nanos() as f64 / 2.0);
        }
        ends.prepare(round)?;
    }
    ends.finish()?;
    samples.sort_by(f64::total_cmp);
    Ok(Answer::Latency {
        min: samples.first().copied().unwrap_or_default(),
        p50: stats::quantile(&samples, 0.5),
        p99: stats::quantile(&samples, 0.99),
    })
}

/// Waits for a message and answers.
pub(super) fn pong(send: &Comm, receive: &Comm, volley: Volley, yields: bool) -> Result<Answer> {
    let buffers = (Buffer::new(volley.size)?, Buffer::new(volley.size * AHEAD)?);
    let mut ends = Ends::new(send, receive, &buffers, volley, yields)?;
    for round in 0..volley.warm_up + volley.rounds {
        ends.receive(round)?;
        ends.send(round)?;
        ends.prepare(round)?;
    }
    ends.finish()?;
    Ok(Answer::Done)
}

struct Ends<'a> {
    send: &'a Comm,
    receive: &'a Comm,
    send_memory: Memory,
    receive_memory: Memory,
    out: *mut u8,
    into: *mut u8,
    volley: Volley,
    sending: Option<Request>,
    receiving: [Request; AHEAD],
    patience: Patience,
}

impl<'a> Ends<'a> {
    fn new(
        send: &'a Comm,
        receive: &'a Comm,
        buffers: &'a (Buffer, Buffer),
        volley: Volley,
        yields: bool,
    ) -> Result<Self> {
        buffers.0.touch();
        buffers.1.touch();
        // SAFETY: the buffers outlive the ends, which are made after them.
        let (send_memory, receive_memory) = unsafe {
            (
                send.register(buffers.0.at(0), buffers.0.length())?,
                receive.register(buffers.1.at(0), buffers.1.length())?,
            )
        };
        let mut ends = Self {
            send,
            receive,
            send_memory,
            receive_memory,
            out: buffers.0.at(0),
            into: buffers.1.at(0),
            volley,
            sending: None,
            receiving: [ptr::null_mut(); AHEAD],
            patience: Patience::new("a message and its answer", yields),
        };
        for round in 0..AHEAD as u64 {
            ends.post(round)?;
        }
        Ok(ends)
    }

    fn slot(&self, round: u64) -> *mut u8 {
        let index = (round % AHEAD as u64) as usize;
        self.into.wrapping_add(index * self.volley.size)
    }

    /// Posts the receive of a round, if there is to be one.
    fn post(&mut self, round: u64) -> Result<()> {
        if round >= self.volley.warm_up + self.volley.rounds {
            return Ok(());
        }
        loop {
            let (slot, size) = (self.slot(round), self.volley.size);
            // SAFETY: the slot is in the registered memory, and is not looked at before the request
            // is done.
            let request = unsafe { self.receive.irecv(slot, size, 1, 0, &self.receive_memory) }?;
            if let Some(request) = request {
                self.patience.renew();
                self.receiving[(round % AHEAD as u64) as usize] = request;
                return Ok(());
            }
            self.patience.again()?;
        }
    }

    fn send(&mut self, round: u64) -> Result<()> {
        self.finish()?;
        if self.volley.verify {
            // SAFETY: the last message from here has been sent.
            let bytes = unsafe { slice::from_raw_parts_mut(self.out, self.volley.size) };
            pattern::fill(bytes, round);
        }
        loop {
            // SAFETY: the memory is registered, and is not written to before the request is done.
            let request = unsafe {
                let size = self.volley.size;
                self.send.isend(self.out, size, 0, &self.send_memory)
            }?;
            if request.is_some() {
                self.patience.renew();
                self.sending = request;
                return Ok(());
            }
            self.patience.again()?;
        }
    }

    /// Waits until the last message has been sent.
    fn finish(&mut self) -> Result<()> {
        let mut sizes = [0; 8];
        while let Some(request) = self.sending {
            // SAFETY: the request is under way: it is forgotten once it is done.
            if unsafe { self.send.network().test(request, &mut sizes) }? {
                self.sending = None;
                self.patience.renew();
            } else {
                self.patience.again()?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, round: u64) -> Result<()> {
        let request = self.receiving[(round % AHEAD as u64) as usize];
        let mut sizes = [-1; 8];
        // SAFETY: the request of this round was posted, and is not done.
        while !unsafe { self.receive.network().test(request, &mut sizes) }? {
            self.patience.again()?;
        }
        self.patience.renew();
        if self.volley.verify {
            // SAFETY: the request is done, and the slot not posted again.
            let bytes = unsafe { slice::from_raw_parts(self.slot(round), self.volley.size) };
            let size_is_right = usize::try_from(sizes[0]) == Ok(self.volley.size);
            if !size_is_right || pattern::difference(bytes, round).is_some() {
                return Err(Error::Corrupt(format!("round {round} brought other bytes")));
            }
        }
        Ok(())
    }

    /// Posts the receive that takes the place of this round's.
    fn prepare(&mut self, round: u64) -> Result<()> {
        self.post(round + AHEAD as u64)
    }
}
