//! Who may access which memory: keys, ranges, domains and permissions, and what each end is told.

use ibnet_verbs::{Access, EventType, QueuePairState, RecvRequest, SendRequest, WcStatus};

use crate::behaviour::Outcome::{Ended, Event, Nothing, State};
use crate::behaviour::{Behaviour, Deviation, Failure, Observed, Outcome, Place};
use crate::rig::{End, Pair, SIZE, Setup, Stage, ends};

/// The peer denies access, and fails.
const DENIED: &[Outcome] = &[
    Ended(1, WcStatus::REM_ACCESS_ERR),
    State(QueuePairState::ERR),
    State(QueuePairState::ERR),
    Event(EventType::QP_ACCESS_ERR),
];

/// The peer finds the request wrong, and fails.
const INVALID: &[Outcome] = &[
    Ended(1, WcStatus::REM_INV_REQ_ERR),
    State(QueuePairState::ERR),
    State(QueuePairState::ERR),
    Event(EventType::QP_REQ_ERR),
];

/// The own memory is wrong. The peer does not learn of it.
const LOCAL: &[Outcome] = &[
    Ended(1, WcStatus::LOC_PROT_ERR),
    State(QueuePairState::ERR),
    State(QueuePairState::RTS),
];

/// As [`DENIED`] and [`INVALID`], but for the event.
const DENIED_SILENTLY: &[Outcome] = &[
    Ended(1, WcStatus::REM_ACCESS_ERR),
    State(QueuePairState::ERR),
    State(QueuePairState::ERR),
    Nothing,
];
const INVALID_SILENTLY: &[Outcome] = &[
    Ended(1, WcStatus::REM_INV_REQ_ERR),
    State(QueuePairState::ERR),
    State(QueuePairState::ERR),
    Nothing,
];

/// The peer's memory is named wrongly.
const fn denied(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
) -> Behaviour {
    remote(name, says, observe, DENIED, DENIED_SILENTLY)
}

/// The peer's queue pair does not serve such requests.
const fn invalid(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
) -> Behaviour {
    remote(name, says, observe, INVALID, INVALID_SILENTLY)
}

const fn remote(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
    expected: &'static [Outcome],
    observed: &'static [Outcome],
) -> Behaviour {
    Behaviour {
        name,
        place: Place::Connection,
        section: "9.7.4.1, 9.9.3",
        says,
        observe,
        expected,
        rxe: Some(Deviation {
            observed,
            reason: "raises no event about it",
        }),
    }
}

/// The own memory is named wrongly, within the bounds of a key that is known.
const fn local(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
) -> Behaviour {
    Behaviour {
        name,
        place: Place::Connection,
        section: "9.9.2, 10.10.2.2",
        says,
        observe,
        expected: LOCAL,
        rxe: None,
    }
}

/// The own key is not good at all.
const fn local_key(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
) -> Behaviour {
    Behaviour {
        rxe: Some(Deviation {
            observed: &[
                Ended(1, WcStatus::LOC_QP_OP_ERR),
                State(QueuePairState::ERR),
                State(QueuePairState::RTS),
            ],
            reason: "takes a request with a key that it does not find for malformed",
        }),
        ..local(name, says, observe)
    }
}

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    denied(
        "a_wrong_rkey_is_denied",
        "The writer's request fails; both ends are in ERR; the peer is told by an event.",
        wrong_rkey,
    ),
    denied(
        "memory_behind_the_region_is_denied",
        "As for a wrong key, if the last byte is one too far.",
        beyond_remote,
    ),
    denied(
        "memory_before_the_region_is_denied",
        "As for a wrong key, if the first byte is one too early.",
        before_remote,
    ),
    denied(
        "memory_of_another_domain_is_denied",
        "As for a wrong key, if the region is in another domain than the peer's queue pair.",
        other_remote_domain,
    ),
    denied(
        "deregistered_memory_is_denied",
        "As for a wrong key, once the region is deregistered.",
        deregistered_remote,
    ),
    denied(
        "a_region_not_for_writing_is_not_written",
        "A write to a region without remote write access: as for a wrong key.",
        region_without_write,
    ),
    denied(
        "a_region_not_for_reading_is_not_read",
        "A read from a region without remote read access: as for a wrong key.",
        region_without_read,
    ),
    invalid(
        "a_queue_pair_not_for_writing_takes_no_writes",
        "A write through a queue pair without remote write access is an invalid request.",
        qp_without_write,
    ),
    invalid(
        "a_queue_pair_not_for_reading_serves_no_reads",
        "A read through a queue pair without remote read access is an invalid request.",
        qp_without_read,
    ),
    local_key(
        "a_wrong_lkey_fails_locally",
        "The request fails with a protection error, the own end is in ERR, the peer stays in RTS.",
        wrong_lkey,
    ),
    local(
        "own_memory_behind_the_region_fails_locally",
        "As for a wrong local key.",
        beyond_local,
    ),
    local_key(
        "own_memory_of_another_domain_fails_locally",
        "As for a wrong local key.",
        other_local_domain,
    ),
    local_key(
        "own_deregistered_memory_fails_locally",
        "As for a wrong local key.",
        deregistered_local,
    ),
    local(
        "reading_into_memory_not_for_writing_fails_locally",
        "A read needs local write access: as for a wrong local key.",
        read_into_read_only,
    ),
    Behaviour {
        name: "a_receive_with_a_wrong_lkey_fails_both",
        place: Place::Connection,
        section: "9.9.3, 10.10.2.2",
        says: "The receive ends with a protection error, the send with an operation error of the \
               peer; both ends are in ERR.",
        observe: wrong_receive,
        expected: &[
            Ended(1, WcStatus::REM_OP_ERR),
            Ended(70, WcStatus::LOC_PROT_ERR),
            State(QueuePairState::ERR),
            State(QueuePairState::ERR),
        ],
        rxe: Some(Deviation {
            observed: &[
                Ended(1, WcStatus::REM_OP_ERR),
                Ended(70, WcStatus::LOC_QP_OP_ERR),
                State(QueuePairState::ERR),
                State(QueuePairState::ERR),
            ],
            reason: "takes a request with a key that it does not find for malformed",
        }),
    },
];

/// How a bad request ends, and what becomes of both ends.
fn both(a: &End, b: &End, request: SendRequest) -> Observed {
    a.send(&mut [request.signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(a.state()?);
    outcomes.push(b.state_at_last(QueuePairState::ERR)?);
    outcomes.push(b.event()?);
    Ok(outcomes)
}

/// How a request ends that is locally wrong. The peer has time to notice.
fn own(a: &End, b: &End, request: SendRequest) -> Observed {
    a.send(&mut [request.signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(a.state()?);
    outcomes.push(b.state_at_last(QueuePairState::ERR)?);
    Ok(outcomes)
}

fn wrong_rkey(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    both(&a, &b, SendRequest::write(1, Some(a.sge(0, 8)), wrong))
}

fn beyond_remote(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let remote = b.remote(SIZE - 7);
    both(&a, &b, SendRequest::write(1, Some(a.sge(0, 8)), remote))
}

fn before_remote(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut remote = b.remote(0);
    remote.address -= 1;
    both(&a, &b, SendRequest::write(1, Some(a.sge(0, 8)), remote))
}

fn other_remote_domain(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let other = End::new(&b.context, b.setup)?;
    let write = SendRequest::write(1, Some(a.sge(0, 8)), other.remote(0));
    both(&a, &b, write)
}

fn deregistered_remote(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let access = b.setup.region_access;
    // SAFETY: the memory is kept longer than the region.
    let region = unsafe { b.pd.register(b.memory.as_ptr(), SIZE, access) }?;
    let mut remote = b.remote(0);
    remote.rkey = region.rkey();
    let write = SendRequest::write(1, Some(a.sge(0, 8)), remote);
    // While it is registered it can be written to.
    a.send(&mut [write.signaled()])?;
    if ends(&a.send_cq, 1)? != [Ended(1, WcStatus::SUCCESS)] {
        return Err("the key is not good to begin with".into());
    }
    region.deregister()?;
    both(&a, &b, write)
}

fn region_without_write(stage: &Stage) -> Observed {
    let (a, b) = with_region_access(stage, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    both(
        &a,
        &b,
        SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)),
    )
}

fn region_without_read(stage: &Stage) -> Observed {
    let (a, b) = with_region_access(stage, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    both(&a, &b, SendRequest::read(1, Some(a.sge(0, 8)), b.remote(0)))
}

fn with_region_access(stage: &Stage, region_access: Access) -> Result<(End, End), Failure> {
    let theirs = Setup {
        region_access,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, Setup::default(), theirs)?;
    Ok((a, b))
}

fn qp_without_write(stage: &Stage) -> Observed {
    let theirs = Setup {
        access: Access::REMOTE_READ,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, Setup::default(), theirs)?;
    both(
        &a,
        &b,
        SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)),
    )
}

fn qp_without_read(stage: &Stage) -> Observed {
    let theirs = Setup {
        access: Access::REMOTE_WRITE,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, Setup::default(), theirs)?;
    both(&a, &b, SendRequest::read(1, Some(a.sge(0, 8)), b.remote(0)))
}

fn wrong_lkey(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut sge = a.sge(0, 8);
    sge.lkey = !sge.lkey;
    own(&a, &b, SendRequest::write(1, Some(sge), b.remote(0)))
}

fn beyond_local(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let write = SendRequest::write(1, Some(a.sge(SIZE - 7, 8)), b.remote(0));
    own(&a, &b, write)
}

fn other_local_domain(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let other = End::new(&a.context, a.setup)?;
    let write = SendRequest::write(1, Some(other.sge(0, 8)), b.remote(0));
    own(&a, &b, write)
}

fn deregistered_local(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    // SAFETY: the memory is kept longer than the region.
    let region = unsafe { a.pd.register(a.memory.as_ptr(), SIZE, Access::empty()) }?;
    let mut sge = a.sge(0, 8);
    sge.lkey = region.lkey();
    region.deregister()?;
    own(&a, &b, SendRequest::write(1, Some(sge), b.remote(0)))
}

fn read_into_read_only(stage: &Stage) -> Observed {
    let ours = Setup {
        region_access: Access::REMOTE_READ,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, ours, Setup::default())?;
    own(&a, &b, SendRequest::read(1, Some(a.sge(0, 8)), b.remote(0)))
}

fn wrong_receive(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut sge = b.sge(0, 8);
    sge.lkey = !sge.lkey;
    b.receive(&mut [RecvRequest::new(70).with_sge(sge)])?;
    a.send(&mut [SendRequest::send(1, Some(a.sge(0, 8))).signaled()])?;
    Ok([
        ends(&a.send_cq, 1)?,
        ends(&b.recv_cq, 1)?,
        vec![a.state()?, b.state_at_last(QueuePairState::ERR)?],
    ]
    .concat())
}
