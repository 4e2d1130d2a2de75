//! Ends with different numbers of devices.

use super::duet;
use super::exercise::Exercise;
use crate::cast::Cast;
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        scene: Scene::Ends(COUNTS),
        ..duet("devices/every-count", &[receiver, sender])
    }]
}

/// Devices of the receiver and of the sender.
const COUNTS: &[(usize, usize)] = &[
    (1, 1),
    (2, 2),
    (2, 1),
    (1, 2),
    (3, 2),
    (1, 4),
    (4, 1),
    (1, 8),
    (8, 1),
    (8, 8),
    (5, 8),
];

/// Queue pairs for each pair of devices, whether messages are cut over all of them, and whether the
/// fabric reorders. Where it does, sizes travel through the table.
const SPREADS: &[(u8, bool, bool)] = &[
    (1, false, false),
    (3, false, true),
    (2, true, false),
    (2, true, true),
];

const LEAST: u32 = 1024;

fn exercise(cast: &Cast, number: usize) -> Exercise {
    let (queue_pairs, split, _) = SPREADS[number];
    let each = if split { usize::from(queue_pairs) } else { 1 };
    Exercise {
        seed: number as u64,
        parts: cast.pairs() * each,
        least: LEAST as usize,
    }
}

fn receiver(cast: &mut Cast) -> Result<(), Failure> {
    for number in 0..SPREADS.len() {
        let transport = cast.transport()?;
        let before = cast.baseline(1)?;
        let mut receiving = cast.accept_from(1, &transport)?;
        exercise(cast, number).receive(&mut receiving)?;
        receiving.close()?;
        cast.meet(1)?;
        cast.expect_resources(&before)?;
        cast.meet(1)?;
    }
    Ok(())
}

fn sender(cast: &mut Cast) -> Result<(), Failure> {
    for (number, (queue_pairs, split, reorders)) in SPREADS.iter().enumerate() {
        let transport = cast.transport_with(|config| {
            config.queue_pairs = *queue_pairs;
            config.split_data = *split;
            config.min_part = Some(LEAST);
            config.adaptive_routing = Some(*reorders);
            config.adaptive_routing_threshold = 0;
        })?;
        let before = cast.baseline(0)?;
        let mut sending = cast.connect_to(0, &transport)?;
        exercise(cast, number).send(&mut sending)?;
        sending.close()?;
        cast.meet(0)?;
        cast.expect_resources(&before)?;
        cast.meet(0)?;
    }
    Ok(())
}
