//! Polling completion queues, and waiting for them through a channel.

use std::os::fd::{AsFd, AsRawFd};

use ibnet_simverbs::DeviceSpec;
use ibnet_verbs::{Operation, RecvRequest, RemoteAddress, SendRequest, WcStatus, WorkCompletion};

use crate::end::{connected, two};
use crate::tap::{Failure, called, context, fail, library, set_errno, tap};

#[test]
fn completions_come_in_batches_of_the_callers_size() {
    let (a, b) = connected(&two(DeviceSpec::roce).library());
    let mut batch = [WorkCompletion::default(); 4];
    assert!(a.cq.poll(&mut batch).unwrap().is_empty());
    for number in 0..6 {
        b.receive(RecvRequest::new(70));
        a.send(SendRequest::send(number, None).signaled());
    }
    let ids = |completions: &[WorkCompletion]| {
        completions
            .iter()
            .map(WorkCompletion::wr_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(a.cq.poll(&mut batch).unwrap()), [0, 1, 2, 3]);
    assert_eq!(ids(a.cq.poll(&mut batch).unwrap()), [4, 5]);
    assert_eq!(ids(a.cq.poll(&mut batch).unwrap()), [0; 0]);
    assert_eq!(ids(b.cq.poll(&mut []).unwrap()), [0; 0]);
}

#[test]
fn a_failed_request_is_a_completion_and_not_an_error() {
    let (a, b) = connected(&two(DeviceSpec::roce).library());
    let wrong = RemoteAddress {
        rkey: !b.buffer.remote(0).rkey,
        ..b.buffer.remote(0)
    };
    a.send(SendRequest::write(5, Some(a.buffer.sge(0, 8)), wrong).signaled());
    let mut batch = [WorkCompletion::default(); 4];
    let [completion] = a.cq.poll(&mut batch).unwrap() else {
        panic!()
    };
    assert_eq!(completion.status(), WcStatus::REM_ACCESS_ERR);
    assert_eq!(
        (completion.wr_id(), completion.qp_num()),
        (5, a.qp.number())
    );
}

#[test]
fn a_queue_that_cannot_be_polled_is_an_error() {
    let cq = context().create_cq(16).unwrap();
    let mut batch = [WorkCompletion::default(); 1];
    for (failure, errno) in [
        (Failure::MinusOne(libc::EIO), Some(libc::EIO)),
        (Failure::Negated(libc::EIO), Some(libc::EIO)),
        // The data path does not clear what an earlier call has left.
        (Failure::Silent, Some(libc::EBUSY)),
    ] {
        set_errno(libc::EBUSY);
        fail("poll_cq", failure);
        let error = cq.poll(&mut batch).unwrap_err();
        assert!(error.operation == Operation::PollCq);
        assert_eq!(error.errno(), errno);
    }
    // SAFETY: the context is open, and nothing else uses it now.
    unsafe {
        (*cq.context().as_raw()).ops.poll_cq = None;
        (*cq.context().as_raw()).ops.req_notify_cq = None;
    }
    assert!(cq.poll(&mut batch).unwrap_err().is_unsupported());
    assert!(cq.request_notification(false).unwrap_err().is_unsupported());
}

#[test]
fn an_event_comes_through_the_channel_and_is_acknowledged_once() {
    let (a, b) = connected(&library(&two(DeviceSpec::roce)));
    // SAFETY: the descriptor is open, and the command takes and gives plain numbers.
    let flags = unsafe { libc::fcntl(b.channel.as_fd().as_raw_fd(), libc::F_GETFL) };
    assert_ne!(flags & libc::O_NONBLOCK, 0);

    assert!(b.channel.next_event().unwrap().is_none());
    b.cq.request_notification(false).unwrap();
    b.receive(RecvRequest::new(70));
    a.send(SendRequest::send(1, None));
    let event = b.channel.next_event().unwrap().unwrap();
    assert_eq!(event.cq_id(), b.cq.id());
    assert_ne!(event.cq_id(), a.cq.id());
    assert_eq!(called("ack_cq_events"), 0);
    drop(event);
    assert_eq!(called("ack_cq_events"), 1);
    assert!(b.channel.next_event().unwrap().is_none());
}

#[test]
fn failures_around_channels_are_errors() {
    let context = context();
    let channel = context.create_channel().unwrap();
    let cq = context.create_cq_with_channel(16, &channel).unwrap();
    fail("get_cq_event", Failure::Errno(libc::EIO));
    assert!(matches!(
        channel.next_event().unwrap_err().operation,
        Operation::NextCompletionEvent
    ));
    fail("req_notify_cq", Failure::Errno(libc::EIO));
    assert!(matches!(
        cq.request_notification(true).unwrap_err().operation,
        Operation::RequestNotification
    ));
    fail("create_comp_channel", Failure::Errno(libc::EMFILE));
    let error = context.create_channel().unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
}

#[test]
fn a_channel_without_a_descriptor_is_destroyed_again() {
    let context = context();
    tap(|tap| tap.without_descriptors = true);
    assert!(matches!(
        context.create_channel().unwrap_err().operation,
        Operation::CreateChannel
    ));
    assert_eq!(called("destroy_comp_channel"), 1);
}
