//! `cargo xtask test`: every tier of tests, cheap ones first, and a summary.
//!
//! A tier that fails does not stop the next, so that one run tells everything that is wrong.

mod programs;
mod summary;
mod tiers;

use std::env;

use crate::args::{Flag, Parsed};
use crate::failure::Result;
use crate::progress::{Step, note};
use crate::setup::{self, Group};
use crate::soft_roce::{self, Job, Options};

use summary::{Outcome, Summary};

/// Options of `test` alone.
pub(crate) const FLAGS: &[Flag] = &[Flag {
    name: "--no-soft-roce",
    value: None,
    help: "Leave the Soft-RoCE tier out (not where CI=true)",
}];

/// Entry point of the subcommand: 0 if every tier has passed.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    // Before the first tier, because a wrong option should not show only at the last.
    let options = Options::new(
        parsed,
        Job::Scenarios { filter: None },
        soft_roce::devices_from_environment(),
    )?;
    setup::ensure(&[Group::Build])?;
    let mut summary = Summary::default();
    for (name, tier) in tiers::CHEAP {
        measure(&mut summary, name, tier);
    }
    if parsed.has("--no-soft-roce") {
        summary.add("soft-roce", Outcome::NotRun, 0.0);
    } else {
        measure(&mut summary, "soft-roce", || tiers::soft_roce(&options));
    }
    print!("{}", summary.render());
    let may_leave_out = env::var("CI").as_deref() != Ok("true");
    Ok(u8::from(!summary.is_success(may_leave_out)))
}

fn measure(summary: &mut Summary, name: &'static str, tier: impl FnOnce() -> Result<Outcome>) {
    let step = Step::begin(&format!("tier {name}"));
    let outcome = tier().unwrap_or_else(|failure| {
        note(&failure.to_string());
        Outcome::failed()
    });
    step.done(&format!("tier {name}: {}", outcome.word()));
    summary.add(name, outcome, step.seconds());
}
