//! The behaviours as a page of documentation.

use crate::behaviour::{Behaviour, Place, list};

/// The page in the repository, which must be what [`page`] gives.
pub(crate) const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");

const INTRODUCTION: &str = "\
# Conformance

How queue pairs, keys and queues behave is observed by one program on simulated devices (`simverbs`)
and on real ones. Both must do what the specification says. Where Soft-RoCE (RXE) differs, that is
known here, with the reason, and must go on differing: a deviation that has gone is a failure of the
test, too. Simulated devices never deviate.

```
cargo test -p ibnet-simverbs --test conformance                # on simulated devices
IBNET_TEST_DEVICES=mlx5_0 IBNET_TEST_PAIRS=mlx5_0:mlx5_1 \\
    cargo test -p ibnet-simverbs --test conformance            # on real ones
```

The simulated ones are observed twice, free-running and stepped. In the Soft-RoCE machine it is the scenario `verbs/conformance`. What concerns connections is observed
twice: between two queue pairs of one device, and between the two devices of a pair.

Sections are those of the InfiniBand Architecture Specification, volume 1; where it says nothing, the
manual page of the verb counts. *Observed* lists what has to come out, in order: a request that
completed by its number and status (`70: SUCCESS`; numbers from 70 on are receives), whether a call was
accepted or which errno it gave, the state of a queue pair, an event, or that nothing came. RXE is that of
Linux 6.1.

This page is printed by the program: `cargo test -p ibnet-simverbs --test conformance -- --table`.
";

/// The whole page.
pub(crate) fn page(subjects: &[(&str, &[Behaviour])]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, behaviours) in subjects {
        page += &format!(
            "\n## {title}\n\n\
             | behaviour | where | section | what is demanded | observed | RXE |\n\
             |---|---|---|---|---|---|\n"
        );
        for behaviour in *behaviours {
            page += &row(behaviour);
        }
    }
    page
}

fn row(behaviour: &Behaviour) -> String {
    let place = match behaviour.place {
        Place::Device => "device",
        Place::Connection => "connection",
    };
    let rxe = match &behaviour.rxe {
        None => "the same".to_owned(),
        Some(deviation) => format!("{}: {}", list(deviation.observed), deviation.reason),
    };
    format!(
        "| {} | {place} | {} | {} | {} | {rxe} |\n",
        behaviour.name.replace('_', " "),
        behaviour.section,
        behaviour.says,
        list(behaviour.expected),
    )
}
