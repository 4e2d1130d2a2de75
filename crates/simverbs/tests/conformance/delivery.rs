//! Peers that are not ready, and packets that do not find their peer.

use ibnet_verbs::{Mtu, QueuePairState, SendRequest, WcStatus};

use crate::behaviour::Outcome::{Ended, Is, Nothing, State};
use crate::behaviour::{Behaviour, Deviation, Observed, Outcome, Place};
use crate::rig::{Pair, Setup, Stage, ends, quiet, soon};

/// The peer does not answer.
const UNREACHED: &[Outcome] = &[
    Ended(1, WcStatus::RETRY_EXC_ERR),
    State(QueuePairState::ERR),
];

const fn unreached(
    name: &'static str,
    section: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
) -> Behaviour {
    Behaviour {
        name,
        place: Place::Connection,
        section,
        says,
        observe,
        expected: UNREACHED,
        rxe: None,
    }
}

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "without_rnr_retries_an_unready_peer_fails_the_request",
        place: Place::Connection,
        section: "9.7.5.2.8",
        says: "With an RNR retry count of 0 a message without receive fails; the peer stays in \
               RTS.",
        observe: no_rnr_retry,
        expected: &[
            Ended(1, WcStatus::RNR_RETRY_EXC_ERR),
            State(QueuePairState::ERR),
            State(QueuePairState::RTS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "rnr_retries_are_counted",
        place: Place::Connection,
        section: "9.7.5.2.8",
        says: "With an RNR retry count of 2 it fails in the end, as well.",
        observe: few_rnr_retries,
        expected: &[
            Ended(1, WcStatus::RNR_RETRY_EXC_ERR),
            State(QueuePairState::ERR),
            State(QueuePairState::RTS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "seven_rnr_retries_are_for_ever",
        place: Place::Connection,
        section: "9.7.5.2.8",
        says: "With an RNR retry count of 7 messages wait, those behind them, too, until there \
               are receives; then all arrive, in order.",
        observe: endless_rnr_retries,
        expected: &[
            Nothing,
            Ended(70, WcStatus::SUCCESS),
            Ended(71, WcStatus::SUCCESS),
            Ended(1, WcStatus::SUCCESS),
            Ended(2, WcStatus::SUCCESS),
            Ended(3, WcStatus::SUCCESS),
            Is(true),
        ],
        rxe: None,
    },
    unreached(
        "a_sequence_number_ahead_is_not_acknowledged",
        "9.7.5.1.2",
        "The sender begins 5 packets ahead of what the peer expects: it gives up in the end.",
        psn_ahead,
    ),
    unreached(
        "a_sequence_number_behind_is_not_acknowledged",
        "9.7.5.1.2",
        "The sender begins 5 packets behind what the peer expects, so that its packets seem to be \
         repeated: what is acknowledged is not its own, and it gives up in the end.",
        psn_behind,
    ),
    unreached(
        "a_wrong_queue_pair_number_is_not_answered",
        "9.7.6.1.3",
        "No queue pair has the number: the sender gives up in the end.",
        wrong_number,
    ),
    Behaviour {
        name: "seven_retries_are_not_for_ever",
        place: Place::Connection,
        section: "9.7.6.1.3",
        says: "With a retry count of 7, the largest, the sender gives up, too. (Only for peers that \
               are not ready 7 means for ever.)",
        observe: most_retries,
        expected: UNREACHED,
        rxe: Some(Deviation {
            observed: &[Nothing, State(QueuePairState::RTS)],
            reason: "takes 7 for endless, as it does with the RNR retry count",
        }),
    },
    unreached(
        "a_peer_in_reset_does_not_answer",
        "10.3.1.1",
        "Packets for a queue pair in RESET are dropped: the sender gives up in the end.",
        peer_in_reset,
    ),
    unreached(
        "a_peer_in_init_does_not_answer",
        "10.3.1.2",
        "Packets for a queue pair in INIT are dropped: the sender gives up in the end.",
        peer_in_init,
    ),
    unreached(
        "a_peer_in_error_does_not_answer",
        "10.3.1.7",
        "Packets for a queue pair in ERR are dropped: the sender gives up in the end.",
        peer_in_error,
    ),
    unreached(
        "a_destroyed_peer_does_not_answer",
        "9.7.6.1.3",
        "After a first message has arrived the peer is destroyed: the sender gives up in the end.",
        peer_destroyed,
    ),
    Behaviour {
        name: "different_path_mtus_agree_on_short_messages",
        place: Place::Connection,
        section: "9.7.4.1",
        says: "A message of one packet arrives, whatever the two path MTUs.",
        observe: short_for_both_mtus,
        expected: &[
            Ended(1, WcStatus::SUCCESS),
            State(QueuePairState::RTS),
            State(QueuePairState::RTS),
        ],
        rxe: None,
    },
    Behaviour {
        name: "different_path_mtus_disagree_on_long_messages",
        place: Place::Connection,
        section: "9.7.4.1",
        says: "All packets but the last must be as long as the receiver's path MTU: else the \
               request is invalid, and both ends fail.",
        observe: long_for_both_mtus,
        expected: &[
            Ended(1, WcStatus::REM_INV_REQ_ERR),
            State(QueuePairState::ERR),
            State(QueuePairState::ERR),
        ],
        rxe: None,
    },
];

fn no_rnr_retry(stage: &Stage) -> Observed {
    unready(stage, 0)
}

fn few_rnr_retries(stage: &Stage) -> Observed {
    unready(stage, 2)
}

fn unready(stage: &Stage, rnr_retries: u8) -> Observed {
    let ours = Setup {
        rnr_retries,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, ours, Setup::default())?;
    a.send(&mut [SendRequest::send(1, Some(a.sge(0, 8))).signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(a.state()?);
    outcomes.push(b.state()?);
    Ok(outcomes)
}

fn endless_rnr_retries(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    a.memory.fill(0, 8, 1);
    let sge = Some(a.sge(0, 8));
    a.send(&mut [
        SendRequest::write_with_immediate(1, sge, b.remote(0), 1).signaled(),
        SendRequest::write_with_immediate(2, sge, b.remote(8), 2).signaled(),
        SendRequest::write(3, sge, b.remote(16)).signaled(),
    ])?;
    let mut outcomes = vec![quiet(&a.send_cq)?];
    b.receive_immediates([70, 71])?;
    outcomes.extend(ends(&b.recv_cq, 2)?);
    outcomes.extend(ends(&a.send_cq, 3)?);
    outcomes.push(Is(b.memory.holds(0, 24, 1)));
    Ok(outcomes)
}

/// How a write ends that does not find its peer.
fn lost(pair: &Pair) -> Observed {
    let Pair { a, b } = pair;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(a.state()?);
    Ok(outcomes)
}

fn psn_ahead(stage: &Stage) -> Observed {
    peer_expects(stage, 1000)
}

fn psn_behind(stage: &Stage) -> Observed {
    peer_expects(stage, 1010)
}

/// The sender begins at 1005.
fn peer_expects(stage: &Stage, psn: u32) -> Observed {
    let ours = Setup {
        psn: 1005,
        ..Setup::impatient()
    };
    let theirs = Setup {
        remote_psn: Some(psn),
        ..Setup::default()
    };
    lost(&Pair::with(stage, ours, theirs)?)
}

fn wrong_number(stage: &Stage) -> Observed {
    let ours = Setup {
        remote_qp: Some(0xff_fffd),
        ..Setup::impatient()
    };
    lost(&Pair::with(stage, ours, Setup::default())?)
}

fn most_retries(stage: &Stage) -> Observed {
    let ours = Setup {
        retries: 7,
        remote_qp: Some(0xff_fffd),
        ..Setup::impatient()
    };
    let Pair { a, b } = Pair::with(stage, ours, Setup::default())?;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled()])?;
    Ok(vec![soon(&a.send_cq)?, a.state()?])
}

fn peer_in_reset(stage: &Stage) -> Observed {
    let pair = Pair::with(stage, Setup::impatient(), Setup::default())?;
    pair.b.qp.to_reset()?;
    lost(&pair)
}

fn peer_in_init(stage: &Stage) -> Observed {
    let pair = Pair::with(stage, Setup::impatient(), Setup::default())?;
    pair.b.qp.to_reset()?;
    pair.b.to_init()?;
    lost(&pair)
}

fn peer_in_error(stage: &Stage) -> Observed {
    let pair = Pair::with(stage, Setup::impatient(), Setup::default())?;
    pair.b.qp.to_error()?;
    lost(&pair)
}

fn peer_destroyed(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::with(stage, Setup::impatient(), Setup::default())?;
    let write = SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled();
    a.send(&mut [write])?;
    if ends(&a.send_cq, 1)? != [Ended(1, WcStatus::SUCCESS)] {
        return Err("the connection does not work to begin with".into());
    }
    // The memory stays.
    drop(b.qp);
    a.send(&mut [write])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    outcomes.push(a.state()?);
    Ok(outcomes)
}

fn short_for_both_mtus(stage: &Stage) -> Observed {
    different_mtus(stage, 512)
}

fn long_for_both_mtus(stage: &Stage) -> Observed {
    different_mtus(stage, 4096)
}

fn different_mtus(stage: &Stage, length: usize) -> Observed {
    let ours = Setup {
        mtu: Mtu::MTU_512,
        ..Setup::default()
    };
    let Pair { a, b } = Pair::with(stage, ours, Setup::default())?;
    a.send(&mut [SendRequest::write(1, Some(a.sge(0, length)), b.remote(0)).signaled()])?;
    let mut outcomes = ends(&a.send_cq, 1)?;
    let after = match outcomes[0] {
        Ended(_, WcStatus::SUCCESS) => QueuePairState::RTS,
        _ => QueuePairState::ERR,
    };
    outcomes.push(a.state()?);
    outcomes.push(b.state_at_last(after)?);
    Ok(outcomes)
}
