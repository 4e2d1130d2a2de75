//! The control channel of a sender: any bytes, and Close with any counts, against the requests
//! that are under way.

use super::input::Input;
use super::messages::decode;
use super::samples::frame;
use crate::connection::in_flight::{InFlight, Part, credit};
use crate::wire::message::{Close, MAX_PATHS, Message};

/// Paths less one; for each path, parts that were posted (2 bytes) and, of them, acknowledged (2
/// bytes); then how the bytes are made:
///
/// | byte, modulo 2 | arguments |
/// |---|---|
/// | 0 | the rest arrives as it is |
/// | 1 | counts less one, as many counts (8 bytes): a Close |
pub fn control(data: &[u8]) {
    let mut input = Input::new(data);
    let paths = 1 + input.below(MAX_PATHS);
    let mut logs: Vec<InFlight> = Vec::new();
    // For each path, requests of the parts that are under way, and parts posted before them.
    let mut model: Vec<(Vec<u16>, u64)> = Vec::new();
    let mut request = 0_u16;
    let part_of = |request| Part { request, index: 0 };
    for _ in 0..paths {
        let mut log = InFlight::new();
        let posted = u64::from(input.u16() % 1024);
        // No more than 256 are ever under way on a path.
        let acknowledged = u64::from(input.u16()).clamp(posted.saturating_sub(256), posted);
        let mut under_way = Vec::new();
        for part in 0..posted {
            log.push(part_of(request));
            if part < acknowledged {
                // In order, so that there is always room for the next.
                assert_eq!(log.complete(), Some(part_of(request)));
            } else {
                under_way.push(request);
            }
            request = request.wrapping_add(1) % 256;
        }
        logs.push(log);
        model.push((under_way, acknowledged));
    }
    let stream = match input.u8() % 2 {
        0 => input.rest().to_vec(),
        _ => {
            let counts = 1 + input.below(MAX_PATHS);
            frame(&Message::Close(Close {
                parts_taken: (0..counts).map(|_| input.u64()).collect(),
            }))
        }
    };
    let (messages, _) = decode(stream.chunks(4096));
    // Whatever else arrives ends the connection before it is looked at.
    let Some(Message::Close(closing)) = messages.first() else {
        return;
    };
    let is_possible = closing.parts_taken.len() == paths
        && model
            .iter()
            .zip(&closing.parts_taken)
            .all(|((under_way, before), taken)| *taken <= before + under_way.len() as u64);
    let mut credited = Vec::new();
    let outcome = credit(&mut logs, closing, |_, part| credited.push(part.request));
    assert_eq!(outcome.is_ok(), is_possible);
    let mut expected = Vec::new();
    for ((under_way, before), taken) in model.iter().zip(&closing.parts_taken) {
        let count = taken.saturating_sub(*before) as usize;
        if is_possible {
            expected.extend_from_slice(&under_way[..count]);
        }
    }
    assert_eq!(credited, expected);
}
