//! Starts the ranks, carries handles between them, and prints what they measure.

use ibnet::Config;
use ibnet_examples::{Devices, say, showing_warnings};

use crate::options::Options;
use crate::plugin::Source;
use crate::ranks::Ranks;
use crate::report::{Report, Row};
use crate::wire::{FromRank, ToRank};

/// Runs everything.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    // What follows is said by the plugin.
    let (mut config, devices) = showing_warnings(|| {
        let config = Config::from_env().map_err(|error| error.to_string())?;
        let devices = Devices::open(options.wanted, config.clone());
        Ok::<_, String>((config, devices.map_err(|error| error.to_string())?))
    })?;
    let seats = match &devices {
        Devices::Real(_) => "each rank a process",
        Devices::Simulated(_) => "each rank a thread",
    };
    say!("# ring all-reduce {devices}, {seats}");
    match devices {
        Devices::Real(transport) => {
            // Only to see that there are some: the ranks open them themselves.
            drop(transport);
            reduce(options, &Source::File(options.find_plugin()?))
        }
        Devices::Simulated(simulator) => {
            simulator
                .adapt(&mut config)
                .map_err(|error| error.to_string())?;
            ncclnet_ffi::use_settings(config);
            ncclnet_ffi::use_library(simulator.library());
            reduce(options, &Source::Linked)
        }
    }
}

/// All sizes.
fn reduce(options: &Options, plugin: &Source) -> Result<(), String> {
    let mut ranks = Ranks::start(options, plugin)?;
    let devices = ranks.gather(|message| match message {
        FromRank::Device(text) => Some(text),
        _ => None,
    })?;
    let handles = ranks.gather(|message| match message {
        FromRank::Handle(bytes) => Some(bytes),
        _ => None,
    })?;
    say!("# through {plugin}");
    let mut report = Report::begin(&devices);
    for rank in 0..options.ranks {
        let right = &handles[(rank + 1) % options.ranks];
        ranks.tell(rank, &ToRank::Peer(right.clone()))?;
    }
    for size in &options.sizes {
        let row = measure(&mut ranks, options, *size, &mut report).inspect_err(|_| {
            report.clear_progress();
        })?;
        report.row(&row);
    }
    ranks.barrier()?;
    ranks.gather(|message| (message == FromRank::Done).then_some(()))?;
    ranks.end()?;
    match report.end() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements are wrong")),
    }
}

/// One size: barriers until all ranks have a result.
fn measure(
    ranks: &mut Ranks,
    options: &Options,
    size: usize,
    report: &mut Report,
) -> Result<Row, String> {
    enum Step {
        Ready,
        Result(f64, Option<u64>),
    }
    let rounds = options.warmup + options.iterations;
    loop {
        let steps = ranks.gather_or(
            |message| match message {
                FromRank::Ready => Some(Step::Ready),
                FromRank::Result {
                    microseconds,
                    wrong,
                } => Some(Step::Result(microseconds, wrong)),
                _ => None,
            },
            |done| report.progress(size, done, rounds),
        )?;
        let mut row = Row {
            size,
            microseconds: 0.0,
            wrong: None,
        };
        let mut results = 0;
        for step in &steps {
            if let Step::Result(microseconds, wrong) = step {
                results += 1;
                row.microseconds = row.microseconds.max(*microseconds);
                row.wrong = match (row.wrong, wrong) {
                    (None, wrong) => *wrong,
                    (Some(before), wrong) => Some(before + wrong.unwrap_or(0)),
                };
            }
        }
        match results {
            0 => ranks.go()?,
            _ if results == steps.len() => return Ok(row),
            _ => return Err("the ranks do not agree on how many rounds there are".to_owned()),
        }
    }
}
