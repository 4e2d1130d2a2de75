//! Asynchronous events.

use ibnet_simverbs::{DeviceSpec, Fabric, HcaPort, PortSpec, When};
use ibnet_verbs::sys::ibv_async_event;
use ibnet_verbs::{
    Access, Context, EventType, InitAttributes, Operation, QueuePair, QueuePairOptions, RecvRequest,
};

use crate::tap::{Failure, called, context, fabric, fail, open, tap};

/// An event that the simulator does not know, about something that is not there.
fn unknown(event_type: u32) -> ibv_async_event {
    let mut event = ibv_async_event {
        event_type,
        ..Default::default()
    };
    event.element.port_num = 1;
    event
}

fn two_ports() -> Fabric {
    fabric(DeviceSpec::roce("sim0").ports([PortSpec::roce(), PortSpec::roce()]))
}

fn port(fabric: &Fabric, number: u8) -> HcaPort {
    fabric.hca("sim0").unwrap().port(number).unwrap()
}

/// A queue pair in INIT, with a receive.
fn receiving(context: &Context) -> QueuePair {
    let cq = context.create_cq(8).unwrap();
    let pd = context.allocate_pd().unwrap();
    let qp = pd.create_qp(&QueuePairOptions::new(&cq, 8)).unwrap();
    qp.to_init(&InitAttributes {
        port: 1,
        pkey_index: 0,
        access: Access::empty(),
    })
    .unwrap();
    // SAFETY: the request names no memory.
    unsafe { qp.post_recv(&mut [RecvRequest::new(70)]) }.unwrap();
    qp
}

#[test]
fn nothing_pending_is_no_event_and_an_interruption_is_not_noticed() {
    let fabric = two_ports();
    let context = open(&fabric);
    assert!(context.next_event().unwrap().is_none());
    tap(|tap| tap.events = vec![Err(libc::EINTR), Err(libc::EINTR)]);
    port(&fabric, 1).down();
    assert_eq!(
        context.next_event().unwrap().unwrap().kind(),
        EventType::PORT_ERR
    );
    assert_eq!(called("get_async_event"), 4);
}

#[test]
fn an_event_is_acknowledged_once_when_it_is_dropped() {
    let fabric = two_ports();
    let context = open(&fabric);
    port(&fabric, 1).report(EventType::PORT_ERR);
    port(&fabric, 1).report(EventType::SM_CHANGE);
    let first = context.next_event().unwrap().unwrap();
    let second = context.next_event().unwrap().unwrap();
    // The event keeps the device open.
    drop(context);
    assert_eq!(called("ack_async_event"), 0);
    drop(second);
    assert_eq!((called("ack_async_event"), called("close_device")), (1, 0));
    drop(first);
    assert_eq!((called("ack_async_event"), called("close_device")), (2, 1));
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
    let fabric = two_ports();
    let context = open(&fabric);
    port(&fabric, 2).down();
    let event = context.next_event().unwrap().unwrap();
    assert_eq!((event.port(), event.qp_number()), (Some(2), None));
    assert!(!event.is_fatal());
    assert_eq!(event.to_string(), "IBV_EVENT_PORT_ERR on sim0 port 2");
}

#[test]
fn an_event_about_a_queue_pair_names_it() {
    let fabric = two_ports();
    let context = open(&fabric);
    let (qp, other) = (receiving(&context), receiving(&context));
    assert!(fabric.hca("sim0").unwrap().fail_queue_pair(qp.number()));
    let event = context.next_event().unwrap().unwrap();
    assert_eq!((event.port(), event.qp_number()), (None, Some(qp.number())));
    assert!(event.is_qp(&qp) && !event.is_qp(&other) && event.cq_id() != Some(qp.send_cq().id()));
    assert!(event.is_fatal());
    let expected = format!("IBV_EVENT_QP_FATAL on sim0 queue pair {:#x}", qp.number());
    assert_eq!(event.to_string(), expected);
}

#[test]
fn an_event_about_a_completion_queue_is_recognised() {
    let fabric = two_ports();
    let context = open(&fabric);
    let (qp, other) = (receiving(&context), receiving(&context));
    let overrun = fabric.faults().overrun_cq("sim0", When::ALWAYS);
    qp.to_error().unwrap();
    assert_eq!(overrun.struck(), 1);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::CQ_ERR);
    assert_eq!(event.cq_id(), Some(qp.recv_cq().id()));
    assert_ne!(event.cq_id(), Some(other.recv_cq().id()));
    assert!(event.is_fatal());
    assert_eq!((event.port(), event.qp_number()), (None, None));
}

/// The element of such an event is unknown, too, so nothing may be read from it.
#[test]
fn an_event_that_a_newer_kernel_invents_is_kept() {
    let fabric = two_ports();
    let context = open(&fabric);
    tap(|tap| tap.events = vec![Ok(unknown(99)), Ok(unknown(20))]);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::from_raw(99));
    assert_eq!(
        (event.port(), event.qp_number(), event.is_fatal()),
        (None, None, false)
    );
    assert_eq!(event.to_string(), "EventType(99) on sim0");
    drop(event);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.to_string(), "IBV_EVENT_DEVICE_SPEED_CHANGE on sim0");
    fabric.hca("sim0").unwrap().fail();
    let event = context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::DEVICE_FATAL);
    assert_eq!(event.port(), None);
    assert!(event.is_fatal());
}
