//! Posting: in which states, how much, and what is copied.

use ibnet_verbs::{QueuePairState, RecvRequest, SendRequest, Sge, WcStatus};

use crate::behaviour::Outcome::{Accepted, Ended, Errno, Is, Number, State};
use crate::behaviour::{Behaviour, Deviation, Observed, Outcome, Place, answer};
use crate::rig::{Memory, Pair, Setup, Stage, ends, post_elements, quiet, receive_elements, soon};

const REFUSED: Outcome = Errno(libc::EINVAL);

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "sending_needs_rts",
        place: Place::Connection,
        section: "10.3.1.1 to 10.3.1.3",
        says: "A send request posted in RESET, INIT or RTR is refused at once.",
        observe: send_before_rts,
        expected: &[REFUSED, REFUSED, REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "receiving_needs_init",
        place: Place::Device,
        section: "10.3.1.1, 10.3.1.2",
        says: "A receive request is refused at once in RESET, and accepted in INIT.",
        observe: receive_before_init,
        expected: &[REFUSED, Accepted],
        rxe: None,
    },
    Behaviour {
        name: "the_error_state_accepts_and_flushes",
        place: Place::Connection,
        section: "10.3.1.7",
        says: "Requests posted in ERR are accepted and complete as flushed, on both queues.",
        observe: post_in_error,
        expected: &[
            State(QueuePairState::ERR),
            Accepted,
            Ended(1, WcStatus::WR_FLUSH_ERR),
            Accepted,
            Ended(70, WcStatus::WR_FLUSH_ERR),
        ],
        rxe: Some(Deviation {
            observed: &[
                State(QueuePairState::ERR),
                Accepted,
                Ended(1, WcStatus::WR_FLUSH_ERR),
                Accepted,
                Outcome::Nothing,
            ],
            reason: "flushes the receives when it enters ERR, and none that is posted later",
        }),
    },
    Behaviour {
        name: "a_full_send_queue_refuses",
        place: Place::Connection,
        section: "ibv_post_send(3), 10.10.2.1",
        says: "A chain that is too long fails with ENOMEM; what was granted is accepted at least, \
               and bad_wr tells how much.",
        observe: full_send_queue,
        expected: &[Errno(libc::ENOMEM), Is(true), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "a_full_receive_queue_refuses",
        place: Place::Device,
        section: "ibv_post_recv(3), 10.10.2.1",
        says: "As for the send queue; what was accepted is there to be flushed.",
        observe: full_receive_queue,
        expected: &[Errno(libc::ENOMEM), Is(true), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "a_bad_request_ends_its_chain",
        place: Place::Connection,
        section: "ibv_post_send(3), 10.8.2",
        says: "The requests before the bad one are carried out, it and those behind it are not; \
               bad_wr points to it.",
        observe: bad_request,
        expected: &[
            REFUSED,
            Number(1),
            Ended(1, WcStatus::SUCCESS),
            Outcome::Nothing,
        ],
        rxe: None,
    },
    Behaviour {
        name: "elements_are_limited",
        place: Place::Connection,
        section: "10.10.2.1",
        says: "More elements than the queue pair was granted: refused, on both queues.",
        observe: too_many_elements,
        expected: &[REFUSED, REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "elements_are_gathered_and_scattered",
        place: Place::Connection,
        section: "10.7.2",
        says: "Bytes are taken from the elements in order, and put into those of the receive.",
        observe: several_elements,
        expected: &[
            Accepted,
            Accepted,
            Ended(1, WcStatus::SUCCESS),
            Ended(70, WcStatus::SUCCESS),
            Is(true),
        ],
        rxe: None,
    },
    Behaviour {
        name: "inline_data_is_limited",
        place: Place::Connection,
        section: "ibv_post_send(3)",
        says: "More inline bytes than the queue pair was granted: refused.",
        observe: too_much_inline,
        expected: &[REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "inline_data_is_copied_when_posted",
        place: Place::Connection,
        section: "ibv_post_send(3)",
        says: "The memory may change after the post, long before the message goes: what arrives \
               is what it was.",
        observe: inline_is_copied,
        expected: &[
            Outcome::Nothing,
            Ended(1, WcStatus::SUCCESS),
            Ended(70, WcStatus::SUCCESS),
            Is(true),
        ],
        rxe: None,
    },
    Behaviour {
        name: "inline_data_needs_no_registration",
        place: Place::Connection,
        section: "ibv_post_send(3)",
        says: "The local key of inline data is not looked at.",
        observe: inline_without_key,
        expected: &[Ended(1, WcStatus::SUCCESS), Is(true)],
        rxe: None,
    },
];

fn send_before_rts(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let post = || answer(a.send(&mut [SendRequest::send(1, None).signaled()]));
    let mut outcomes = vec![post()];
    a.to_init()?;
    outcomes.push(post());
    a.to_rtr(&b)?;
    outcomes.push(post());
    Ok(outcomes)
}

fn receive_before_init(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let in_reset = answer(a.receive_immediates([70]));
    a.to_init()?;
    Ok(vec![in_reset, answer(a.receive_immediates([71]))])
}

fn post_in_error(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.qp.to_error()?;
    let mut outcomes = vec![a.state()?];
    let write = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled();
    outcomes.push(answer(a.send(&mut [write])));
    outcomes.extend(ends(&a.send_cq, 1)?);
    outcomes.push(answer(a.receive_immediates([70])));
    outcomes.push(soon(&a.recv_cq)?);
    Ok(outcomes)
}

fn full_send_queue(stage: &Stage) -> Observed {
    let setup = Setup {
        cq: 1024,
        ..Setup::default()
    };
    let Pair { a, b: _b } = Pair::with(stage, setup, setup)?;
    let granted = a.qp.capabilities().max_send_wr as usize;
    // The peer has no receive, so that none is carried out meanwhile.
    let mut chain = vec![SendRequest::send(1, None).signaled(); 4 * granted + 64];
    let error = match a.send(&mut chain) {
        Ok(()) => return Ok(vec![Accepted]),
        Err(error) => error,
    };
    // All that were accepted are there to be flushed.
    a.qp.to_error()?;
    let flushed = ends(&a.send_cq, error.accepted)?;
    let are_flushed = flushed
        .iter()
        .all(|outcome| *outcome == Ended(1, WcStatus::WR_FLUSH_ERR));
    Ok(vec![
        answer::<(), _>(Err(error)),
        Is(flushed.len() >= granted),
        Is(are_flushed && quiet(&a.send_cq)? == Outcome::Nothing),
    ])
}

fn full_receive_queue(stage: &Stage) -> Observed {
    let setup = Setup {
        cq: 1024,
        ..Setup::default()
    };
    let Pair { a, .. } = Pair::unconnected(stage, setup, setup)?;
    a.to_init()?;
    let granted = a.qp.capabilities().max_recv_wr as usize;
    let mut chain = vec![RecvRequest::new(1); 4 * granted + 64];
    let error = match a.receive(&mut chain) {
        Ok(()) => return Ok(vec![Accepted]),
        Err(error) => error,
    };
    a.qp.to_error()?;
    let flushed = ends(&a.recv_cq, error.accepted)?;
    let are_flushed = flushed
        .iter()
        .all(|outcome| *outcome == Ended(1, WcStatus::WR_FLUSH_ERR));
    Ok(vec![
        answer::<(), _>(Err(error)),
        Is(flushed.len() >= granted),
        Is(are_flushed && quiet(&a.recv_cq)? == Outcome::Nothing),
    ])
}

fn bad_request(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70, 71, 72])?;
    let too_many = vec![a.sge(0, 0); a.qp.capabilities().max_send_sge as usize + 1];
    let (outcome, accepted) = post_elements(&a.qp, &[Vec::new(), too_many, Vec::new()]);
    let mut outcomes = vec![outcome, Number(accepted)];
    outcomes.extend(ends(&a.send_cq, 1)?);
    outcomes.push(quiet(&a.send_cq)?);
    Ok(outcomes)
}

fn too_many_elements(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = Pair::new(stage)?;
    let granted = a.qp.capabilities();
    let elements = |number: u32| vec![a.sge(0, 0); number as usize + 1];
    Ok(vec![
        post_elements(&a.qp, &[elements(granted.max_send_sge)]).0,
        receive_elements(&a.qp, 70, &elements(granted.max_recv_sge)),
    ])
}

fn several_elements(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.memory.fill(0, 3000, 1);
    a.memory.fill(10_000, 2000, 2);
    let into = [b.sge(0, 1000), b.sge(20_000, 4000)];
    let mut outcomes = vec![receive_elements(&b.qp, 70, &into)];
    let from = vec![a.sge(0, 3000), a.sge(10_000, 2000)];
    outcomes.push(post_elements(&a.qp, &[from]).0);
    outcomes.extend(ends(&a.send_cq, 1)?);
    outcomes.extend(ends(&b.recv_cq, 1)?);
    outcomes.push(Is(b.memory.holds(0, 1000, 1)
        && b.memory.holds(20_000, 2000, 1)
        && b.memory.holds(22_000, 2000, 2)
        && b.memory.holds(1000, 1, 0)));
    Ok(outcomes)
}

fn too_much_inline(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let beyond = a.qp.capabilities().max_inline as usize + 1;
    let write = SendRequest::write(1, Some(a.sge(0, beyond)), b.remote(0)).inline();
    Ok(vec![answer(a.send(&mut [write]))])
}

fn inline_is_copied(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.memory.fill(0, 64, 7);
    // The peer has no receive yet, so that the message waits.
    a.send(&mut [SendRequest::send(1, Some(a.sge(0, 64))).inline().signaled()])?;
    a.memory.fill(0, 64, 8);
    let mut outcomes = vec![quiet(&a.send_cq)?];
    b.receive(&mut [RecvRequest::new(70).with_sge(b.sge(0, 64))])?;
    outcomes.extend(ends(&a.send_cq, 1)?);
    outcomes.extend(ends(&b.recv_cq, 1)?);
    outcomes.push(Is(b.memory.holds(0, 64, 7)));
    Ok(outcomes)
}

fn inline_without_key(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let unregistered = Memory::new(4096)?;
    unregistered.fill(0, unregistered.length(), 9);
    let sge = Sge {
        address: unregistered.as_ptr() as u64,
        length: 32,
        lkey: 0xdead_beef,
    };
    a.send(&mut [SendRequest::write(1, Some(sge), b.remote(0))
        .inline()
        .signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(Is(b.memory.holds(0, 32, 9)));
    Ok(outcomes)
}
