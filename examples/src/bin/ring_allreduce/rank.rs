//! One process of the ring. It talks to the launcher through its standard input and output.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::buffer::{self, Buffer};
use crate::options::{Check, Options};
use crate::pattern;
use crate::plugin::{Connection, Device, Handle, Network};
use crate::ring::{self, Idle, Ring};
use crate::wire::{FromRank, ToRank};

/// How often rank 0 tells the launcher how far it is: seldom enough not to be seen in the times.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Entry point of a rank.
pub(crate) fn run(rank: usize, options: &Options) -> ExitCode {
    let message = match work(rank, options) {
        Ok(()) => FromRank::Done,
        Err(error) => FromRank::Failed(error.to_string()),
    };
    let failed = message != FromRank::Done;
    // If the launcher cannot be told, it is gone, and nobody is left to tell.
    let sent = say(&message).is_ok();
    if failed || !sent {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn work(rank: usize, options: &Options) -> Result<(), Box<dyn Error>> {
    let plugin = options.find_plugin()?;
    let network = Network::open(&plugin, 0x1b9e7, options.verbose)?;
    let device = choose(&network.devices()?, &options.devices, rank)?;
    if device.largest_message < ring::SLICE * buffer::ELEMENT {
        return Err(format!(
            "{device}: messages of {} bytes at most",
            device.largest_message
        )
        .into());
    }
    say(&FromRank::Device(device.to_string()))?;

    let (right, left) = connect(&network, &device, options.timeout)?;
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
        let result = measure(&mut ring, rank, options, &input, size / 4)?;
        say(&result)?;
    }
    // Nobody closes while another one still waits for its last slice.
    barrier()?;
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
    timeout: Duration,
) -> Result<(Connection, Connection), Box<dyn Error>> {
    let (mut listener, handle) = network.listen(device)?;
    say(&FromRank::Handle(handle.to_vec()))?;
    let ToRank::Peer(peer) = hear()? else {
        return Err("expected a handle".into());
    };
    let mut peer: Handle = peer
        .try_into()
        .map_err(|_| "the handle of the neighbour has another length")?;
    let (mut right, mut left) = (None, None);
    let begin = Instant::now();
    let mut idle = Idle::new(timeout);
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
    input: &Buffer,
    elements: usize,
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
            barrier()?;
        } else if round == options.warmup {
            barrier()?;
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
            say(&FromRank::Progress(round + 1))?;
        }
    }
    Ok(FromRank::Result {
        microseconds: time.as_secs_f64() * 1e6 / f64::from(options.iterations),
        wrong: (options.check != Check::Never).then_some(wrong),
    })
}

/// Waits for all ranks.
fn barrier() -> Result<(), Box<dyn Error>> {
    say(&FromRank::Ready)?;
    match hear()? {
        ToRank::Go => Ok(()),
        ToRank::Peer(_) => Err("a handle out of turn".into()),
    }
}

fn say(message: &FromRank) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", message.to_line())?;
    out.flush()
}

/// The next message of the launcher, which has its own deadlines and ends this process if need be.
fn hear() -> Result<ToRank, Box<dyn Error>> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err("the launcher is gone".into());
    }
    ToRank::from_line(line.trim_end()).ok_or_else(|| format!("not a message: {line}").into())
}
