//! Immediates: writes that consume a receive, and what the completion tells.

use ibnet_verbs::{QueuePairState, RecvRequest, RemoteAddress, SendRequest, WcOpcode, WcStatus};

use crate::behaviour::Outcome::{Ended, Immediate, Is, Nothing, Number, Opcode, State};
use crate::behaviour::{Behaviour, Deviation, Failure, Observed, Outcome, Place};
use crate::rig::{End, Pair, Stage, ends, quiet, wait_for};

const OK: WcStatus = WcStatus::SUCCESS;

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a_write_with_immediate_consumes_a_receive",
        place: Place::Connection,
        section: "9.4.3, 11.4.2.1",
        says: "The bytes go to the remote address, not to the receive's buffer; the completion \
               tells the immediate and how many bytes were written.",
        observe: with_bytes,
        expected: &[
            Ended(1, OK),
            Ended(70, OK),
            Opcode(WcOpcode::RECV_RDMA_WITH_IMM),
            Immediate(Some(0x0102_0304)),
            Number(5000),
            Is(true),
        ],
        rxe: None,
    },
    Behaviour {
        name: "a_write_with_immediate_of_no_bytes_does_so_too",
        place: Place::Connection,
        section: "9.4.3, C9-88",
        says: "With remote key and address 0, which are not looked at; the length told is 0.",
        observe: without_bytes,
        expected: &[
            Ended(1, OK),
            Ended(70, OK),
            Opcode(WcOpcode::RECV_RDMA_WITH_IMM),
            Immediate(Some(0xffff_ffff)),
            Number(0),
        ],
        rxe: None,
    },
    Behaviour {
        name: "each_immediate_consumes_one_receive",
        place: Place::Connection,
        section: "9.4.3",
        says: "Three writes, the first without immediate, consume two receives, in order.",
        observe: one_each,
        expected: &[Ended(70, OK), Ended(71, OK), Nothing],
        rxe: None,
    },
    Behaviour {
        name: "an_immediate_is_there_only_with_its_flag",
        place: Place::Connection,
        section: "11.4.2.1",
        says: "A send without immediate is told from one with immediate 0.",
        observe: flag,
        expected: &[Immediate(None), Immediate(Some(0))],
        rxe: None,
    },
    Behaviour {
        name: "a_denied_write_with_immediate_consumes_no_receive",
        place: Place::Connection,
        section: "9.9.3, 10.3.1.7",
        says: "The writer is told that access is denied; the peer fails, and its receive is \
               flushed.",
        observe: denied,
        expected: &[
            Ended(1, WcStatus::REM_ACCESS_ERR),
            State(QueuePairState::ERR),
            Ended(70, WcStatus::WR_FLUSH_ERR),
        ],
        rxe: Some(Deviation {
            observed: &[
                Ended(1, WcStatus::REM_ACCESS_ERR),
                State(QueuePairState::ERR),
                Ended(70, WcStatus::REM_ACCESS_ERR),
            ],
            reason: "takes the receive before it looks at the key, and ends it with the sender's \
                     status",
        }),
    },
];

/// What the receiver of an immediate is told.
fn told(b: &End) -> Result<Vec<Outcome>, Failure> {
    let completions = wait_for(&b.recv_cq, 1)?;
    let completion = completions.first().ok_or("no receive completes")?;
    Ok(vec![
        Ended(completion.wr_id(), completion.status()),
        Opcode(completion.opcode()),
        Immediate(completion.immediate()),
        Number(completion.byte_len().into()),
    ])
}

fn with_bytes(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive(&mut [RecvRequest::new(70).with_sge(b.sge(0, 10_000))])?;
    a.memory.fill(0, 5000, 1);
    let remote = b.remote(20_000);
    let write = SendRequest::write_with_immediate(1, Some(a.sge(0, 5000)), remote, 0x0102_0304);
    a.send(&mut [write.signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.extend(told(&b)?);
    outcomes.push(Is(
        b.memory.holds(0, 20_000, 0) && b.memory.holds(20_000, 5000, 1)
    ));
    Ok(outcomes)
}

fn without_bytes(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70])?;
    let nowhere = RemoteAddress::default();
    let write = SendRequest::write_with_immediate(1, None, nowhere, 0xffff_ffff);
    a.send(&mut [write.signaled()])?;
    Ok([ends(&a.send_cq, 1)?, told(&b)?].concat())
}

fn one_each(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70, 71, 72])?;
    let sge = Some(a.sge(0, 8));
    a.send(&mut [
        SendRequest::write(1, sge, b.remote(0)),
        SendRequest::write_with_immediate(2, sge, b.remote(0), 2),
        SendRequest::write_with_immediate(3, sge, b.remote(0), 3),
    ])?;
    let mut outcomes = ends(&b.recv_cq, 2)?;
    outcomes.push(quiet(&b.recv_cq)?);
    Ok(outcomes)
}

fn flag(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70, 71])?;
    a.send(&mut [
        SendRequest::send(1, None),
        SendRequest::send_with_immediate(2, None, 0),
    ])?;
    let completions = wait_for(&b.recv_cq, 2)?;
    let immediates = completions.iter().map(|completion| completion.immediate());
    Ok(immediates.map(Immediate).collect())
}

fn denied(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70])?;
    let mut wrong = b.remote(0);
    wrong.rkey = !wrong.rkey;
    let write = SendRequest::write_with_immediate(1, Some(a.sge(0, 8)), wrong, 0);
    a.send(&mut [write.signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(b.state_at_last(QueuePairState::ERR)?);
    outcomes.extend(ends(&b.recv_cq, 1)?);
    Ok(outcomes)
}
