//! What each step demands, and the bounds of values.

use ibnet_verbs::sys::{ibv_qp_attr_mask as bits, ibv_qp_state};
use ibnet_verbs::{Destination, InitAttributes, QueuePairOptions};

use crate::behaviour::Outcome::{Accepted, Errno, Failed, Is};
use crate::behaviour::{Behaviour, Deviation, Observed, Outcome, Place, answer, success};
use crate::rig::{PORT, Pair, Setup, Stage, attributes, modify};

const REFUSED: Outcome = Errno(libc::EINVAL);

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "each_step_needs_its_attributes",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "To INIT without the port, to RTR without the peer's number, to RTS without the \
               timeout: refused.",
        observe: missing_attributes,
        expected: &[REFUSED, REFUSED, REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "a_step_takes_no_attributes_of_others",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "To INIT with a timeout, to RTR with a retry count, to RTS with a path MTU: \
               refused.",
        observe: foreign_attributes,
        expected: &[REFUSED, REFUSED, REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "the_port_must_exist",
        place: Place::Device,
        section: "11.2.5.2",
        says: "To INIT with port 0, or with a port behind the last: refused.",
        observe: ports,
        expected: &[REFUSED, REFUSED, Accepted],
        rxe: None,
    },
    Behaviour {
        name: "the_pkey_must_exist",
        place: Place::Device,
        section: "11.2.5.2",
        says: "To INIT with a P_Key index behind the table: refused.",
        observe: pkeys,
        expected: &[REFUSED],
        rxe: Some(Deviation {
            observed: &[Accepted],
            reason: "has one P_Key, and does not look at the index",
        }),
    },
    Behaviour {
        name: "the_own_address_must_exist",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "To RTR with a GID index that has no GID: refused.",
        observe: addresses,
        expected: &[Failed],
        rxe: None,
    },
    Behaviour {
        name: "the_path_mtu_is_one_of_five",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "To RTR with the MTU codes 0 and 6: refused.",
        observe: mtus,
        expected: &[REFUSED, REFUSED],
        rxe: Some(Deviation {
            observed: &[Accepted, REFUSED],
            reason: "looks only for codes that are too large",
        }),
    },
    Behaviour {
        name: "reads_at_once_are_limited",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "To RTR serving more reads, to RTS with more reads under way than the device can: \
               refused.",
        observe: reads,
        expected: &[REFUSED, REFUSED],
        rxe: Some(Deviation {
            observed: &[Accepted, REFUSED],
            reason: "looks only at the reads that it has under way itself",
        }),
    },
    Behaviour {
        name: "timers_and_counts_fit_their_fields",
        place: Place::Connection,
        section: "11.2.5.2",
        says: "RNR timer 32; timeout 32, retry count 8, RNR retry count 8: refused.",
        observe: timers,
        expected: &[REFUSED; 4],
        rxe: Some(Deviation {
            observed: &[Accepted, REFUSED, Accepted, Accepted],
            reason: "looks only at the timeout",
        }),
    },
    Behaviour {
        name: "a_queue_pair_is_made_within_the_limits",
        place: Place::Device,
        section: "11.2.5.1",
        says: "More requests, elements or inline bytes than the device can: refused.",
        observe: qp_limits,
        expected: &[REFUSED, REFUSED, REFUSED],
        rxe: None,
    },
    Behaviour {
        name: "at_least_what_was_asked_for_is_granted",
        place: Place::Device,
        section: "11.2.5.1",
        says: "Requests, elements and inline bytes of a queue pair, entries of a completion queue.",
        observe: granted,
        expected: &[Is(true); 4],
        rxe: None,
    },
    Behaviour {
        name: "a_completion_queue_is_made_within_the_limits",
        place: Place::Device,
        section: "ibv_create_cq(3)",
        says: "With 0 entries, or more than the device can: refused.",
        observe: cq_limits,
        expected: &[REFUSED, REFUSED],
        rxe: None,
    },
];

/// Which step, and what is wrong with it.
struct Mistake {
    step: usize,
    spoil: fn(&mut ibnet_verbs::sys::ibv_qp_attr, &mut bits),
}

/// Makes each mistake in the step that it is of, after the right steps before.
fn walk(stage: &Stage, mistakes: &[Mistake]) -> Observed {
    let Pair { a, b } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let (right, masks) = attributes(a.setup.access, &a.ready_to_receive(&b)?, &a.ready_to_send());
    let states = [
        ibv_qp_state::IBV_QPS_INIT,
        ibv_qp_state::IBV_QPS_RTR,
        ibv_qp_state::IBV_QPS_RTS,
    ];
    let mut outcomes = Vec::new();
    for mistake in mistakes {
        a.qp.to_reset()?;
        for step in 0..=mistake.step {
            let (mut raw, mut mask) = (right, masks[step]);
            raw.qp_state = states[step];
            if step == mistake.step {
                (mistake.spoil)(&mut raw, &mut mask);
                outcomes.push(modify(&a.qp, &mut raw, mask));
                continue;
            }
            let outcome = modify(&a.qp, &mut raw, mask);
            if outcome != Accepted {
                return Err(format!("step {step} fails without a mistake: {outcome}").into());
            }
        }
    }
    Ok(outcomes)
}

/// The steps by their number.
const TO_INIT: usize = 0;
const TO_RTR: usize = 1;
const TO_RTS: usize = 2;

fn missing_attributes(stage: &Stage) -> Observed {
    walk(
        stage,
        &[
            Mistake {
                step: TO_INIT,
                spoil: |_, mask| mask.0 &= !bits::IBV_QP_PORT.0,
            },
            Mistake {
                step: TO_RTR,
                spoil: |_, mask| mask.0 &= !bits::IBV_QP_DEST_QPN.0,
            },
            Mistake {
                step: TO_RTS,
                spoil: |_, mask| mask.0 &= !bits::IBV_QP_TIMEOUT.0,
            },
        ],
    )
}

fn foreign_attributes(stage: &Stage) -> Observed {
    walk(
        stage,
        &[
            Mistake {
                step: TO_INIT,
                spoil: |_, mask| mask.0 |= bits::IBV_QP_TIMEOUT.0,
            },
            Mistake {
                step: TO_RTR,
                spoil: |_, mask| mask.0 |= bits::IBV_QP_RETRY_CNT.0,
            },
            Mistake {
                step: TO_RTS,
                spoil: |_, mask| mask.0 |= bits::IBV_QP_PATH_MTU.0,
            },
        ],
    )
}

fn ports(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let last = stage.context().attributes()?.phys_port_count;
    let to_init = |port| {
        answer(a.qp.to_init(&InitAttributes {
            port,
            ..a.init_attributes()
        }))
    };
    Ok(vec![to_init(0), to_init(last + 1), to_init(PORT)])
}

fn pkeys(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let outcome = a.qp.to_init(&InitAttributes {
        pkey_index: stage.context().port(PORT)?.pkey_table_len,
        ..a.init_attributes()
    });
    Ok(vec![answer(outcome)])
}

fn addresses(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    a.to_init()?;
    let mut step = a.ready_to_receive(&b)?;
    let route = step.address.destination.route;
    let mut route = route.ok_or("the devices do not use GIDs")?;
    route.sgid_index = 255;
    step.address.destination = Destination::global(route);
    Ok(vec![success(a.qp.to_rtr(&step))])
}

fn mtus(stage: &Stage) -> Observed {
    walk(
        stage,
        &[
            Mistake {
                step: TO_RTR,
                spoil: |raw, _| raw.path_mtu = 0,
            },
            Mistake {
                step: TO_RTR,
                spoil: |raw, _| raw.path_mtu = 6,
            },
        ],
    )
}

fn reads(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let limits = a.context.attributes()?;
    let beyond = |limit: u32| u8::try_from(limit + 1);
    let mut rtr = a.ready_to_receive(&b)?;
    rtr.max_dest_rd_atomic = beyond(limits.max_qp_rd_atom)?;
    let mut rts = a.ready_to_send();
    rts.max_rd_atomic = beyond(limits.max_qp_init_rd_atom)?;
    a.to_init()?;
    let to_rtr = answer(a.qp.to_rtr(&rtr));
    if to_rtr != Accepted {
        a.to_rtr(&b)?;
    }
    Ok(vec![to_rtr, answer(a.qp.to_rts(&rts))])
}

fn timers(stage: &Stage) -> Observed {
    walk(
        stage,
        &[
            Mistake {
                step: TO_RTR,
                spoil: |raw, _| raw.min_rnr_timer = 32,
            },
            Mistake {
                step: TO_RTS,
                spoil: |raw, _| raw.timeout = 32,
            },
            Mistake {
                step: TO_RTS,
                spoil: |raw, _| raw.retry_cnt = 8,
            },
            Mistake {
                step: TO_RTS,
                spoil: |raw, _| raw.rnr_retry = 8,
            },
        ],
    )
}

fn qp_limits(stage: &Stage) -> Observed {
    let context = stage.context();
    let limits = context.attributes()?;
    let pd = context.allocate_pd()?;
    let cq = context.create_cq(16)?;
    let options = QueuePairOptions {
        send_cq: &cq,
        recv_cq: &cq,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
        signal_all: false,
    };
    let requests = QueuePairOptions {
        max_send_wr: limits.max_qp_wr + 1,
        ..options
    };
    let elements = QueuePairOptions {
        max_recv_sge: limits.max_sge + 1,
        ..options
    };
    let inline = QueuePairOptions {
        max_inline: 1 << 20,
        ..options
    };
    let all = [requests, elements, inline];
    Ok(all
        .iter()
        .map(|options| answer(pd.create_qp(options)))
        .collect())
}

fn granted(stage: &Stage) -> Observed {
    let Pair { a, .. } = Pair::unconnected(stage, Setup::default(), Setup::default())?;
    let (asked, granted) = (a.setup, a.qp.capabilities());
    Ok(vec![
        Is(granted.max_send_wr >= asked.send_wr && granted.max_recv_wr >= asked.recv_wr),
        Is(granted.max_send_sge >= asked.elements && granted.max_recv_sge >= asked.elements),
        Is(granted.max_inline >= asked.inline),
        Is(a.send_cq.depth() >= asked.cq),
    ])
}

fn cq_limits(stage: &Stage) -> Observed {
    let context = stage.context();
    let limits = context.attributes()?;
    Ok(vec![
        answer(context.create_cq(0)),
        answer(context.create_cq(limits.max_cqe + 1)),
    ])
}
