//! The program that simulated devices are compared with real ones by, on the same devices.

use std::process::Command;
use std::time::Duration;

use super::programs::{required, run};
use crate::cast::Cast;
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "verbs/conformance",
        scene: Scene::OneDevice,
        roles: &[conformance],
        limit: Duration::from_secs(300),
        needs_processes: Some("it starts the program that the simulator is compared by"),
    }]
}

/// Observes one device, and the first pair of `IBNET_TEST_PAIRS`, which the program looks at itself.
fn conformance(cast: &mut Cast) -> Result<(), Failure> {
    let before = cast.resources()?;
    let mut program = Command::new(required(cast, "IBNET_TEST_CONFORMANCE")?);
    required(cast, "IBNET_TEST_PAIRS")?;
    run(program.env("IBNET_TEST_DEVICES", cast.device()))?;
    cast.expect_resources(&before)
}
