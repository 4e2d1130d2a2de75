//! The measurements: one end asks, the other answers in the same order.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use ibnet::Buffer;

use crate::Link;
use crate::options::Options;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The sizes to measure, in bytes.
fn sizes(options: &Options) -> impl Iterator<Item = usize> {
    let largest = options.max_size;
    [8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20]
        .into_iter()
        .filter(move |size| *size <= largest)
}

/// Round trips that are made before the clock counts.
fn warm_up(iterations: usize) -> usize {
    (iterations / 10).clamp(1, 100)
}

/// Messages in one bandwidth measurement: fewer of the large ones.
fn messages(options: &Options, size: usize) -> usize {
    const ENOUGH: usize = 256 << 20;
    (ENOUGH / size)
        .min(options.iterations * 10)
        .max(options.window)
}

/// Measures, and prints what it finds.
pub(crate) fn ask(link: &mut Link, options: &Options) -> Outcome<()> {
    println!("# half round trip");
    println!(
        "{:>10} {:>12} {:>12} {:>12}",
        "bytes", "median us", "p99 us", "least us"
    );
    for size in sizes(options) {
        let mut halves = Vec::with_capacity(options.iterations);
        let mut trip = Trip::new(link, size)?;
        for round in 0..warm_up(options.iterations) + options.iterations {
            let start = Instant::now();
            trip = trip.make(link, round as u8)?;
            if round >= warm_up(options.iterations) {
                halves.push(start.elapsed() / 2);
            }
        }
        halves.sort_unstable();
        let at = |part: f64| micros(halves[((halves.len() - 1) as f64 * part) as usize]);
        println!(
            "{size:>10} {:>12.2} {:>12.2} {:>12.2}",
            at(0.5),
            at(0.99),
            at(0.0)
        );
    }
    println!("# one direction, {} messages under way", options.window);
    println!("{:>10} {:>12} {:>12}", "bytes", "MB/s", "messages/s");
    for size in sizes(options) {
        let count = messages(options, size);
        let took = stream(link, size, count, options.window)?;
        let rate = count as f64 / took.as_secs_f64();
        println!(
            "{size:>10} {:>12.1} {:>12.0}",
            rate * size as f64 / 1e6,
            rate
        );
    }
    Ok(())
}

/// Answers [`ask`].
pub(crate) fn answer(link: &mut Link, options: &Options) -> Outcome<()> {
    for size in sizes(options) {
        let mut buffer = link.receiving.registrar().buffer(size)?;
        let mut reply = link.sending.registrar().buffer(size)?;
        for _ in 0..warm_up(options.iterations) + options.iterations {
            let ticket = link.receiving.recv(buffer, 0)?;
            buffer = link.receiving.wait(ticket)?;
            reply[0] = buffer[0];
            let ticket = link.sending.send(reply, 0)?;
            reply = link.sending.wait(ticket)?;
        }
    }
    for size in sizes(options) {
        let count = messages(options, size);
        let mut under_way = VecDeque::new();
        for number in 0..count {
            let buffer = if number < options.window {
                link.receiving.registrar().buffer(size)?
            } else {
                let oldest = under_way.pop_front().ok_or("the window is empty")?;
                link.receiving.wait(oldest)?
            };
            under_way.push_back(link.receiving.recv(buffer, 0)?);
        }
        for ticket in under_way {
            link.receiving.wait(ticket)?;
        }
        // Tells the other end that everything is here.
        let ticket = link.sending.send(link.sending.registrar().buffer(1)?, 0)?;
        link.sending.wait(ticket)?;
    }
    Ok(())
}

/// The two buffers of a round trip, made once: registering memory is not what is measured.
struct Trip {
    out: Buffer,
    back: Buffer,
}

impl Trip {
    fn new(link: &Link, size: usize) -> Outcome<Self> {
        Ok(Self {
            out: link.sending.registrar().buffer(size)?,
            back: link.receiving.registrar().buffer(size)?,
        })
    }

    fn make(self, link: &mut Link, mark: u8) -> Outcome<Self> {
        let Self { mut out, back } = self;
        out[0] = mark;
        let receive = link.receiving.recv(back, 0)?;
        let send = link.sending.send(out, 0)?;
        let back = link.receiving.wait(receive)?;
        let out = link.sending.wait(send)?;
        if back.len() != out.len() || back[0] != mark {
            return Err(format!("the answer of {} bytes is not the question", back.len()).into());
        }
        Ok(Self { out, back })
    }
}

fn stream(link: &mut Link, size: usize, count: usize, window: usize) -> Outcome<Duration> {
    let done = link
        .receiving
        .recv(link.receiving.registrar().buffer(1)?, 0)?;
    let mut spare = Vec::new();
    for _ in 0..window {
        spare.push(link.sending.registrar().buffer(size)?);
    }
    let mut under_way = VecDeque::new();
    let start = Instant::now();
    for _ in 0..count {
        let buffer = match spare.pop() {
            Some(buffer) => buffer,
            None => {
                let oldest = under_way.pop_front().ok_or("the window is empty")?;
                link.sending.wait(oldest)?
            }
        };
        under_way.push_back(link.sending.send(buffer, 0)?);
    }
    for ticket in under_way {
        link.sending.wait(ticket)?;
    }
    link.receiving.wait(done)?;
    Ok(start.elapsed())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
