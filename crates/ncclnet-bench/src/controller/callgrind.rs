//! Instructions per message, counted by valgrind.
//!
//! For machines whose counters cannot be read, virtual ones above all. Two runs of different length
//! are counted; their difference has no start-up in it.

use std::process::{Command, Stdio};

use super::Failure;
use super::peer::{Settings, worker};
use super::turns::{Quantity, Turn, Values, lower, take};
use crate::net::Source;
use crate::protocol::{self, Answer, Flow, Order};
use crate::report::Figure;

const INSTRUCTIONS: Quantity = lower("instructions per message (callgrind)", "");

/// Receives of the two runs.
const SHORT: u64 = 200;
const LONG: u64 = 2_200;

/// Counts for these networks.
pub(super) fn count(
    sources: &[&Source],
    flow: Flow,
    paths: u32,
    devices: &[String],
    conditions: &[(&str, u64)],
    notes: &mut Vec<String>,
) -> Vec<Figure> {
    let turns = sources.iter().map(|source| {
        Box::new(Counting {
            source,
            flow,
            paths,
            devices,
        }) as Box<dyn Turn + '_>
    });
    // Instructions are the same every time, so that once is enough.
    take("loop", conditions, 1, turns.collect(), notes)
}

struct Counting<'a> {
    source: &'a Source,
    flow: Flow,
    paths: u32,
    devices: &'a [String],
}

impl Turn for Counting<'_> {
    fn label(&self) -> &str {
        &self.source.label
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let (short, long) = (self.instructions(SHORT)?, self.instructions(LONG)?);
        let messages = (LONG - SHORT) * self.flow.group as u64;
        let each = long.saturating_sub(short) as f64 / messages as f64;
        Ok(vec![(INSTRUCTIONS, each)])
    }
}

impl Counting<'_> {
    /// All instructions of a worker that makes a connection and moves so many receives.
    fn instructions(&self, receives: u64) -> Result<u64, Failure> {
        let fail = |what: String| Failure(format!("{}: callgrind: {what}", self.source.label));
        let settings = Settings {
            paths: self.paths,
            yields: false,
        };
        let worker = worker(self.source, settings)?;
        let file = std::env::temp_dir().join(format!("ncclnet-bench-{}", std::process::id()));
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--quiet"]);
        command.arg(format!("--callgrind-out-file={}", file.display()));
        command.arg(worker.get_program()).args(worker.get_args());
        for (name, value) in worker.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| fail(format!("{error}; it is in the package valgrind")))?;
        let orders = [
            Order::Use {
                devices: self.devices.to_vec(),
            },
            Order::ConnectHere { count: 1, pause: 0 },
            Order::Loop(Flow {
                receives,
                warm_up: 10,
                ..self.flow
            }),
            Order::Quit,
        ];
        if let Some(mut input) = child.stdin.take() {
            for order in &orders {
                protocol::write(&mut input, order).map_err(|error| fail(error.to_string()))?;
            }
        }
        let output = child
            .wait_with_output()
            .map_err(|error| fail(error.to_string()))?;
        let mut answers = output.stdout.as_slice();
        let mut moved = false;
        while let Ok(Some(answer)) = protocol::read::<Answer>(&mut answers) {
            match answer {
                Answer::Failed(why) => return Err(fail(why)),
                Answer::Moved { .. } => moved = true,
                _ => {}
            }
        }
        let text = std::fs::read_to_string(&file).map_err(|error| fail(error.to_string()));
        // It may not be there; then the line above has failed.
        let _ = std::fs::remove_file(&file);
        match total(&text?) {
            Some(total) if moved => Ok(total),
            _ => Err(fail(format!("nothing was counted ({})", output.status))),
        }
    }
}

/// The total in a file of callgrind.
fn total(text: &str) -> Option<u64> {
    let line = |key| {
        text.lines()
            .find_map(move |line: &str| line.strip_prefix(key))
    };
    let total = line("totals:").or_else(|| line("summary:"))?;
    total.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(
            total("version: 1\nevents: Ir\n\nfn=(1) x\n1 5\n\ntotals: 123456\n"),
            Some(123_456)
        );
        assert_eq!(total("summary: 77\n"), Some(77));
        assert_eq!(total("events: Ir\n"), None);
    }
}
