//! The whole comparison, test by test.

use super::contender::Contender;
use super::growth::{Making, PARTS};
use super::peer::Settings;
use super::plan::{Plan, Test};
use super::tests::{Effort, Moving, Registering, Trips};
use super::turns::{Turn, note, take};
use super::{Failure, callgrind, perftest};
use crate::net::Source;
use crate::protocol::Flow;
use crate::report::{Figure, Machine, NetworkOf, Run};

/// Measures everything that the plan says.
///
/// # Errors
///
/// If no network can be measured at all. What one of them cannot do is a note in the results.
pub(crate) fn run(plan: &Plan, command: Vec<String>) -> Result<Run, Failure> {
    let mut session = Session {
        plan,
        run: Run {
            title: plan.title.clone(),
            machine: Machine::here(),
            command,
            networks: Vec::new(),
            figures: Vec::new(),
            notes: Vec::new(),
        },
    };
    session.describe()?;
    session.on_standing_connections();
    session.on_growing_connections();
    Ok(session.run)
}

struct Session<'a> {
    plan: &'a Plan,
    run: Run,
}

/// Networks that take part, with their labels.
type Contenders = Vec<(String, Contender)>;

impl Session<'_> {
    fn has(&self, test: Test) -> bool {
        self.plan.tests.contains(&test) && test.is_for(&self.plan.place)
    }

    fn effort(&self) -> Effort {
        Effort {
            seconds: self.plan.seconds,
            verify: self.plan.verify,
        }
    }

    fn progress(&self, line: &str) {
        eprintln!("  {}: {line}", self.plan.title);
    }

    /// Finds out what the networks are; those that cannot be used at all are noted.
    fn describe(&mut self) -> Result<(), Failure> {
        let mut contenders = self.start(1, &self.plan.devices.clone());
        for (label, contender) in &mut contenders {
            let description = contender.describe()?;
            let nccl = description
                .nccl
                .map(|version| format!(" of NCCL {version}"));
            self.run.networks.push(NetworkOf {
                label: label.clone(),
                what: format!(
                    "network {}{}, table {} (version {}), devices {}",
                    description.name,
                    nccl.unwrap_or_default(),
                    description.symbol,
                    description.interface,
                    description.devices.join(" "),
                ),
            });
        }
        if self.run.networks.is_empty() {
            return Err(Failure(format!(
                "no network can be measured: {}",
                self.run.notes.join("; ")
            )));
        }
        if self.plan.perftest {
            match perftest::version() {
                Ok(version) => self.run.networks.push(NetworkOf {
                    label: perftest::LABEL.to_owned(),
                    what: version,
                }),
                Err(failure) => note(&mut self.run.notes, failure.to_string()),
            }
        }
        Ok(())
    }

    /// Starts the workers of all networks, as far as they can be started.
    fn start(&mut self, paths: u32, devices: &[String]) -> Contenders {
        let settings = Settings {
            paths,
            yields: self.plan.yields,
        };
        let mut contenders = Vec::new();
        for source in &self.plan.sources {
            match Contender::start(source, &self.plan.place, settings, devices) {
                Ok(contender) => contenders.push((source.label.clone(), contender)),
                Err(failure) => {
                    let mut line = failure.to_string();
                    if !devices.is_empty() {
                        line = format!("device {}: {line}", devices.join(" and "));
                    }
                    if paths > 1 {
                        line = format!("{paths} paths, {line}");
                    }
                    note(&mut self.run.notes, line);
                }
            }
        }
        contenders
    }

    /// Starts the workers, and gives each the connections that the tests need.
    fn connected(&mut self, paths: u32, devices: &[String]) -> Contenders {
        let mut contenders = self.start(paths, devices);
        contenders.retain_mut(|(_, contender)| {
            let both = contender
                .connect(1, 0)
                .and_then(|_| contender.connect_back());
            if let Err(failure) = &both {
                note(&mut self.run.notes, failure.to_string());
            }
            both.is_ok()
        });
        contenders
    }

    fn on_standing_connections(&mut self) {
        let plan = self.plan;
        let mut settings: Vec<(u32, u64, Vec<String>)> = Vec::new();
        for &paths in &plan.paths {
            settings.push((paths, 1, plan.devices.clone()));
            if let Some(merged) = &plan.merged {
                settings.push((paths, 2, vec![merged.clone()]));
            }
        }
        for (index, (paths, devices, names)) in settings.into_iter().enumerate() {
            let is_first = index == 0;
            if !is_first && !self.has(Test::Loop) {
                break;
            }
            let mut contenders = self.connected(paths, &names);
            if self.has(Test::Loop) {
                self.loops(&mut contenders, paths, devices, &names);
            }
            // The other tests have one setting: there is no end to combinations.
            if is_first {
                self.latency(&mut contenders);
                self.flows(&mut contenders);
                self.registrations(&mut contenders);
            }
        }
    }

    fn loops(&mut self, contenders: &mut Contenders, paths: u32, devices: u64, names: &[String]) {
        for &group in &self.plan.groups {
            for &window in &self.plan.windows {
                let size = self.plan.sizes.first().copied().unwrap_or(8);
                let flow = flow(size, window, group, 1);
                let conditions = [
                    ("size", size as u64),
                    ("window", window as u64),
                    ("group", group as u64),
                    ("paths", paths.into()),
                    ("devices", devices),
                ];
                self.moving(Test::Loop, flow, &conditions, contenders, Vec::new());
                if self.plan.callgrind {
                    // Who cannot do this setting has said so before.
                    let takes_part = |source: &&Source| {
                        contenders.iter().any(|(label, _)| *label == source.label)
                    };
                    let sources: Vec<_> = self.plan.sources.iter().filter(takes_part).collect();
                    let notes = &mut self.run.notes;
                    let figures =
                        callgrind::count(&sources, flow, paths, names, &conditions, notes);
                    self.keep(figures);
                }
            }
        }
    }

    /// Measures messages in one direction with everybody.
    fn moving(
        &mut self,
        test: Test,
        flow: Flow,
        conditions: &[(&str, u64)],
        contenders: &mut Contenders,
        others: Vec<Box<dyn Turn + '_>>,
    ) {
        let line: Vec<String> = conditions
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        self.progress(&format!("{} {}", test.name(), line.join(" ")));
        let effort = self.effort();
        let mut turns: Vec<Box<dyn Turn + '_>> = Vec::new();
        for (label, contender) in contenders {
            match Moving::prepare(label, contender, flow, test, effort) {
                Ok(turn) => turns.push(Box::new(turn)),
                Err(failure) => note(&mut self.run.notes, format!("{}: {failure}", test.name())),
            }
        }
        turns.extend(others);
        let figures = take(
            test.name(),
            conditions,
            self.plan.rounds,
            turns,
            &mut self.run.notes,
        );
        self.keep(figures);
    }

    fn keep(&mut self, figures: Vec<Figure>) {
        self.run.figures.extend(figures);
    }

    fn latency(&mut self, contenders: &mut Contenders) {
        if !self.has(Test::Latency) {
            return;
        }
        let effort = self.effort();
        for &size in &self.plan.sizes {
            self.progress(&format!("latency size {size}"));
            let mut turns: Vec<Box<dyn Turn + '_>> = Vec::new();
            for (label, contender) in contenders.iter_mut() {
                match Trips::prepare(label, contender, size, effort) {
                    Ok(turn) => turns.push(Box::new(turn)),
                    Err(failure) => note(&mut self.run.notes, format!("latency: {failure}")),
                }
            }
            if let Some(turn) = self.perftest(Test::Latency, size, 1) {
                turns.push(turn);
            }
            let conditions = [("size", size as u64)];
            let rounds = self.plan.rounds;
            let figures = take("latency", &conditions, rounds, turns, &mut self.run.notes);
            self.keep(figures);
        }
    }

    /// perftest's turn in a test, if it is to take part.
    fn perftest(
        &mut self,
        test: Test,
        size: usize,
        window: usize,
    ) -> Option<Box<dyn Turn + 'static>> {
        let takes_part = |network: &NetworkOf| network.label == perftest::LABEL;
        if !self.run.networks.iter().any(takes_part) {
            return None;
        }
        match perftest::Perftest::prepare(self.plan, test, size, window) {
            Ok(turn) => Some(Box::new(turn)),
            Err(failure) => {
                note(&mut self.run.notes, failure.to_string());
                None
            }
        }
    }

    fn flows(&mut self, contenders: &mut Contenders) {
        let plan = self.plan;
        let smallest = plan.sizes.first().copied().unwrap_or(8);
        let mut cases = Vec::new();
        for &window in &plan.windows {
            if self.has(Test::Bandwidth) {
                cases.extend(
                    plan.sizes
                        .iter()
                        .map(|&size| (Test::Bandwidth, size, window, 1)),
                );
            }
            if self.has(Test::Rate) {
                cases.push((Test::Rate, smallest, window, 1));
            }
            if self.has(Test::Groups) {
                let groups = plan.groups.iter().filter(|group| **group > 1);
                cases.extend(groups.map(|&group| (Test::Groups, GROUPED, window, group)));
            }
        }
        cases.sort();
        for (test, size, window, group) in cases {
            let mut conditions = vec![("size", size as u64), ("window", window as u64)];
            if test == Test::Groups {
                conditions.push(("group", group as u64));
            }
            let others = match test {
                Test::Bandwidth | Test::Rate => self.perftest(test, size, window),
                _ => None,
            };
            let flow = flow(size, window, group, 1);
            let others = others.into_iter().collect();
            self.moving(test, flow, &conditions, contenders, others);
        }
    }

    fn registrations(&mut self, contenders: &mut Contenders) {
        if !self.has(Test::Registrations) {
            return;
        }
        for &live in &self.plan.registrations {
            self.progress(&format!("registrations live {live}"));
            let turns = contenders.iter_mut().map(|(label, contender)| {
                Box::new(Registering {
                    label: label.clone(),
                    contender,
                    live,
                }) as Box<dyn Turn + '_>
            });
            let conditions = [("live", live as u64)];
            let (rounds, turns) = (self.plan.rounds, turns.collect());
            let figures = take(
                "registrations",
                &conditions,
                rounds,
                turns,
                &mut self.run.notes,
            );
            self.keep(figures);
        }
    }

    fn on_growing_connections(&mut self) {
        let (makes, moves) = (self.has(Test::Connections), self.has(Test::Growth));
        if !makes && !moves {
            return;
        }
        let mut contenders = self.start(1, &self.plan.devices.clone());
        for &target in &self.plan.connections {
            self.progress(&format!("connections {target}"));
            let turns = contenders.iter_mut().map(|(label, contender)| {
                let missing = target.saturating_sub(contender.connections);
                Box::new(Making {
                    label: label.clone(),
                    each: missing.div_ceil(PARTS),
                    contender,
                    target,
                }) as Box<dyn Turn + '_>
            });
            let conditions = [("connections", target as u64)];
            let turns = turns.collect();
            let mut figures = take(
                "connections",
                &conditions,
                PARTS,
                turns,
                &mut self.run.notes,
            );
            let notes = &mut self.run.notes;
            contenders.retain(|(label, contender)| {
                let made = contender.connections;
                if made < target {
                    // What they have taken is not what so many take.
                    figures.iter_mut().for_each(|figure| figure.forget(label));
                    note(notes, format!("{label}: {made} of {target} connections"));
                }
                made >= target
            });
            figures.retain(|figure| !figure.values.is_empty());
            if makes {
                self.keep(figures);
            }
            if moves {
                self.growth(&mut contenders, target);
            }
        }
        for (_, mut contender) in contenders {
            if let Err(failure) = contender.close() {
                note(&mut self.run.notes, failure.to_string());
            }
        }
    }

    /// Messages over one of the open connections, and over all of them in turn.
    fn growth(&mut self, contenders: &mut Contenders, open: usize) {
        let size = self.plan.sizes.first().copied().unwrap_or(8);
        for used in [1, open] {
            if used == open && open == 1 {
                continue;
            }
            let before = self.run.figures.len();
            let conditions = [("connections", open as u64)];
            let flow = flow(size, 1, 1, used);
            self.moving(Test::Growth, flow, &conditions, contenders, Vec::new());
            let suffix = if used == 1 {
                "one in use"
            } else {
                "all in use, in turn"
            };
            for figure in self.run.figures.iter_mut().skip(before) {
                figure.quantity = format!("{}, {suffix}", figure.quantity);
            }
        }
    }
}

/// Bytes of the messages in groups.
const GROUPED: usize = 1024;

fn flow(size: usize, window: usize, group: usize, connections: usize) -> Flow {
    Flow {
        size,
        window,
        group,
        connections,
        warm_up: 0,
        receives: 0,
        verify: false,
    }
}
