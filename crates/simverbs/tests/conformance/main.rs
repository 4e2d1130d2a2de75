//! How verbs behave: observed by one program on simulated and on real devices, and compared with
//! what the InfiniBand specification says.
//!
//! Without `IBNET_TEST_DEVICES` two simulated devices are used, free-running and stepped. With it, the first device that it
//! names, and the first pair of `IBNET_TEST_PAIRS` (`a:b`), as libibverbs has them.
//!
//! A behaviour is a line of what is demanded, a function that makes it happen and gives what it
//! has observed, and what must come out. Known deviations of Soft-RoCE are listed with their
//! reason, and have to be observed there: one that has gone is a failure.
//!
//! Arguments: a part of a name (only behaviours that contain it), or `--table` (prints
//! `docs/conformance.md`). Other options of test programs are accepted and ignored.

mod attributes;
mod behaviour;
mod completions;
mod delivery;
mod flushing;
mod forking;
mod immediates;
mod objects;
mod posting;
mod protection;
mod rig;
mod slots;
mod states;
mod table;
mod transfer;
mod wrapper;

use std::io::Write;
use std::process::ExitCode;

use behaviour::{Behaviour, Failure, list};
use rig::{Devices, Stage};

/// All behaviours, by subject, in the order in which they are observed.
const SUBJECTS: &[(&str, &[Behaviour])] = &[
    ("Forking", forking::BEHAVIOURS),
    ("States", states::BEHAVIOURS),
    ("Attributes and limits", attributes::BEHAVIOURS),
    ("Posting", posting::BEHAVIOURS),
    ("Places in the queues", slots::BEHAVIOURS),
    ("Moving data", transfer::BEHAVIOURS),
    ("Immediates", immediates::BEHAVIOURS),
    ("Protection", protection::BEHAVIOURS),
    ("Delivery", delivery::BEHAVIOURS),
    ("Flushing", flushing::BEHAVIOURS),
    ("Completion queues", completions::BEHAVIOURS),
    ("Objects and queries", objects::BEHAVIOURS),
    ("What `verbs` makes of it", wrapper::BEHAVIOURS),
];

/// How one observation turned out.
enum Verdict {
    /// As specified.
    Conforms,
    /// As known of the device.
    Deviates(&'static str),
    /// Neither.
    Failed(String),
}

fn main() -> ExitCode {
    let mut filter = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--table" => {
                print!("{}", table::page(SUBJECTS));
                return ExitCode::SUCCESS;
            }
            option if option.starts_with('-') => {}
            name => filter = Some(name.to_owned()),
        }
    }
    match run(filter.as_deref()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Observes all behaviours whose name contains `filter`. Gives how many failed.
fn run(filter: Option<&str>) -> Result<usize, Failure> {
    let all = Devices::from_env()?;
    let is_wanted = |name: &str| filter.is_none_or(|part| name.contains(part));
    let (mut passed, mut failed) = (0, 0);
    let mut count = |verdict: Verdict| {
        match verdict {
            Verdict::Conforms => println!("ok"),
            Verdict::Deviates(reason) => println!("deviates as documented: {reason}"),
            Verdict::Failed(ref why) => println!("FAILED\n{why}"),
        }
        match verdict {
            Verdict::Failed(_) => failed += 1,
            _ => passed += 1,
        }
    };
    for (_, behaviours) in SUBJECTS {
        for behaviour in behaviours
            .iter()
            .filter(|behaviour| is_wanted(behaviour.name))
        {
            for devices in &all {
                for names in devices.stages(behaviour.place) {
                    count(observe(devices, &names, behaviour));
                }
            }
        }
    }
    if matches!(all[..], [Devices::Simulated { .. }, ..]) && is_wanted(DOCUMENTATION) {
        announce(DOCUMENTATION);
        count(check_documentation());
    }
    println!("\n{passed} passed, {failed} failed");
    Ok(failed)
}

/// Says which test it is, so that one that hangs is known.
fn announce(test: &str) {
    print!("test {test} ... ");
    // The line then comes with the verdict.
    let _ = std::io::stdout().flush();
}

fn observe(devices: &Devices, names: &[String; 2], behaviour: &Behaviour) -> Verdict {
    let stage = match devices.open(names) {
        Ok(stage) => stage,
        Err(failure) => {
            announce(behaviour.name);
            return Verdict::Failed(format!("  opening the devices: {failure}"));
        }
    };
    announce(&format!("{} ({})", behaviour.name, stage.title));
    let verdict = judge(&stage, behaviour);
    match stage.close() {
        Ok(()) => verdict,
        Err(failure) => Verdict::Failed(format!("  {failure}")),
    }
}

fn judge(stage: &Stage, behaviour: &Behaviour) -> Verdict {
    let rxe = match stage.is_rxe() {
        Ok(is_rxe) => behaviour.rxe.as_ref().filter(|_| is_rxe),
        Err(failure) => return Verdict::Failed(format!("  {failure}")),
    };
    let observed = match (behaviour.observe)(stage) {
        Ok(observed) => observed,
        Err(failure) => return Verdict::Failed(format!("  {}\n  {failure}", behaviour.says)),
    };
    let told = format!(
        "  {}\n  expected: {}\n  observed: {}",
        behaviour.says,
        list(behaviour.expected),
        list(&observed)
    );
    match rxe {
        None if observed == behaviour.expected => Verdict::Conforms,
        None => Verdict::Failed(told),
        Some(deviation) if observed == deviation.observed => Verdict::Deviates(deviation.reason),
        Some(_) if observed == behaviour.expected => Verdict::Failed(format!(
            "{told}\n  which is right, although a deviation is documented"
        )),
        Some(deviation) => Verdict::Failed(format!(
            "{told}\n  documented deviation: {}",
            list(deviation.observed)
        )),
    }
}

const DOCUMENTATION: &str = "the_documentation_is_current";

fn check_documentation() -> Verdict {
    let page = table::page(SUBJECTS);
    match std::fs::read_to_string(table::FILE) {
        Ok(text) if text == page => Verdict::Conforms,
        Ok(_) => Verdict::Failed(format!("  {} is not what --table prints", table::FILE)),
        Err(error) => Verdict::Failed(format!("  {}: {error}", table::FILE)),
    }
}
