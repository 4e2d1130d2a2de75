//! Completion queues: polling, overrunning, and being told by a channel.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ibnet_verbs::{
    CompletionChannel, CompletionQueue, EventType, QueuePairState, SendRequest, WcStatus,
    WorkCompletion,
};

use crate::behaviour::Outcome::{Ended, Event, Is, Number, State};
use crate::behaviour::{Behaviour, Deviation, Failure, Observed, Outcome, Place};
use crate::rig::{
    End, Pair, Setup, Stage, ends, event_about, wait_a_moment_until, wait_for, wait_until,
};

const OK: WcStatus = WcStatus::SUCCESS;

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "polling_takes_no_more_than_asked_for",
        place: Place::Connection,
        section: "ibv_poll_cq(3)",
        says: "Of eight completions polls for three get 3, 3, 2 and none; a poll for none gets \
               none.",
        observe: batches,
        expected: &[Number(0), Number(3), Number(3), Number(2), Number(0)],
        rxe: None,
    },
    Behaviour {
        name: "completions_name_their_queue_pair",
        place: Place::Connection,
        section: "11.4.2.1",
        says: "Of two queue pairs with the same completion queue.",
        observe: numbers,
        expected: &[Is(true), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "an_overrun_is_an_event",
        place: Place::Device,
        section: "10.10.2.3, 11.6.3",
        says: "More completions than the completion queue has room for: an event about it; the \
               queue pair is in ERR.",
        observe: overrun,
        expected: &[Event(EventType::CQ_ERR), State(QueuePairState::ERR)],
        rxe: None,
    },
    Behaviour {
        name: "an_event_holds_the_destruction_of_its_queue_up",
        place: Place::Device,
        section: "ibv_get_async_event(3)",
        says: "Destroying a completion queue waits until an event about it is acknowledged.",
        observe: unacknowledged_event,
        expected: &[Event(EventType::CQ_ERR), Is(true), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "a_channel_tells_what_it_was_asked_for",
        place: Place::Connection,
        section: "11.4.2.2, 10.8.7",
        says: "After a request for notification the next completion makes one event, the one \
               after that none.",
        observe: armed,
        expected: &[Is(false), Is(true), Is(false)],
        rxe: None,
    },
    Behaviour {
        name: "a_channel_tells_nothing_unasked",
        place: Place::Connection,
        section: "11.4.2.2",
        says: "Without a request there is no event; a request does not count completions that \
               came before.",
        observe: unarmed,
        expected: &[Is(false), Is(false)],
        rxe: None,
    },
    Behaviour {
        name: "only_solicited_messages_notify_if_so_asked",
        place: Place::Connection,
        section: "10.8.7",
        says: "After a request for solicited completions only, a plain message makes no event, a \
               solicited one does.",
        observe: solicited,
        expected: &[Ended(70, OK), Is(false), Ended(71, OK), Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "failures_notify_as_solicited_messages_do",
        place: Place::Connection,
        section: "10.8.7",
        says: "After a request for solicited completions only, a receive that is flushed makes \
               an event, and so does a send request that fails.",
        observe: failures_are_solicited,
        expected: &[Is(true), Is(true)],
        rxe: Some(Deviation {
            observed: &[Is(true), Is(false)],
            reason: "counts no completion of a send queue as solicited",
        }),
    },
];

fn batches(stage: &Stage) -> Observed {
    let Pair { a, b } = Pair::new(stage)?;
    b.receive_immediates(70..78)?;
    let mut chain = [SendRequest::send(1, None); 8];
    chain[7] = chain[7].signaled();
    a.send(&mut chain)?;
    // The last is acknowledged, so that all are received.
    ends(&a.send_cq, 1)?;
    let mut outcomes = Vec::new();
    let mut batch = [WorkCompletion::default(); 3];
    for room in [0, 3, 3, 3, 3] {
        let polled = b.recv_cq.poll(&mut batch[..room])?;
        outcomes.push(Number(polled.len() as u64));
    }
    Ok(outcomes)
}

fn numbers(stage: &Stage) -> Observed {
    let context = &stage.contexts[1];
    let cq = context.create_cq(64)?;
    let connect = || -> Result<Pair, Failure> {
        let pair = Pair {
            a: End::new(stage.context(), Setup::default())?,
            b: End::with_queues(context, Setup::default(), cq.clone(), cq.clone())?,
        };
        pair.connect()?;
        Ok(pair)
    };
    let pairs = [connect()?, connect()?];
    let mut outcomes = Vec::new();
    for Pair { a, b } in &pairs {
        b.receive_immediates([70])?;
        a.send(&mut [SendRequest::send(1, None)])?;
        let completions = wait_for(&cq, 1)?;
        let completion = completions.first().ok_or("no receive completes")?;
        outcomes.push(Is(completion.qp_num() == b.qp.number()));
    }
    Ok(outcomes)
}

/// A queue pair whose receives are flushed into a completion queue that is too short.
fn overrunning(stage: &Stage) -> Result<End, Failure> {
    let context = stage.context();
    let cq = context.create_cq(4)?;
    let setup = Setup {
        recv_wr: 4 * cq.depth() + 16,
        ..Setup::default()
    };
    let end = End::with_queues(context, setup, context.create_cq(4)?, cq)?;
    end.to_init()?;
    end.receive_immediates(0..u64::from(setup.recv_wr))?;
    end.qp.to_error()?;
    Ok(end)
}

fn overrun(stage: &Stage) -> Observed {
    let end = overrunning(stage)?;
    let event = event_about(&end.context, |event| {
        event.cq_id() == Some(end.recv_cq.id())
    })?;
    Ok(vec![event, end.state()?])
}

fn unacknowledged_event(stage: &Stage) -> Observed {
    let end = overrunning(stage)?;
    let mut taken = None;
    wait_until(|| {
        let event = end.context.next_event()?;
        taken = event.filter(|event| event.cq_id() == Some(end.recv_cq.id()));
        Ok(taken.is_some())
    })?;
    let event = taken.ok_or("no event about the queue")?;
    let kind = Event(event.kind());
    // Destroyed in another thread, because this one has to acknowledge meanwhile.
    let End {
        qp,
        recv_cq,
        send_cq: _send_cq,
        region: _region,
        pd: _pd,
        context: _context,
        memory: _memory,
        ..
    } = end;
    let (sender, receiver) = channel();
    let destroyer = thread::spawn(move || {
        drop(qp);
        drop(recv_cq);
        // The other end is gone if this took too long.
        let _ = sender.send(());
    });
    let waits = receiver.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout);
    drop(event);
    let ends = receiver.recv_timeout(Duration::from_secs(10)).is_ok();
    if ends {
        destroyer
            .join()
            .map_err(|_| "the destroying thread panicked")?;
    }
    Ok(vec![kind, Is(waits), Is(ends)])
}

/// Two connected ends, the second of which receives into a queue with a channel.
fn with_channel(stage: &Stage) -> Result<(Pair, CompletionChannel), Failure> {
    let context = &stage.contexts[1];
    let channel = context.create_channel()?;
    let cq = context.create_cq_with_channel(64, &channel)?;
    let pair = Pair {
        a: End::new(stage.context(), Setup::default())?,
        b: End::with_queues(context, Setup::default(), cq.clone(), cq)?,
    };
    pair.connect()?;
    Ok((pair, channel))
}

/// Whether an event about that queue comes within a moment.
fn is_told(channel: &CompletionChannel, cq: &CompletionQueue) -> Result<Outcome, Failure> {
    let mut told = None;
    wait_a_moment_until(|| {
        told = channel.next_event()?.map(|event| event.cq_id());
        Ok(told.is_some())
    })?;
    Ok(Is(told == Some(cq.id())))
}

fn armed(stage: &Stage) -> Observed {
    let (Pair { a, b }, channel) = with_channel(stage)?;
    b.receive_immediates([70, 71])?;
    b.recv_cq.request_notification(false)?;
    let mut outcomes = vec![is_told(&channel, &b.recv_cq)?];
    for _ in 0..2 {
        a.send(&mut [SendRequest::send(1, None).signaled()])?;
        ends(&a.send_cq, 1)?;
        outcomes.push(is_told(&channel, &b.recv_cq)?);
    }
    Ok(outcomes)
}

fn unarmed(stage: &Stage) -> Observed {
    let (Pair { a, b }, channel) = with_channel(stage)?;
    b.receive_immediates([70])?;
    a.send(&mut [SendRequest::send(1, None).signaled()])?;
    ends(&a.send_cq, 1)?;
    let unasked = is_told(&channel, &b.recv_cq)?;
    b.recv_cq.request_notification(false)?;
    Ok(vec![unasked, is_told(&channel, &b.recv_cq)?])
}

fn solicited(stage: &Stage) -> Observed {
    let (Pair { a, b }, channel) = with_channel(stage)?;
    b.receive_immediates([70, 71])?;
    b.recv_cq.request_notification(true)?;
    let send = SendRequest::send(1, None);
    let mut outcomes = Vec::new();
    for request in [send, send.solicited()] {
        a.send(&mut [request])?;
        outcomes.extend(ends(&b.recv_cq, 1)?);
        outcomes.push(is_told(&channel, &b.recv_cq)?);
    }
    Ok(outcomes)
}

fn failures_are_solicited(stage: &Stage) -> Observed {
    let (Pair { a: _a, b }, channel) = with_channel(stage)?;
    b.receive_immediates([70])?;
    b.recv_cq.request_notification(true)?;
    b.qp.to_error()?;
    let flushed = is_told(&channel, &b.recv_cq)?;
    drop(b);

    let (Pair { a, b }, channel) = with_channel(stage)?;
    b.send_cq.request_notification(true)?;
    let mut wrong = b.sge(0, 8);
    wrong.lkey = !wrong.lkey;
    b.send(&mut [SendRequest::write(1, Some(wrong), a.remote(0)).signaled()])?;
    Ok(vec![flushed, is_told(&channel, &b.send_cq)?])
}
