//! Which requests report, and how long requests hold their places in the send queue.

use ibnet_verbs::{SendRequest, WcStatus};

use crate::behaviour::Outcome::{Accepted, Ended, Errno, Is, Nothing};
use crate::behaviour::{Behaviour, Deviation, Failure, Observed, Outcome, Place, answer};
use crate::rig::{End, Pair, Setup, Stage, ends, quiet, settle, wait_until};

const EARLY: &str = "gives a place back as soon as the peer has acknowledged the request, \
                     polled or not";

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "unsignaled_requests_hold_their_places",
        place: Place::Connection,
        section: "10.8.6",
        says: "A queue full of unsignalled requests stays full, although all are carried out: \
               nothing completes, and one more is refused.",
        observe: unsignaled_hold,
        expected: &[Is(true), Nothing, Errno(libc::ENOMEM)],
        rxe: Some(Deviation {
            observed: &[Is(true), Nothing, Accepted],
            reason: EARLY,
        }),
    },
    Behaviour {
        name: "unpolled_completions_hold_their_places",
        place: Place::Connection,
        section: "10.8.5.1",
        says: "A queue full of signalled requests that are carried out but not polled refuses; \
               after polling it accepts.",
        observe: unpolled_hold,
        expected: &[Is(true), Errno(libc::ENOMEM), Is(true), Accepted],
        rxe: Some(Deviation {
            observed: &[Is(true), Accepted, Is(true), Accepted],
            reason: EARLY,
        }),
    },
    Behaviour {
        name: "a_signaled_completion_frees_all_before_it",
        place: Place::Connection,
        section: "10.8.5.1, 10.8.6",
        says: "Once the last of a full queue, the only signalled one, is polled, all places are \
               free again. Three times round.",
        observe: signaled_frees,
        expected: &[Is(true), Is(true), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "unsignaled_success_is_silent",
        place: Place::Connection,
        section: "10.8.6",
        says: "Of two unsignalled requests and a signalled one, the last alone completes visibly.",
        observe: silent_success,
        expected: &[Ended(3, WcStatus::SUCCESS), Nothing],
        rxe: None,
    },
    Behaviour {
        name: "unsignaled_failure_is_reported",
        place: Place::Connection,
        section: "10.8.6",
        says: "A request that fails completes visibly, signalled or not.",
        observe: loud_failure,
        expected: &[Ended(1, WcStatus::REM_ACCESS_ERR)],
        rxe: None,
    },
    Behaviour {
        name: "a_queue_pair_may_signal_everything",
        place: Place::Connection,
        section: "11.2.5.1",
        says: "With the signalling type set for all, unsignalled requests complete visibly.",
        observe: signal_all,
        expected: &[Ended(1, WcStatus::SUCCESS), Ended(2, WcStatus::SUCCESS)],
        rxe: None,
    },
];

/// Fills the send queue with writes of one byte each, the last of which is `last`.
fn fill(a: &End, b: &End, last: SendRequest, signaled: bool) -> Result<usize, Failure> {
    let places = a.qp.capabilities().max_send_wr as usize;
    let mut write = SendRequest::write(1, Some(a.sge(0, 1)), b.remote(0));
    if signaled {
        write = write.signaled();
    }
    let mut chain = vec![write; places];
    chain[places - 1] = last;
    a.send(&mut chain)?;
    Ok(places)
}

/// The last write of a full queue.
fn last_write(a: &End, b: &End) -> SendRequest {
    a.memory.fill(0, 2, 1);
    SendRequest::write(2, Some(a.sge(0, 1)), b.remote(1))
}

fn unsignaled_hold(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let last = last_write(&a, &b);
    fill(&a, &b, last, false)?;
    let arrived = wait_until(|| Ok(b.memory.holds(1, 1, 1)))?;
    let silence = quiet(&a.send_cq)?;
    Ok(vec![Is(arrived), silence, one_more(&a, &b)])
}

fn unpolled_hold(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let last = last_write(&a, &b).signaled();
    let places = fill(&a, &b, last, true)?;
    let arrived = wait_until(|| Ok(b.memory.holds(1, 1, 1)))?;
    // The acknowledgement of the last is under way.
    settle();
    let refused = one_more(&a, &b);
    let all = ends(&a.send_cq, places)?;
    let are_good = all
        .iter()
        .all(|outcome| matches!(outcome, Ended(_, WcStatus::SUCCESS)));
    Ok(vec![Is(arrived), refused, Is(are_good), one_more(&a, &b)])
}

/// Whether there is a place for one more than was granted.
fn one_more(a: &End, b: &End) -> Outcome {
    answer(a.send(&mut [SendRequest::write(3, Some(a.sge(0, 1)), b.remote(2))]))
}

fn signaled_frees(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        fill(&a, &b, last_write(&a, &b).signaled(), false)?;
        outcomes.push(Is(ends(&a.send_cq, 1)? == [Ended(2, WcStatus::SUCCESS)]));
    }
    Ok(outcomes)
}

fn silent_success(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let write = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0));
    let mut chain = [write, write.with_wr_id(2), write.with_wr_id(3).signaled()];
    a.send(&mut chain)?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(quiet(&a.send_cq)?);
    Ok(outcomes)
}

fn loud_failure(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), wrong)])?;
    ends(&a.send_cq, 1)
}

fn signal_all(stage: &Stage) -> Observed {
    let setup = Setup {
        signal_all: true,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, setup, setup)?;
    let write = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0));
    a.send(&mut [write, write.with_wr_id(2)])?;
    ends(&a.send_cq, 2)
}
