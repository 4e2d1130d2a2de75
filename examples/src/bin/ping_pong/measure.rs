//! The measurements: one end asks, the other answers in the same order.
//!
//! Both ends keep receives posted in advance, as a program that cares for latency does: the peer
//! then never waits for an announcement.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use ibnet::{Buffer, RecvConnection, RecvTicket, SendConnection, Wait};
use ibnet_examples::say;

use crate::options::{Options, SMALLEST};

/// What may fail here fails for many reasons.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// One end: a connection in each direction, and what is posted on them.
pub(crate) struct End<'a> {
    sending: SendConnection,
    receiving: RecvConnection,
    posted: VecDeque<RecvTicket>,
    options: &'a Options,
}

/// The sizes to measure, in bytes.
fn sizes(options: &Options) -> impl Iterator<Item = usize> {
    let largest = options.max_size;
    let all = [SMALLEST, 64, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20];
    all.into_iter().filter(move |size| *size <= largest)
}

/// Round trips for messages of `size`: fewer of the large ones.
fn round_trips(options: &Options, size: usize) -> usize {
    const ENOUGH: usize = 64 << 20;
    options.iterations.min((ENOUGH / size).max(10))
}

/// Messages in one bandwidth measurement: fewer of the large ones.
fn messages(options: &Options, size: usize) -> usize {
    const ENOUGH: usize = 128 << 20;
    let wanted = options.iterations.saturating_mul(10);
    wanted.min(ENOUGH / size).max(options.window)
}

/// Round trips that are made before the clock counts.
fn warm_up(count: usize) -> usize {
    (count / 10).clamp(1, 100)
}

impl<'a> End<'a> {
    /// Posts the receives.
    pub(crate) fn new(
        sending: SendConnection,
        receiving: RecvConnection,
        options: &'a Options,
    ) -> Outcome<Self> {
        let mut end = Self {
            sending,
            receiving,
            posted: VecDeque::new(),
            options,
        };
        for _ in 0..options.window.max(2) {
            let buffer = end.receiving.registrar().buffer(options.max_size)?;
            end.post(buffer)?;
        }
        Ok(end)
    }

    /// Measures, and prints what it finds.
    pub(crate) fn ask(&mut self) -> Outcome<()> {
        say!("# half round trip");
        say!(
            "{:>10} {:>12} {:>12} {:>12}",
            "bytes",
            "median us",
            "p99 us",
            "least us"
        );
        for size in sizes(self.options) {
            let mut halves = self.round_trips(size)?;
            halves.sort_unstable();
            let at = |part: f64| micros(halves[((halves.len() - 1) as f64 * part) as usize]);
            say!(
                "{size:>10} {:>12.2} {:>12.2} {:>12.2}",
                at(0.5),
                at(0.99),
                at(0.0)
            );
        }
        say!(
            "# one direction, {} messages under way",
            self.options.window
        );
        say!("{:>10} {:>12} {:>12}", "bytes", "MB/s", "messages/s");
        for size in sizes(self.options) {
            let count = messages(self.options, size);
            let rate = count as f64 / self.stream(size, count)?.as_secs_f64();
            say!(
                "{size:>10} {:>12.1} {:>12.0}",
                rate * size as f64 / 1e6,
                rate
            );
        }
        // The peer leaves last, so that nothing is posted to somebody who has left.
        let ticket = self
            .sending
            .send(self.sending.registrar().buffer(1)?, 0)
            .wait()?;
        self.sending.finish(ticket).wait()?;
        Ok(())
    }

    /// Answers [`ask`](Self::ask).
    pub(crate) fn answer(&mut self) -> Outcome<()> {
        for size in sizes(self.options) {
            let mut reply = self.sending.registrar().buffer(size)?;
            let count = round_trips(self.options, size);
            for _ in 0..warm_up(count) + count {
                let question = self.take(size)?;
                reply[0] = question[0];
                let ticket = self.sending.send(reply, 0).wait()?;
                self.post(question)?;
                reply = self.sending.finish(ticket).wait()?;
            }
        }
        for size in sizes(self.options) {
            for _ in 0..messages(self.options, size) {
                let message = self.take(size)?;
                self.post(message)?;
            }
            // Tells the other end that everything is here.
            let ticket = self
                .sending
                .send(self.sending.registrar().buffer(1)?, 0)
                .wait()?;
            self.sending.finish(ticket).wait()?;
        }
        self.take(1)?;
        Ok(())
    }

    /// Half the time of each round trip.
    fn round_trips(&mut self, size: usize) -> Outcome<Vec<Duration>> {
        let count = round_trips(self.options, size);
        let mut halves = Vec::with_capacity(count);
        let mut question = self.sending.registrar().buffer(size)?;
        for round in 0..warm_up(count) + count {
            question[0] = round as u8;
            let start = Instant::now();
            let ticket = self.sending.send(question, 0).wait()?;
            let answer = self.take(size)?;
            let took = start.elapsed();
            question = self.sending.finish(ticket).wait()?;
            if answer[0] != question[0] {
                return Err("the answer is not that to the question".into());
            }
            self.post(answer)?;
            if round >= warm_up(count) {
                halves.push(took / 2);
            }
        }
        Ok(halves)
    }

    /// The time from the first message to the peer's word that all have arrived.
    fn stream(&mut self, size: usize, count: usize) -> Outcome<Duration> {
        let mut spare = Vec::new();
        for _ in 0..self.options.window {
            spare.push(self.sending.registrar().buffer(size)?);
        }
        let mut under_way = VecDeque::new();
        let start = Instant::now();
        for _ in 0..count {
            let buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => {
                    let oldest = under_way.pop_front().ok_or("the window is empty")?;
                    self.sending.finish(oldest).wait()?
                }
            };
            under_way.push_back(self.sending.send(buffer, 0).wait()?);
        }
        for ticket in under_way {
            self.sending.finish(ticket).wait()?;
        }
        let done = self.take(1)?;
        let took = start.elapsed();
        self.post(done)?;
        Ok(took)
    }

    /// Posts a receive for messages of any size that is measured.
    fn post(&mut self, mut buffer: Buffer) -> Outcome<()> {
        buffer.set_length(self.options.max_size);
        self.posted
            .push_back(self.receiving.recv(buffer, 0).wait()?);
        Ok(())
    }

    /// Waits for the next message, which must have `size` bytes.
    fn take(&mut self, size: usize) -> Outcome<Buffer> {
        let oldest = self.posted.pop_front().ok_or("no receive is posted")?;
        let buffer = self.receiving.finish(oldest).wait()?;
        if buffer.len() != size {
            return Err(format!("{} bytes arrived instead of {size}", buffer.len()).into());
        }
        Ok(buffer)
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
