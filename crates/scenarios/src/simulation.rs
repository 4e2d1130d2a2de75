//! Plays a scenario on simulated devices, each role in a thread of this process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

use crate::cast::Cast;
use crate::log;
use crate::mail::{FromRole, Mail, Post};
use crate::play::{Failure, Outcome, Scenario};

/// Where the simulated devices are.
pub struct Simulation {
    /// Gives the simulated devices.
    pub library: ibnet_verbs::Library,
    /// Counts what is alive in them: object, number.
    pub objects: Box<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>,
}

/// The post of a thread.
struct Channels {
    role: usize,
    letters: Receiver<(usize, Vec<u8>)>,
    others: Vec<Sender<(usize, Vec<u8>)>>,
}

impl Post for Channels {
    fn tell_runner(&self, line: &FromRole) -> Result<(), Failure> {
        match line {
            FromRole::Mail { to, bytes } => {
                let other = self
                    .others
                    .get(*to)
                    .ok_or_else(|| format!("there is no role {to}"))?;
                // A role that has ended needs no mail.
                let _ = other.send((self.role, bytes.clone()));
                Ok(())
            }
            FromRole::Kill { .. } => Err("a thread cannot be killed".into()),
            FromRole::Skip { why } => Err(why.clone().into()),
            FromRole::Other(text) => {
                println!("  [{}] {text}", self.role);
                Ok(())
            }
        }
    }

    fn next_letter(&mut self) -> Result<(usize, Vec<u8>), Failure> {
        self.letters
            .recv()
            .map_err(|_| "all others left while mail was due".into())
    }
}

/// Plays `scenario`, role n on device n modulo the number of `devices`.
///
/// A role that hangs keeps its thread: the outcome says so, and the process should end.
pub fn run(scenario: &Scenario, devices: &[String], simulation: &Arc<Simulation>) -> Outcome {
    if let Some(why) = scenario.needs_processes {
        return Outcome::NotRun(why.to_owned());
    }
    log::install();
    let start = Instant::now();
    let count = scenario.roles.len();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let (finished, endings) = channel();
    for (role, letters) in receivers.into_iter().enumerate() {
        // No role keeps a sender to itself: when all others have left, waiting for mail ends.
        let others = senders
            .iter()
            .enumerate()
            .map(|(other, sender)| {
                if other == role {
                    channel().0
                } else {
                    sender.clone()
                }
            })
            .collect();
        let mail = Mail::new(Channels {
            role,
            letters,
            others,
        });
        let mut cast = Cast::simulated(role, devices.to_vec(), mail, Arc::clone(simulation));
        let (act, finished) = (scenario.roles[role], finished.clone());
        let spawned = thread::Builder::new()
            .name(format!("role-{role}"))
            .spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| act(&mut cast)));
                drop(cast);
                let outcome = outcome.unwrap_or_else(|_| Err("it panicked".into()));
                let _ = finished.send((role, outcome.map_err(|error| error.to_string())));
            });
        if let Err(error) = spawned {
            return Outcome::Failed(format!("cannot start role {role}: {error}"));
        }
    }
    drop((senders, finished));
    await_all(count, &endings, start + scenario.limit, start)
}

fn await_all(
    count: usize,
    endings: &Receiver<(usize, Result<(), String>)>,
    deadline: Instant,
    start: Instant,
) -> Outcome {
    let mut failures = Vec::new();
    for _ in 0..count {
        let left = deadline.saturating_duration_since(Instant::now());
        match endings.recv_timeout(left) {
            Ok((_, Ok(()))) => {}
            Ok((role, Err(why))) => failures.push(format!("role {role}: {why}")),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                failures.push("hang: a role has not ended".to_owned());
                break;
            }
        }
    }
    if failures.is_empty() {
        Outcome::Passed(start.elapsed().as_secs_f64())
    } else {
        Outcome::Failed(failures.join("; "))
    }
}
