//! Moving data: writes, reads and sends, their order, and messages of no bytes or too many.

use ibnet_verbs::{
    Access, QueuePairState, RecvRequest, RemoteAddress, SendRequest, Sge, WcOpcode, WcStatus,
};

use crate::behaviour::Outcome::{Ended, Is, Nothing, Number, Opcode, State};
use crate::behaviour::{Behaviour, Deviation, Observed, Outcome, Place};
use crate::rig::{Memory, PORT, Pair, SIZE, Setup, Stage, ends, quiet, wait_for};

const OK: WcStatus = WcStatus::SUCCESS;

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a_write_places_its_bytes_and_nothing_else",
        place: Place::Connection,
        section: "9.4.3",
        says: "40,000 bytes arrive, none beside them changes, and the peer's receive is not \
               consumed.",
        observe: write,
        expected: &[
            Ended(1, OK),
            Opcode(WcOpcode::RDMA_WRITE),
            Is(true),
            Nothing,
        ],
        rxe: None,
    },
    Behaviour {
        name: "a_read_fetches_its_bytes",
        place: Place::Connection,
        section: "9.4.4",
        says: "40,000 bytes of the peer are there with the completion, which tells the length.",
        observe: read,
        expected: &[
            Ended(1, OK),
            Opcode(WcOpcode::RDMA_READ),
            Number(40_000),
            Is(true),
        ],
        rxe: None,
    },
    Behaviour {
        name: "a_send_fills_the_oldest_receive",
        place: Place::Connection,
        section: "9.4.1",
        says: "Two sends go into two receives, in order; the completions tell the lengths.",
        observe: send,
        expected: &[
            Ended(70, OK),
            Opcode(WcOpcode::RECV),
            Number(5000),
            Ended(71, OK),
            Opcode(WcOpcode::RECV),
            Number(3),
            Is(true),
        ],
        rxe: None,
    },
    Behaviour {
        name: "a_send_too_long_for_its_receive_fails_both",
        place: Place::Connection,
        section: "9.9.3, 10.10.2.2",
        says: "The sender's request is invalid to the peer, whose receive ends with a length \
               error; both are in ERR.",
        observe: send_too_long,
        expected: &[
            Ended(1, WcStatus::REM_INV_REQ_ERR),
            Ended(70, WcStatus::LOC_LEN_ERR),
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
            reason: "the receiver takes its own request for malformed",
        }),
    },
    Behaviour {
        name: "completions_come_in_the_order_of_posting",
        place: Place::Connection,
        section: "10.8.3.2, 10.8.5",
        says: "Of writes, reads and sends of all lengths, posted in turn.",
        observe: order,
        expected: &[
            Ended(1, OK),
            Ended(2, OK),
            Ended(3, OK),
            Ended(4, OK),
            Ended(5, OK),
            Ended(6, OK),
        ],
        rxe: None,
    },
    Behaviour {
        name: "data_is_there_before_its_completion",
        place: Place::Connection,
        section: "9.5, 10.8.4",
        says: "Whenever the receiver of an immediate sees its completion, it sees all bytes of \
               that write and of the plain writes before it. 40 times.",
        observe: data_first,
        expected: &[Number(40)],
        rxe: None,
    },
    Behaviour {
        name: "a_fenced_request_waits_for_reads",
        place: Place::Connection,
        section: "10.8.3.3",
        says: "A fenced write sends what the read before it has fetched.",
        observe: fence,
        expected: &[Ended(1, OK), Ended(2, OK), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "a_write_of_no_bytes_needs_no_key",
        place: Place::Connection,
        section: "9.7.4.1, C9-88",
        says: "The remote key and address of an empty write are not looked at.",
        observe: empty_write,
        expected: &[Ended(1, OK), Opcode(WcOpcode::RDMA_WRITE)],
        rxe: None,
    },
    Behaviour {
        name: "a_read_of_no_bytes_needs_no_key",
        place: Place::Connection,
        section: "9.7.4.1, C9-88",
        says: "The remote key and address of an empty read are not looked at.",
        observe: empty_read,
        expected: &[Ended(1, OK), Opcode(WcOpcode::RDMA_READ)],
        rxe: None,
    },
    Behaviour {
        name: "a_send_of_no_bytes_consumes_a_receive",
        place: Place::Connection,
        section: "9.4.1",
        says: "Its completion tells a length of 0.",
        observe: empty_send,
        expected: &[Ended(1, OK), Ended(70, OK), Number(0)],
        rxe: None,
    },
    Behaviour {
        name: "a_message_is_no_longer_than_the_port_allows",
        place: Place::Connection,
        section: "9.9.2, 10.10.2.2",
        says: "A write of max_msg_sz bytes arrives; one of a byte more fails with a local length \
               error.",
        observe: longest_message,
        expected: &[Ended(1, OK), Ended(2, WcStatus::LOC_LEN_ERR)],
        rxe: Some(Deviation {
            observed: &[Ended(1, OK), Ended(2, OK)],
            reason: "announces a limit, and does not look at it",
        }),
    },
];

fn write(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates([70])?;
    a.memory.fill(0, 40_000, 1);
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 40_000)), b.remote(100)).signaled()])?;
    let completions = wait_for(&a.send_cq, 1)?;
    let completion = completions.first().ok_or("the write does not complete")?;
    let arrived = b.memory.holds(0, 100, 0)
        && b.memory.holds(100, 40_000, 1)
        && b.memory.holds(40_100, SIZE - 40_100, 0);
    Ok(vec![
        Ended(completion.wr_id(), completion.status()),
        Opcode(completion.opcode()),
        Is(arrived),
        quiet(&b.recv_cq)?,
    ])
}

fn read(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.memory.fill(100, 40_000, 1);
    a.send(&mut [SendRequest::read(1, Some(a.sge(7, 40_000)), b.remote(100)).signaled()])?;
    let completions = wait_for(&a.send_cq, 1)?;
    let completion = completions.first().ok_or("the read does not complete")?;
    Ok(vec![
        Ended(completion.wr_id(), completion.status()),
        Opcode(completion.opcode()),
        Number(completion.byte_len().into()),
        Is(a.memory.holds(0, 7, 0)
            && a.memory.holds(7, 40_000, 1)
            && a.memory.holds(40_007, 100, 0)),
    ])
}

fn send(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.memory.fill(0, 6000, 1);
    b.receive(&mut [
        RecvRequest::new(70).with_sge(b.sge(0, 6000)),
        RecvRequest::new(71).with_sge(b.sge(10_000, 6000)),
    ])?;
    a.send(&mut [
        SendRequest::send(1, Some(a.sge(0, 5000))),
        SendRequest::send(2, Some(a.sge(0, 3))),
    ])?;
    let mut outcomes = Vec::new();
    for completion in wait_for(&b.recv_cq, 2)? {
        outcomes.push(Ended(completion.wr_id(), completion.status()));
        outcomes.push(Opcode(completion.opcode()));
        outcomes.push(Number(completion.byte_len().into()));
    }
    outcomes.push(Is(b.memory.holds(0, 5000, 1)
        && b.memory.holds(5000, 5000, 0)
        && b.memory.holds(10_000, 3, 1)
        && b.memory.holds(10_003, 100, 0)));
    Ok(outcomes)
}

fn send_too_long(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive(&mut [RecvRequest::new(70).with_sge(b.sge(0, 99))])?;
    a.send(&mut [SendRequest::send(1, Some(a.sge(0, 100))).signaled()])?;
    Ok([
        ends(&a.send_cq, 1)?,
        ends(&b.recv_cq, 1)?,
        vec![a.state()?, b.state_at_last(QueuePairState::ERR)?],
    ]
    .concat())
}

fn order(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive(&mut [
        RecvRequest::new(70).with_sge(b.sge(0, 10_000)),
        RecvRequest::new(71),
    ])?;
    let mut chain = [
        SendRequest::read(1, Some(a.sge(0, 30_000)), b.remote(0)),
        SendRequest::write(2, Some(a.sge(30_000, 1)), b.remote(30_000)),
        SendRequest::send(3, Some(a.sge(30_000, 9000))),
        SendRequest::read(4, Some(a.sge(40_000, 4)), b.remote(40_000)),
        SendRequest::write_with_immediate(5, Some(a.sge(30_000, 20_000)), b.remote(0), 5),
        SendRequest::write(6, None, b.remote(0)),
    ]
    .map(SendRequest::signaled);
    a.send(&mut chain)?;
    ends(&a.send_cq, 6)
}

fn data_first(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    let mut good = 0;
    for round in 1..=40 {
        b.receive_immediates([u64::from(round)])?;
        a.memory.fill(0, SIZE, round);
        a.send(&mut [
            SendRequest::write(1, Some(a.sge(0, 30_000)), b.remote(0)),
            SendRequest::write_with_immediate(2, Some(a.sge(30_000, 9000)), b.remote(30_000), 0)
                .signaled(),
        ])?;
        if ends(&b.recv_cq, 1)? != [Ended(round.into(), OK)] {
            break;
        }
        good += u64::from(b.memory.holds(0, 39_000, round));
        ends(&a.send_cq, 1)?;
    }
    Ok(vec![Number(good)])
}

fn fence(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.memory.fill(0, 30_000, 1);
    let read = SendRequest::read(1, Some(a.sge(0, 30_000)), b.remote(0)).signaled();
    let write = SendRequest::write(2, Some(a.sge(29_000, 1000)), b.remote(40_000));
    a.send(&mut [read, write.fenced().signaled()])?;
    let mut outcomes = ends(&a.send_cq, 2)?;
    outcomes.push(Is(b.memory.holds(40_000, 1000, 1)));
    Ok(outcomes)
}

/// No memory at all.
const NOWHERE: RemoteAddress = RemoteAddress {
    address: 0,
    rkey: 0,
};

fn empty_write(stage: &Stage) -> Observed {
    empty(stage, SendRequest::write(1, None, NOWHERE))
}

fn empty_read(stage: &Stage) -> Observed {
    empty(stage, SendRequest::read(1, None, NOWHERE))
}

fn empty(stage: &Stage, request: SendRequest) -> Observed {
    let Pair { a, b: _b } = Pair::new(stage)?;
    a.send(&mut [request.signaled()])?;
    let completions = wait_for(&a.send_cq, 1)?;
    let completion = completions.first().ok_or("the request does not complete")?;
    let mut outcomes = vec![Ended(completion.wr_id(), completion.status())];
    if completion.is_success() {
        outcomes.push(Opcode(completion.opcode()));
    }
    Ok(outcomes)
}

fn empty_send(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive(&mut [RecvRequest::new(70).with_sge(b.sge(0, 100))])?;
    a.send(&mut [SendRequest::send(1, None).signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    for completion in wait_for(&b.recv_cq, 1)? {
        outcomes.push(Ended(completion.wr_id(), completion.status()));
        outcomes.push(Number(completion.byte_len().into()));
    }
    Ok(outcomes)
}

fn longest_message(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::with(stage, Setup::default(), Setup::default())?;
    let longest = a.context.port(PORT)?.max_message_size;
    if longest > 64 << 20 {
        return Err(format!("max_msg_sz is {longest}: more than this test wants to move").into());
    }
    let length = longest as usize + 1;
    let (from, to) = (Memory::new(length)?, Memory::new(length)?);
    // SAFETY: the memory is kept longer than the region.
    let from_region = unsafe { a.pd.register(from.as_ptr(), length, Access::empty()) }?;
    // SAFETY: as above.
    let to_region = unsafe { b.pd.register(to.as_ptr(), length, b.setup.region_access) }?;
    let remote = RemoteAddress {
        address: to_region.address(),
        rkey: to_region.rkey(),
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (wr_id, length) in [(1, longest), (2, longest + 1)] {
        let sge = Sge {
            address: from_region.address(),
            length,
            lkey: from_region.lkey(),
        };
        a.send(&mut [SendRequest::write(wr_id, Some(sge), remote).signaled()])?;
        outcomes.extend(ends(&a.send_cq, 1)?);
    }
    // Nothing may be under way when the memory goes.
    drop((a, b));
    drop((from_region, to_region));
    Ok(outcomes)
}
