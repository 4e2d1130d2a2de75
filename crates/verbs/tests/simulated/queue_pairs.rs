//! Making queue pairs and completion queues, and their enhanced connection establishment.

use ibnet_simverbs::{DeviceSpec, Limits};
use ibnet_verbs::sys::ibv_qp_cap;
use ibnet_verbs::{
    Access, CompletionQueue, Context, Ece, InitAttributes, Operation, QueuePair, QueuePairOptions,
    RecvRequest, WcStatus, WorkCompletion,
};

use crate::tap::{Failure, called, context, fabric, fail, is_refused, oldest_context, open, tap};

pub(crate) fn options<'a>(
    send_cq: &'a CompletionQueue,
    recv_cq: &'a CompletionQueue,
) -> QueuePairOptions<'a> {
    QueuePairOptions {
        send_cq,
        recv_cq,
        max_send_wr: 128,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 2,
        max_inline: 64,
        signal_all: false,
    }
}

pub(crate) fn queue_pair(context: &Context) -> QueuePair {
    let cq = context.create_cq(16).unwrap();
    context
        .allocate_pd()
        .unwrap()
        .create_qp(&options(&cq, &cq))
        .unwrap()
}

#[test]
fn a_queue_pair_has_what_was_asked_for_on_both_queues() {
    let context = context();
    let (send_cq, recv_cq) = (
        context.create_cq(8).unwrap(),
        context.create_cq(16).unwrap(),
    );
    assert_eq!((send_cq.depth(), recv_cq.depth()), (8, 16));
    let pd = context.allocate_pd().unwrap();
    let qp = pd.create_qp(&options(&send_cq, &recv_cq)).unwrap();
    // The simulator grants what it is asked for.
    let granted = qp.capabilities();
    assert_eq!((granted.max_send_wr, granted.max_recv_wr), (128, 64));
    assert_eq!((granted.max_send_sge, granted.max_recv_sge), (1, 2));
    assert_eq!(granted.max_inline, 64);
    assert!(qp.send_cq().ptr_eq(&send_cq) && qp.recv_cq().ptr_eq(&recv_cq));
    assert!(qp.pd().ptr_eq(&pd));

    qp.to_init(&InitAttributes {
        port: 1,
        pkey_index: 0,
        access: Access::empty(),
    })
    .unwrap();
    // SAFETY: the request names no memory.
    unsafe { qp.post_recv(&mut [RecvRequest::new(70)]) }.unwrap();
    qp.to_error().unwrap();
    let mut batch = [WorkCompletion::default(); 2];
    assert!(send_cq.poll(&mut batch).unwrap().is_empty());
    let [flushed] = recv_cq.poll(&mut batch).unwrap() else {
        panic!("one receive");
    };
    assert_eq!(
        (flushed.qp_num(), flushed.status()),
        (qp.number(), WcStatus::WR_FLUSH_ERR)
    );
}

#[test]
fn what_was_granted_counts() {
    let granted = ibv_qp_cap {
        max_send_wr: 256,
        max_recv_wr: 65,
        max_send_sge: 3,
        max_recv_sge: 4,
        max_inline_data: 220,
    };
    tap(|tap| tap.granted = Some(granted));
    let context = context();
    let cq = context.create_cq(8).unwrap();
    assert_eq!(cq.depth(), 12);
    let pd = context.allocate_pd().unwrap();
    let qp = pd.create_qp(&options(&cq, &cq)).unwrap();
    let told = qp.capabilities();
    assert_eq!((told.max_send_wr, told.max_recv_wr), (256, 65));
    assert_eq!((told.max_send_sge, told.max_recv_sge), (3, 4));
    assert_eq!(told.max_inline, 220);
}

#[test]
fn sizes_are_clamped_to_the_device() {
    let limits = Limits {
        max_qp_wr: 100,
        max_sge: 1,
        ..Limits::default()
    };
    let context = open(&fabric(DeviceSpec::roce("sim0").limits(limits)));
    let cq = context.create_cq(8).unwrap();
    let clamped = options(&cq, &cq).clamp_to(&context.attributes().unwrap());
    assert_eq!((clamped.max_send_wr, clamped.max_recv_wr), (100, 64));
    assert_eq!((clamped.max_send_sge, clamped.max_recv_sge), (1, 1));
    assert_eq!(clamped.max_inline, 64);
}

#[test]
fn a_refused_queue_pair_says_what_was_asked_and_which_limits_there_are() {
    let context = context();
    let cq = context.create_cq(8).unwrap();
    fail("create_qp", Failure::Errno(libc::ENOMEM));
    let error = context
        .allocate_pd()
        .unwrap()
        .create_qp(&options(&cq, &cq))
        .unwrap_err();
    let text = error.to_string();
    for part in ["sim0", "128 send", "64 inline", "64 receive", "max_qp_wr"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn objects_of_different_contexts_do_not_mix() {
    let (one, other) = (context(), context());
    let (pd, cq, foreign) = (
        one.allocate_pd().unwrap(),
        one.create_cq(8).unwrap(),
        other.create_cq(8).unwrap(),
    );
    for (send_cq, recv_cq) in [(&cq, &foreign), (&foreign, &cq)] {
        let error = pd.create_qp(&options(send_cq, recv_cq)).unwrap_err();
        assert!(is_refused(&error));
    }
    let channel = other.create_channel().unwrap();
    let error = one.create_cq_with_channel(8, &channel).unwrap_err();
    assert!(error.to_string().contains("another context"), "{error}");
    assert_eq!(called("create_qp"), 0);
}

#[test]
fn a_queue_deeper_than_an_int_is_refused() {
    assert!(is_refused(&context().create_cq(u32::MAX).unwrap_err()));
    fail("create_cq", Failure::Errno(libc::EINVAL));
    let error = context().create_cq(1 << 30).unwrap_err();
    assert!(error.to_string().contains("1073741824 entries"), "{error}");
}

#[test]
fn ece_is_queried_and_set_where_there_is_any() {
    let ece = Ece {
        vendor_id: 0x15b3,
        options: 0x3000_0002,
        comp_mask: 0,
    };
    let qp = queue_pair(&open(&fabric(DeviceSpec::roce("sim0").ece(ece))));
    qp.set_ece(&ece).unwrap();
    assert_eq!(qp.ece().unwrap(), Some(ece));

    fail("query_ece", Failure::Errno(libc::EOPNOTSUPP));
    assert_eq!(qp.ece().unwrap(), None);
    fail("query_ece", Failure::Errno(libc::EINVAL));
    assert!(matches!(
        qp.ece().unwrap_err().operation,
        Operation::QueryEce { .. }
    ));
    fail("set_ece", Failure::Errno(libc::EOPNOTSUPP));
    let error = qp.set_ece(&ece).unwrap_err();
    assert!(matches!(error.operation, Operation::SetEce { .. }) && error.is_unsupported());

    let qp = queue_pair(&oldest_context());
    assert_eq!(qp.ece().unwrap(), None);
    let error = qp.set_ece(&ece).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("ibv_set_ece"));
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
}
