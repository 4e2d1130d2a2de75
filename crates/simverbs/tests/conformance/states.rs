//! The states of a queue pair and the steps between them.

use ibnet_verbs::sys::{ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_qp_state};
use ibnet_verbs::{Access, EventType, QueuePairState, SendRequest, WcStatus};

use crate::behaviour::Outcome::{Accepted, Ended, Errno, Event, Is, Nothing, State};
use crate::behaviour::{Behaviour, Deviation, Failure, Observed, Outcome, Place, answer};
use crate::rig::{PORT, Pair, Setup, Stage, attributes, ends, event_about, modify, quiet, soon};

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a_new_queue_pair_is_in_reset",
        place: Place::Device,
        section: "10.3.1.1",
        says: "A queue pair is created in RESET.",
        observe: new_qp,
        expected: &[State(QueuePairState::RESET)],
        rxe: None,
    },
    Behaviour {
        name: "the_way_up_is_reset_init_rtr_rts",
        place: Place::Connection,
        section: "10.3.1",
        says: "The states on the way to sending.",
        observe: way_up,
        expected: &[
            State(QueuePairState::INIT),
            State(QueuePairState::RTR),
            State(QueuePairState::RTS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "no_step_can_be_skipped",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "RESET to RTR, RESET to RTS and INIT to RTS are refused; the state stays.",
        observe: skipped_steps,
        expected: &[
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            State(QueuePairState::INIT),
        ],
        rxe: None,
    },
    Behaviour {
        name: "no_step_leads_back",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "RTR to INIT, RTS to INIT and RTS to RTR are refused; the state stays.",
        observe: steps_back,
        expected: &[
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            State(QueuePairState::RTS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "only_reset_leads_out_of_error",
        place: Place::Connection,
        section: "10.3.1.7",
        says: "ERR to INIT, RTR and RTS are refused; ERR to ERR and to RESET are possible.",
        observe: out_of_error,
        expected: &[
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            Accepted,
            Accepted,
            State(QueuePairState::RESET),
        ],
        rxe: None,
    },
    Behaviour {
        name: "reset_does_not_lead_to_error",
        place: Place::Device,
        section: "11.2.5.2",
        says: "RESET leads to INIT only; RESET to RESET changes nothing.",
        observe: reset_to_error,
        expected: &[Errno(libc::EINVAL), Accepted, State(QueuePairState::RESET)],
        rxe: None,
    },
    Behaviour {
        name: "init_can_be_repeated_with_other_attributes",
        place: Place::Device,
        section: "11.2.5.2",
        says: "INIT to INIT may change the access; it is as changed.",
        observe: repeated_init,
        expected: &[Accepted, Accepted, Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "the_current_state_must_be_told_right",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "A modification that names a current state other than the true one is refused.",
        observe: wrong_current_state,
        expected: &[Errno(libc::EINVAL), State(QueuePairState::RTS)],
        rxe: Some(Deviation {
            observed: &[Accepted, State(QueuePairState::RTS)],
            reason: "takes the state that the caller names for the true one",
        }),
    },
    Behaviour {
        name: "rtr_receives",
        place: Place::Connection,
        section: "10.3.1.3",
        says: "A queue pair in RTR takes messages: both ends' requests complete.",
        observe: receiving_in_rtr,
        expected: &[Ended(1, WcStatus::SUCCESS), Ended(70, WcStatus::SUCCESS)],
        rxe: None,
    },
    Behaviour {
        name: "the_first_message_in_rtr_is_announced",
        place: Place::Connection,
        section: "11.6.3.1",
        says: "A packet that comes while the queue pair is in RTR raises an event.",
        observe: established,
        expected: &[Event(EventType::COMM_EST)],
        rxe: Some(Deviation {
            observed: &[Nothing],
            reason: "has no such event",
        }),
    },
    Behaviour {
        name: "sqd_holds_new_requests_back",
        place: Place::Connection,
        section: "10.3.1.5",
        says: "In SQD a request is accepted but not begun; back in RTS it is carried out, before \
               the next one is posted.",
        observe: held_in_sqd,
        expected: &[
            Accepted,
            Accepted,
            Nothing,
            Accepted,
            Ended(1, WcStatus::SUCCESS),
            Ended(2, WcStatus::SUCCESS),
        ],
        rxe: Some(Deviation {
            observed: &[
                Accepted,
                Accepted,
                Nothing,
                Accepted,
                Nothing,
                Ended(1, WcStatus::SUCCESS),
            ],
            reason: "back in RTS it does not look at its queue before the next post",
        }),
    },
    Behaviour {
        name: "sqd_tells_when_the_queue_is_drained",
        place: Place::Connection,
        section: "10.3.1.5",
        says: "If it was asked for, an event tells that all that was begun has ended.",
        observe: drained,
        expected: &[Accepted, Event(EventType::SQ_DRAINED)],
        rxe: None,
    },
    Behaviour {
        name: "a_reset_queue_pair_can_be_used_again",
        place: Place::Connection,
        section: "10.3.1.1",
        says: "After a failure and a reset of both ends the connection can be made anew.",
        observe: used_again,
        expected: &[
            State(QueuePairState::ERR),
            State(QueuePairState::RESET),
            Ended(2, WcStatus::SUCCESS),
            Ended(71, WcStatus::SUCCESS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "query_gives_what_modify_set",
        place: Place::Connection,
        section: "11.2.5.3",
        says: "State, port, access, MTU, peer, address, sequence numbers, retries, timers and \
               reads are those that were set.",
        observe: query,
        expected: &[Is(true); 8],
        rxe: None,
    },
];

fn new_qp(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    Ok(vec![a.state()?])
}

fn way_up(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    a.to_init()?;
    let mut states = vec![a.state()?];
    a.to_rtr(&b)?;
    states.push(a.state()?);
    a.to_rts()?;
    states.push(a.state()?);
    Ok(states)
}

/// Takes one step with all the attributes that it has anywhere.
fn step(pair: &Pair, to: ibv_qp_state::Type) -> Result<Outcome, Failure> {
    let Pair { a, b } = pair;
    let (mut raw, [to_init, to_rtr, to_rts]) =
        attributes(a.setup.access, &a.ready_to_receive(b)?, &a.ready_to_send());
    raw.qp_state = to;
    let mask = match to {
        ibv_qp_state::IBV_QPS_INIT => to_init,
        ibv_qp_state::IBV_QPS_RTR => to_rtr,
        _ => to_rts,
    };
    Ok(modify(&a.qp, &mut raw, mask))
}

fn skipped_steps(stage: &Stage) -> Observed {
    let pair = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let mut outcomes = vec![
        step(&pair, ibv_qp_state::IBV_QPS_RTR)?,
        step(&pair, ibv_qp_state::IBV_QPS_RTS)?,
    ];
    pair.a.to_init()?;
    outcomes.push(step(&pair, ibv_qp_state::IBV_QPS_RTS)?);
    outcomes.push(pair.a.state()?);
    Ok(outcomes)
}

fn steps_back(stage: &Stage) -> Observed {
    let pair = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    pair.a.to_init()?;
    pair.a.to_rtr(&pair.b)?;
    let mut outcomes = vec![step(&pair, ibv_qp_state::IBV_QPS_INIT)?];
    pair.a.to_rts()?;
    outcomes.push(step(&pair, ibv_qp_state::IBV_QPS_INIT)?);
    outcomes.push(step(&pair, ibv_qp_state::IBV_QPS_RTR)?);
    outcomes.push(pair.a.state()?);
    Ok(outcomes)
}

fn out_of_error(stage: &Stage) -> Observed {
    let pair = Pair::new(stage)?;
    pair.a.qp.to_error()?;
    Ok(vec![
        step(&pair, ibv_qp_state::IBV_QPS_INIT)?,
        step(&pair, ibv_qp_state::IBV_QPS_RTR)?,
        step(&pair, ibv_qp_state::IBV_QPS_RTS)?,
        answer(pair.a.qp.to_error()),
        answer(pair.a.qp.to_reset()),
        pair.a.state()?,
    ])
}

fn reset_to_error(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    Ok(vec![
        answer(a.qp.to_error()),
        answer(a.qp.to_reset()),
        a.state()?,
    ])
}

fn repeated_init(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let mut attributes = a.init_attributes();
    let first = answer(a.qp.to_init(&attributes));
    attributes.access = Access::REMOTE_READ;
    let second = answer(a.qp.to_init(&attributes));
    Ok(vec![
        first,
        second,
        Is(a.qp.query()?.access == Access::REMOTE_READ),
    ])
}

fn wrong_current_state(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = Pair::new(stage)?;
    // SQD to RTS would be possible.
    let mut raw = ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_RTS,
        cur_qp_state: ibv_qp_state::IBV_QPS_SQD,
        ..Default::default()
    };
    let outcome = modify(&a.qp, &mut raw, bits::IBV_QP_STATE | bits::IBV_QP_CUR_STATE);
    Ok(vec![outcome, a.state()?])
}

fn receiving_in_rtr(stage: &Stage) -> Observed {
    let Pair { a, b } = half_connected(stage)?;
    b.receive_immediates([70])?;
    a.send(&mut [SendRequest::send(1, None).signaled()])?;
    Ok([ends(&a.send_cq, 1)?, ends(&b.recv_cq, 1)?].concat())
}

fn established(stage: &Stage) -> Observed {
    let Pair { a, b } = half_connected(stage)?;
    b.receive_immediates([70])?;
    a.send(&mut [SendRequest::send(1, None).signaled()])?;
    ends(&a.send_cq, 1)?;
    let is_meant = |event: &ibnet_verbs::AsyncEvent| event.is_qp(&b.qp);
    Ok(vec![event_about(&b.context, is_meant)?])
}

/// `a` in RTS, `b` in RTR.
fn half_connected(stage: &Stage) -> Result<Pair, Failure> {
    let pair = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    pair.b.to_init()?;
    pair.b.to_rtr(&pair.a)?;
    pair.a.connect(&pair.b)?;
    Ok(pair)
}

fn held_in_sqd(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let to = |state| {
        let mut raw = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        modify(&a.qp, &mut raw, bits::IBV_QP_STATE)
    };
    let mut outcomes = vec![to(ibv_qp_state::IBV_QPS_SQD)];
    let write = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled();
    outcomes.push(answer(a.send(&mut [write])));
    outcomes.push(quiet(&a.send_cq)?);
    outcomes.push(to(ibv_qp_state::IBV_QPS_RTS));
    outcomes.push(soon(&a.send_cq)?);
    a.send(&mut [write.with_wr_id(2)])?;
    outcomes.extend(ends(&a.send_cq, 1)?);
    Ok(outcomes)
}

fn drained(stage: &Stage) -> Observed {
    let Pair { a, b: _b } = Pair::new(stage)?;
    let mut raw = ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_SQD,
        en_sqd_async_notify: 1,
        ..Default::default()
    };
    let mask = bits::IBV_QP_STATE | bits::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    let outcome = modify(&a.qp, &mut raw, mask);
    let event = event_about(&a.context, |event| event.is_qp(&a.qp))?;
    Ok(vec![outcome, event])
}

fn used_again(stage: &Stage) -> Observed {
    let pair = Pair::new(stage)?;
    let Pair { a, b } = &pair;
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), wrong).signaled()])?;
    ends(&a.send_cq, 1)?;
    let mut outcomes = vec![a.state()?];
    b.qp.to_error()?;
    a.qp.to_reset()?;
    b.qp.to_reset()?;
    outcomes.push(a.state()?);
    pair.connect()?;
    b.receive_immediates([71])?;
    let write = SendRequest::write_with_immediate(2, Some(a.sge(0, 8)), b.remote(0), 0);
    a.send(&mut [write.signaled()])?;
    outcomes.extend(ends(&a.send_cq, 1)?);
    outcomes.extend(ends(&b.recv_cq, 1)?);
    Ok(outcomes)
}

fn query(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let (rtr, rts) = (a.ready_to_receive(&b)?, a.ready_to_send());
    let now = a.qp.query()?;
    Ok(vec![
        Is(now.state == QueuePairState::RTS && now.port == PORT),
        Is(now.access == a.setup.access),
        Is(now.mtu == rtr.mtu),
        Is(now.remote_qp == rtr.remote_qp && now.address == rtr.address),
        Is((now.receive_psn, now.send_psn) == (rtr.remote_psn, rts.psn)),
        Is((now.retry_count, now.rnr_retry) == (rts.retry_count, rts.rnr_retry)),
        Is((now.timeout, now.min_rnr_timer) == (rts.timeout, rtr.min_rnr_timer)),
        Is((now.max_rd_atomic, now.max_dest_rd_atomic)
            == (rts.max_rd_atomic, rtr.max_dest_rd_atomic)),
    ])
}
