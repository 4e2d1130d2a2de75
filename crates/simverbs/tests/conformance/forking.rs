//! fork(2), to be prepared for before anything else.

use ibnet_verbs::ForkStatus;

use crate::behaviour::Outcome::{Accepted, Is};
use crate::behaviour::{Behaviour, Observed, Place, answer};
use crate::rig::Stage;

/// To be observed first of all: once memory was registered, libibverbs refuses. How often it was
/// prepared before in the same process does not matter.
pub(crate) const BEHAVIOURS: &[Behaviour] = &[Behaviour {
    name: "registered_memory_can_survive_fork",
    place: Place::Device,
    section: "ibv_fork_init(3), ibv_is_fork_initialized(3)",
    says: "Before memory is registered fork support can be initialised, and is then reported.",
    observe: prepared,
    expected: &[Accepted, Is(true)],
    rxe: None,
}];

fn prepared(stage: &Stage) -> Observed {
    let library = stage.context().library();
    let outcome = answer(library.init_fork());
    let survives = matches!(
        library.fork_status(),
        ForkStatus::Enabled | ForkStatus::Unneeded
    );
    Ok(vec![outcome, Is(survives)])
}
