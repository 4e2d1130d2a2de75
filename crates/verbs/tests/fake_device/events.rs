//! Asynchronous events.

use ibnet_verbs::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_FATAL, ibv_async_event, ibv_async_event__bindgen_ty_1 as element,
};
use ibnet_verbs::{EventType, Operation};

use crate::fake::{Failure, called, context, fail, fake};
use crate::queue_pairs::queue_pair;

fn on_port(event_type: u32, port: i32) -> ibv_async_event {
    let mut event = ibv_async_event {
        event_type,
        ..Default::default()
    };
    event.element.port_num = port;
    event
}

fn script(events: Vec<Result<ibv_async_event, i32>>) {
    fake(|fake| fake.events = events);
}

#[test]
fn nothing_pending_is_no_event_and_an_interruption_is_not_noticed() {
    let context = context();
    assert!(context.next_event().unwrap().is_none());
    script(vec![
        Err(libc::EINTR),
        Err(libc::EINTR),
        Ok(on_port(IBV_EVENT_PORT_ERR, 1)),
    ]);
    assert_eq!(
        context.next_event().unwrap().unwrap().kind(),
        EventType::PORT_ERR
    );
    assert_eq!(called("get_async_event"), 4);
}

#[test]
fn an_event_is_acknowledged_once_when_it_is_dropped() {
    let context = context();
    script(vec![
        Ok(on_port(IBV_EVENT_PORT_ERR, 1)),
        Ok(on_port(IBV_EVENT_GID_CHANGE, 1)),
    ]);
    let first = context.next_event().unwrap().unwrap();
    let second = context.next_event().unwrap().unwrap();
    // The event keeps the device open.
    drop(context);
    assert_eq!(called("ack_async_event"), 0);
    drop(second);
    assert_eq!(
        fake(|fake| fake.acknowledged.clone()),
        [IBV_EVENT_GID_CHANGE]
    );
    assert_eq!(called("close_device"), 0);
    drop(first);
    assert_eq!(called("ack_async_event"), 2);
    assert_eq!(called("close_device"), 1);
}

#[test]
fn a_device_that_is_gone_is_an_error_and_acknowledges_nothing() {
    let context = context();
    fail("get_async_event", Failure::Errno(libc::EIO));
    let error = context.next_event().unwrap_err();
    assert!(error.operation == Operation::NextEvent);
    assert!(error.to_string().contains("removed or reset"), "{error}");
    fail("get_async_event", Failure::Silent);
    assert_eq!(context.next_event().unwrap_err().errno(), None);
    assert_eq!(called("ack_async_event"), 0);
}

#[test]
fn an_event_about_a_port_names_it() {
    let context = context();
    script(vec![Ok(on_port(IBV_EVENT_PORT_ERR, 2))]);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!((event.port(), event.qp_number()), (Some(2), None));
    assert!(!event.is_fatal());
    assert_eq!(event.to_string(), "IBV_EVENT_PORT_ERR on fake_0 port 2");
}

#[test]
fn an_event_about_a_queue_pair_names_it() {
    let context = context();
    let (qp, other) = (queue_pair(&context), queue_pair(&context));
    let about = ibv_async_event {
        element: element { qp: qp.as_raw() },
        event_type: IBV_EVENT_QP_FATAL,
    };
    script(vec![Ok(about)]);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!((event.port(), event.qp_number()), (None, Some(0xabc)));
    assert!(event.is_qp(&qp) && !event.is_qp(&other) && event.cq_id() != Some(qp.send_cq().id()));
    assert!(event.is_fatal());
    assert_eq!(
        event.to_string(),
        "IBV_EVENT_QP_FATAL on fake_0 queue pair 0xabc"
    );
}

#[test]
fn an_event_about_a_completion_queue_is_recognised() {
    let context = context();
    let (cq, other) = (context.create_cq(8).unwrap(), context.create_cq(8).unwrap());
    let about = ibv_async_event {
        element: element { cq: cq.as_raw() },
        event_type: IBV_EVENT_CQ_ERR,
    };
    script(vec![Ok(about)]);
    let event = context.next_event().unwrap().unwrap();
    assert!(
        event.cq_id() == Some(cq.id()) && event.cq_id() != Some(other.id()) && event.is_fatal()
    );
    assert_eq!((event.port(), event.qp_number()), (None, None));
}

/// The element of such an event is unknown, too, so nothing may be read from it.
#[test]
fn an_event_that_a_newer_kernel_invents_is_kept() {
    let context = context();
    script(vec![
        Ok(on_port(99, 1)),
        Ok(on_port(20, 0)),
        Ok(on_port(IBV_EVENT_DEVICE_FATAL, 0)),
    ]);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::from_raw(99));
    assert_eq!(
        (event.port(), event.qp_number(), event.is_fatal()),
        (None, None, false)
    );
    assert_eq!(event.to_string(), "EventType(99) on fake_0");
    drop(event);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.to_string(), "IBV_EVENT_DEVICE_SPEED_CHANGE on fake_0");
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.port(), None);
    assert!(event.is_fatal());
}
