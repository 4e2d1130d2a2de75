//! Test programs for the `verbs` crate and for devices as such, on the same devices.

use std::process::Command;
use std::time::Duration;

use super::programs::{required, run};
use crate::cast::Cast;
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "verbs/device-tests",
            scene: Scene::OneDevice,
            roles: &[device_tests],
            limit: Duration::from_secs(120),
            needs_processes: Some("it starts the test program of verbs"),
        },
        Scenario {
            name: "verbs/conformance",
            scene: Scene::OneDevice,
            roles: &[conformance],
            limit: Duration::from_secs(300),
            needs_processes: Some("it starts the program that the simulator is compared by"),
        },
    ]
}

fn device_tests(cast: &mut Cast) -> Result<(), Failure> {
    let before = cast.resources()?;
    let mut tests = Command::new(required(cast, "IBNET_TEST_VERBS")?);
    tests.env("IBNET_TEST_DEVICES", cast.device());
    run(tests.arg("--include-ignored"))?;
    cast.expect_resources(&before)
}

/// Observes one device, and the first pair of `IBNET_TEST_PAIRS`, which the program looks at itself.
fn conformance(cast: &mut Cast) -> Result<(), Failure> {
    let before = cast.resources()?;
    let mut program = Command::new(required(cast, "IBNET_TEST_CONFORMANCE")?);
    required(cast, "IBNET_TEST_PAIRS")?;
    run(program.env("IBNET_TEST_DEVICES", cast.device()))?;
    cast.expect_resources(&before)
}
