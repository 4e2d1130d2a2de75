//! Plays every scenario on the simulator, each role a thread.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use ibnet_scenarios::play::{Outcome, Scenario, Scene};
use ibnet_scenarios::simulation::{Simulation, run};
use ibnet_simverbs::{DeviceSpec, Fabric};

fn main() -> ExitCode {
    // As for any test program: the first argument that is no option selects by name.
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    for scenario in ibnet_scenarios::all() {
        for place in places(&scenario) {
            let name = format!("{} on {}", scenario.name, place.join("-"));
            if !name.contains(&filter) {
                continue;
            }
            match play(&scenario, &place) {
                Outcome::Passed(seconds) => {
                    passed += 1;
                    println!("test {name} ... ok ({seconds:.1} s)");
                }
                Outcome::NotRun(why) => {
                    println!("left to processes: {name}: {why}");
                }
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("test {name} ... FAILED: {why}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 || passed == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn places(scenario: &Scenario) -> Vec<Vec<String>> {
    let (single, pair) = (
        vec!["sim0".to_owned()],
        vec!["sima".to_owned(), "simb".to_owned()],
    );
    let ends = |(one, other)| vec![end('a', one), end('b', other)];
    match scenario.scene {
        Scene::Everywhere => vec![single, pair, ends((2, 2))],
        Scene::Ends(counts) => counts.iter().copied().map(ends).collect(),
        Scene::OneDeviceAndPair => vec![single, pair],
        Scene::Pair => vec![pair],
        Scene::OneDevice => vec![single],
        // Every scenario without a device is about a program that looks for one.
        Scene::NoDevice => Vec::new(),
    }
}

/// An end of so many devices.
fn end(side: char, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|index| format!("{side}{index}")).collect();
    names.join("+")
}

/// Plays on a fabric of its own, on which nothing may be left.
fn play(scenario: &Scenario, devices: &[String]) -> Outcome {
    let members = devices.iter().flat_map(|end| end.split('+'));
    let fabric = members
        .fold(Fabric::builder(), |builder, name| {
            builder.device(DeviceSpec::roce(name))
        })
        .build();
    let fabric = match fabric {
        Ok(fabric) => fabric,
        Err(error) => return Outcome::Failed(format!("no fabric: {error}")),
    };
    let counted = fabric.clone();
    let simulation = Arc::new(Simulation {
        library: fabric.library(),
        objects: Box::new(move || objects(&counted)),
    });
    let outcome = run(scenario, devices, &simulation);
    let left = fabric.live_objects();
    match outcome {
        Outcome::Passed(_) if !left.is_empty() => {
            Outcome::Failed(format!("left behind at the end: {left:?}"))
        }
        outcome => outcome,
    }
}

fn objects(fabric: &Fabric) -> BTreeMap<String, u64> {
    let live = fabric.live_objects();
    [
        ("contexts", live.contexts),
        ("pds", live.pds),
        ("mrs", live.mrs),
        ("channels", live.channels),
        ("cqs", live.cqs),
        ("qps", live.qps),
    ]
    .map(|(object, number)| (object.to_owned(), number as u64))
    .into()
}
