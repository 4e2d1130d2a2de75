//! Which queue pair has which number.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::owner;
use crate::queue_pair::NullQp;

/// Numbers begin here: at another place in each process, so that one of another process, or a small one
/// that went astray, finds no queue pair.
fn first_number() -> u32 {
    const PROCESSES: u32 = 1 << 10;
    const EACH: u32 = 1 << 14;
    // Neighbours are far from each other.
    let process = std::process::id().wrapping_mul(389) % PROCESSES;
    process * EACH + 0x100
}

#[derive(Default)]
struct Table {
    /// By number; addresses of queue pairs, or 0.
    places: Vec<usize>,
    free: Vec<u32>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    places: Vec::new(),
    free: Vec::new(),
});

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a queue pair a number. `None` when there are too many.
pub(crate) fn add(qp: *mut NullQp) -> Option<u32> {
    let mut table = table();
    let address = qp.expose_provenance();
    if let Some(number) = table.free.pop() {
        table.places[(number - first_number()) as usize] = address;
        return Some(number);
    }
    let number = u32::try_from(table.places.len())
        .ok()?
        .checked_add(first_number())?;
    table.places.push(address);
    Some(number)
}

/// Takes the number away again.
pub(crate) fn remove(number: u32) {
    let mut table = table();
    table.places[(number - first_number()) as usize] = 0;
    table.free.push(number);
    if table.free.len() == table.places.len() {
        owner::release();
    }
}

/// The queue pair with that number, or null.
pub(crate) fn find(number: u32) -> *mut NullQp {
    let table = table();
    let place = number.checked_sub(first_number());
    let address = place.and_then(|place| table.places.get(place as usize));
    std::ptr::with_exposed_provenance_mut(address.copied().unwrap_or(0))
}
