//! Waiting for completions and events, and for nothing.

use std::thread;
use std::time::{Duration, Instant};

use ibnet_verbs::{AsyncEvent, CompletionQueue, Context, WorkCompletion};

use super::stage::step;
use crate::behaviour::{Failure, Outcome};

/// How long something may take that has to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long nothing has to come, until it is taken for granted that nothing comes: on real devices
/// longer than their retries, on simulated ones, which are done at once, a moment.
fn quiet_time() -> Duration {
    let is_real = std::env::var_os("IBNET_TEST_DEVICES").is_some();
    Duration::from_millis(if is_real { 150 } else { 40 })
}

/// How long something may take that needs the own device only.
const SOON: Duration = Duration::from_secs(2);

/// Waits until `condition` holds. False if it never does.
pub(crate) fn wait_until(
    condition: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    wait_for_it(PATIENCE, condition)
}

/// The same for what follows at once, if at all.
pub(crate) fn wait_a_moment_until(
    condition: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    wait_for_it(2 * quiet_time(), condition)
}

fn wait_for_it(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let deadline = Instant::now() + limit;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        // The other end may be a thread of the kernel that needs this processor.
        pass(Duration::from_micros(50));
    }
}

/// Lets a moment pass. False if nothing can happen any more.
fn pass(moment: Duration) -> bool {
    step().unwrap_or_else(|| {
        thread::sleep(moment);
        true
    })
}

/// Lets happen what is about to.
pub(crate) fn settle() {
    let deadline = Instant::now() + 2 * quiet_time();
    while Instant::now() < deadline && pass(Duration::from_millis(1)) {}
}

/// Waits for `number` completions; fewer if the others do not come.
pub(crate) fn wait_for(
    cq: &CompletionQueue,
    number: usize,
) -> Result<Vec<WorkCompletion>, Failure> {
    let mut all = Vec::new();
    let mut batch = [WorkCompletion::default(); 1];
    wait_until(|| {
        while all.len() < number {
            let polled = cq.poll(&mut batch)?;
            if polled.is_empty() {
                return Ok(false);
            }
            all.extend_from_slice(polled);
        }
        Ok(true)
    })?;
    Ok(all)
}

/// How the next `number` work requests end. If they do not all, [`Outcome::Nothing`] is last.
pub(crate) fn ends(cq: &CompletionQueue, number: usize) -> Result<Vec<Outcome>, Failure> {
    let all = wait_for(cq, number)?;
    let mut outcomes: Vec<_> = all.iter().map(ended).collect();
    if outcomes.len() < number {
        outcomes.push(Outcome::Nothing);
    }
    Ok(outcomes)
}

/// Waits a moment: [`Outcome::Nothing`], or the completion that should not have come.
pub(crate) fn quiet(cq: &CompletionQueue) -> Result<Outcome, Failure> {
    within(cq, quiet_time())
}

/// The next completion, or [`Outcome::Nothing`] if it takes longer than it can with any reason. For
/// what some devices are known not to do, so that they are not waited for all too long.
pub(crate) fn soon(cq: &CompletionQueue) -> Result<Outcome, Failure> {
    within(cq, SOON)
}

fn within(cq: &CompletionQueue, limit: Duration) -> Result<Outcome, Failure> {
    let mut batch = [WorkCompletion::default(); 1];
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(completion) = cq.poll(&mut batch)?.first() {
            return Ok(ended(completion));
        }
        if !pass(Duration::from_millis(1)) {
            break;
        }
    }
    Ok(Outcome::Nothing)
}

fn ended(completion: &WorkCompletion) -> Outcome {
    Outcome::Ended(completion.wr_id(), completion.status())
}

/// Waits a moment for an event that `is_meant`. Others are taken and ignored.
pub(crate) fn event_about(
    context: &Context,
    is_meant: impl Fn(&AsyncEvent) -> bool,
) -> Result<Outcome, Failure> {
    let deadline = Instant::now() + 2 * quiet_time();
    while Instant::now() < deadline {
        match context.next_event()? {
            Some(event) if is_meant(&event) => return Ok(Outcome::Event(event.kind())),
            Some(_) => {}
            None if pass(Duration::from_millis(1)) => {}
            None => break,
        }
    }
    Ok(Outcome::Nothing)
}
