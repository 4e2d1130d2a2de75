//! The one thread that a free-running fabric may have: it fires timers while everybody sleeps.
//!
//! Who polls a completion queue fires the timers that are due, so that no thread is needed. Who
//! sleeps on a completion channel does not poll, and would never be woken by a completion that waits
//! for a timer (a retry, a receiver that was not ready, a delay by a fault). So the thread is
//! started with the first completion channel, and ends with the fabric.

use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::shared::Shared;

/// How long the thread sleeps if nothing is to be done.
const LONG: Duration = Duration::from_secs(3600);

/// Starts the thread.
///
/// # Errors
///
/// If the system has no thread to give.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Thread> {
    let fabric = Arc::downgrade(shared);
    let thread = thread::Builder::new()
        .name("simverbs-timers".to_owned())
        .spawn(move || run(&fabric))?;
    Ok(thread.thread().clone())
}

/// Setting a timer and dropping the fabric wake the thread.
fn run(fabric: &Weak<Shared>) {
    while let Some(shared) = fabric.upgrade() {
        let wait = shared.until_attention().unwrap_or(LONG);
        if wait.is_zero() {
            shared.progress();
            continue;
        }
        drop(shared);
        thread::park_timeout(wait);
    }
}
