//! What becomes of everything that is queued when a queue pair fails, is moved to ERR, or reset.

use ibnet_verbs::{SendRequest, WcStatus};

use crate::behaviour::Outcome::{Accepted, Ended, Nothing};
use crate::behaviour::{Behaviour, Failure, Observed, Place, answer};
use crate::rig::{Pair, Stage, ends, quiet};

const OK: WcStatus = WcStatus::SUCCESS;
const FLUSHED: WcStatus = WcStatus::WR_FLUSH_ERR;

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a_failure_flushes_what_is_behind_it",
        place: Place::Connection,
        section: "10.3.1.7, 10.10.2.2",
        says: "The request before succeeds, the bad one fails, those behind it are flushed in \
               order, signalled or not, and so are the receives.",
        observe: failure,
        expected: &[
            Ended(1, OK),
            Ended(2, WcStatus::REM_ACCESS_ERR),
            Ended(3, FLUSHED),
            Ended(4, FLUSHED),
            Nothing,
            Ended(70, FLUSHED),
            Ended(71, FLUSHED),
            Nothing,
        ],
        rxe: None,
    },
    Behaviour {
        name: "moving_to_error_flushes_both_queues",
        place: Place::Connection,
        section: "10.3.1.7",
        says: "All requests that have not ended are flushed, in order, on both queues, each once.",
        observe: moved_to_error,
        expected: &[
            Ended(1, FLUSHED),
            Ended(2, FLUSHED),
            Ended(3, FLUSHED),
            Nothing,
            Ended(70, FLUSHED),
            Ended(71, FLUSHED),
            Ended(72, FLUSHED),
            Nothing,
        ],
        rxe: None,
    },
    Behaviour {
        name: "what_was_carried_out_is_not_flushed",
        place: Place::Connection,
        section: "10.8.5",
        says: "Completions that are there, unpolled, when the queue pair fails stay as they are.",
        observe: carried_out,
        expected: &[Ended(1, OK), Ended(70, OK), Ended(71, FLUSHED)],
        rxe: None,
    },
    Behaviour {
        name: "flushed_places_are_free_again",
        place: Place::Connection,
        section: "10.8.5.1",
        says: "Once all that was flushed is polled, a whole queue is accepted, and flushed, again.",
        observe: flushed_places,
        expected: &[Accepted, Accepted, Ended(9, FLUSHED)],
        rxe: None,
    },
    Behaviour {
        name: "reset_forgets_what_is_queued",
        place: Place::Connection,
        section: "10.3.1.1",
        says: "Requests that have not ended when the queue pair is reset never complete.",
        observe: reset,
        expected: &[Nothing, Nothing],
        rxe: None,
    },
    Behaviour {
        name: "other_queue_pairs_are_not_disturbed",
        place: Place::Connection,
        section: "10.10.2.2",
        says: "The failure of one connection leaves another one of the same devices alone.",
        observe: other_connection,
        expected: &[
            Ended(1, WcStatus::REM_ACCESS_ERR),
            Ended(2, OK),
            Ended(70, OK),
        ],
        rxe: None,
    },
];

fn failure(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.receive_immediates([70, 71])?;
    let good = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled();
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    a.send(&mut [
        good,
        SendRequest::write(2, Some(a.sge(0, 8)), wrong).signaled(),
        good.with_wr_id(3),
        SendRequest::write(4, Some(a.sge(0, 8)), b.remote(0)),
    ])?;
    let mut outcomes = ends(&a.send_cq, 4)?;
    outcomes.push(quiet(&a.send_cq)?);
    outcomes.extend(ends(&a.recv_cq, 2)?);
    outcomes.push(quiet(&a.recv_cq)?);
    Ok(outcomes)
}

/// Three requests in each queue, which do not end: the peer has no receive.
fn pending(stage: &Stage) -> Result<Pair, Failure> {
    let pair = Pair::new(stage)?;
    pair.a.receive_immediates([70, 71, 72])?;
    let send = SendRequest::send(1, Some(pair.a.sge(0, 8))).signaled();
    let mut chain = [send, send.with_wr_id(2), send.with_wr_id(3)];
    pair.a.send(&mut chain)?;
    Ok(pair)
}

fn moved_to_error(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = pending(stage)?;
    a.qp.to_error()?;
    let mut outcomes = ends(&a.send_cq, 3)?;
    outcomes.push(quiet(&a.send_cq)?);
    outcomes.extend(ends(&a.recv_cq, 3)?);
    outcomes.push(quiet(&a.recv_cq)?);
    Ok(outcomes)
}

fn carried_out(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70, 71])?;
    a.send(&mut [SendRequest::send(1, None).signaled()])?;
    let sent = ends(&a.send_cq, 1)?;
    b.qp.to_error()?;
    Ok([sent, ends(&b.recv_cq, 2)?].concat())
}

fn flushed_places(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = Pair::new(stage)?;
    a.qp.to_error()?;
    let places = a.qp.capabilities().max_send_wr as usize;
    let mut chain = vec![SendRequest::send(9, None); places];
    let mut outcomes = vec![answer(a.send(&mut chain))];
    ends(&a.send_cq, places)?;
    outcomes.push(answer(a.send(&mut chain)));
    outcomes.extend(ends(&a.send_cq, 1)?);
    Ok(outcomes)
}

fn reset(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = pending(stage)?;
    a.qp.to_reset()?;
    Ok(vec![quiet(&a.send_cq)?, quiet(&a.recv_cq)?])
}

fn other_connection(stage: &Stage) -> Observed {
    let (failing, other) = (Pair::new(stage)?, Pair::new(stage)?);
    let (a, b) = (&failing.a, &failing.b);
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), wrong).signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    other.b.receive_immediates([70])?;
    other.a.send(&mut [SendRequest::send(2, None).signaled()])?;
    outcomes.extend(ends(&other.a.send_cq, 1)?);
    outcomes.extend(ends(&other.b.recv_cq, 1)?);
    Ok(outcomes)
}
