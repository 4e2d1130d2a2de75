//! One rank of the ring, a process or a thread.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::buffer::{self, Buffer};
use crate::line::Line;
use crate::options::{Check, Options};
use crate::pattern;
use crate::plugin::{Connection, Device, Handle, Network, Source};
use crate::ring::{self, Idle, Ring};
use crate::wire::{FromRank, ToRank};

/// How often rank 0 tells the launcher how far it is: seldom enough not to be seen in the times.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// A rank that is a process: it loads the plugin. Its exit status is for the launcher, too.
pub(crate) fn run_process(rank: usize, options: &Options) -> ExitCode {
    let line = Line::Pipes;
    let plugin = options.find_plugin().map(Source::File);
    let outcome = plugin
        .map_err(Into::into)
        .and_then(|plugin| work(rank, options, &plugin, &line));
    if end(&line, outcome) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A rank that is a thread, on the plugin that is linked in.
pub(crate) fn run_thread(rank: usize, options: &Options, line: &Line) {
    let outcome = work(rank, options, &Source::Linked, line);
    // What went wrong is the launcher's to tell.
    end(line, outcome);
}

/// Tells the launcher how it ended. Whether it ended well, as far as the launcher knows.
fn end(line: &Line, outcome: Result<(), Box<dyn Error>>) -> bool {
    let message = match outcome {
        Ok(()) => FromRank::Done,
        Err(error) => FromRank::Failed(error.to_string()),
    };
    // If the launcher cannot be told, it is gone, and nobody is left to tell.
    line.say(&message).is_ok() && message == FromRank::Done
}

fn work(
    rank: usize,
    options: &Options,
    plugin: &Source,
    line: &Line,
) -> Result<(), Box<dyn Error>> {
    let network = Network::open(plugin, 0x1b9e7, options.verbose)?;
    let device = choose(&network.devices()?, &options.devices, rank)?;
    if device.largest_message < ring::SLICE * buffer::ELEMENT {
        return Err(format!(
            "{device}: messages of {} bytes at most",
            device.largest_message
        )
        .into());
    }
    line.say(&FromRank::Device(device.to_string()))?;

    let (right, left) = connect(&network, &device, options, line)?;
    let elements = options.largest() / 4;
    let mut ring = Ring::new(
        (rank, options.ranks),
        right,
        left,
        elements,
        options.timeout,
    )?;
    let input = Buffer::new(elements);
    for size in &options.sizes {
        let result = measure(&mut ring, rank, options, (&input, size / 4), line)?;
        line.say(&result)?;
    }
    // Nobody closes while another one still waits for its last slice.
    barrier(line)?;
    Ok(())
}

/// The device of a rank: the wanted ones, or else all, in turn.
fn choose(devices: &[Device], wanted: &[String], rank: usize) -> Result<Device, String> {
    let known = || {
        devices
            .iter()
            .map(|device| device.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let device = if wanted.is_empty() {
        devices.get(rank % devices.len().max(1))
    } else {
        let name = &wanted[rank % wanted.len()];
        let found = devices.iter().find(|device| device.is(name));
        return found
            .cloned()
            .ok_or_else(|| format!("there is no device {name}; there are {}", known()));
    };
    device
        .cloned()
        .ok_or_else(|| "the plugin has no devices".to_owned())
}

/// The connections to both neighbours: out to the right one, in from the left one. Both are made at
/// the same time, because each rank waits for the one that waits for it.
fn connect(
    network: &Network,
    device: &Device,
    options: &Options,
    line: &Line,
) -> Result<(Connection, Connection), Box<dyn Error>> {
    let (mut listener, handle) = network.listen(device)?;
    line.say(&FromRank::Handle(handle.to_vec()))?;
    let ToRank::Peer(peer) = line.hear()? else {
        return Err("expected a handle".into());
    };
    let mut peer: Handle = peer
        .try_into()
        .map_err(|_| "the handle of the neighbour has another length")?;
    let (mut right, mut left) = (None, None);
    let begin = Instant::now();
    let mut idle = Idle::new(options.timeout, options.ranks);
    loop {
        if right.is_none() {
            right = network.poll_connect(device, &mut peer)?;
        }
        if left.is_none() {
            left = listener.poll_accept()?;
        }
        match (right, left) {
            (Some(right), Some(left)) => return Ok((right, left)),
            unfinished => (right, left) = unfinished,
        }
        idle.pause(false).map_err(|_| {
            let missing = match (&right, &left) {
                (None, None) => "either neighbour",
                (None, _) => "the right neighbour",
                _ => "the left neighbour",
            };
            format!(
                "no connection with {missing} after {} s",
                begin.elapsed().as_secs()
            )
        })?;
    }
}

/// All rounds of one size.
fn measure(
    ring: &mut Ring,
    rank: usize,
    options: &Options,
    (input, elements): (&Buffer, usize),
    line: &Line,
) -> Result<FromRank, Box<dyn Error>> {
    let rounds = options.warmup + options.iterations;
    let mut time = Duration::ZERO;
    let mut wrong = 0;
    let mut told = Instant::now();
    for round in 0..rounds {
        let is_last = round + 1 == rounds;
        // The same data in all rounds, unless each is checked.
        let seed = if options.check == Check::Always {
            round as usize
        } else {
            0
        };
        if round == 0 || options.check == Check::Always {
            input.fill(elements, |index| pattern::input(rank, seed, index));
            barrier(line)?;
        } else if round == options.warmup {
            barrier(line)?;
        }

        let begin = Instant::now();
        // The vector is what was there before, so a round that does nothing is noticed.
        ring.vector().copy(input, elements);
        ring.all_reduce(elements)?;
        if round >= options.warmup {
            time += begin.elapsed();
        }

        let checked = match options.check {
            Check::Never => false,
            Check::Last => is_last,
            Check::Always => true,
        };
        if checked {
            let expected = |index| pattern::sum(options.ranks, seed, index);
            wrong += ring.vector().count_wrong(elements, expected);
        }
        if rank == 0 && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            line.say(&FromRank::Progress(round + 1))?;
        }
    }
    Ok(FromRank::Result {
        microseconds: time.as_secs_f64() * 1e6 / f64::from(options.iterations),
        wrong: (options.check != Check::Never).then_some(wrong),
    })
}

/// Waits for all ranks.
fn barrier(line: &Line) -> Result<(), Box<dyn Error>> {
    line.say(&FromRank::Ready)?;
    match line.hear()? {
        ToRank::Go => Ok(()),
        ToRank::Peer(_) => Err("a handle out of turn".into()),
    }
}
