//! Making queue pairs and completion queues, and their enhanced connection establishment.

use ibnet_verbs::sys::{ibv_qp_attr, ibv_qp_cap, ibv_qp_type};
use ibnet_verbs::{
    CompletionQueue, Context, Ece, Functions, Operation, QueuePair, QueuePairOptions,
};

use crate::fake::{
    Failure, called, context, context_of, fail, fake, functions, is_refused, oldest_functions,
};

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
fn a_queue_pair_is_a_reliable_connection_with_what_was_granted() {
    let granted = ibv_qp_cap {
        max_send_wr: 256,
        max_recv_wr: 65,
        max_send_sge: 3,
        max_recv_sge: 4,
        max_inline_data: 220,
    };
    fake(|fake| fake.granted = granted);
    let context = context();
    let (send_cq, recv_cq) = (
        context.create_cq(8).unwrap(),
        context.create_cq(16).unwrap(),
    );
    assert_eq!((send_cq.depth(), recv_cq.depth()), (12, 20));
    let pd = context.allocate_pd().unwrap();
    let qp = pd.create_qp(&options(&send_cq, &recv_cq)).unwrap();

    let requested = fake(|fake| fake.requested).unwrap();
    assert_eq!(requested.qp_type, ibv_qp_type::IBV_QPT_RC);
    assert_eq!(
        (requested.send_cq, requested.recv_cq),
        (send_cq.as_raw(), recv_cq.as_raw())
    );
    assert_eq!(requested.sq_sig_all, 0);
    assert_eq!(
        (requested.cap.max_send_wr, requested.cap.max_recv_wr),
        (128, 64)
    );
    assert_eq!(
        (requested.cap.max_send_sge, requested.cap.max_recv_sge),
        (1, 2)
    );
    assert_eq!(requested.cap.max_inline_data, 64);

    assert_eq!(qp.number(), 0xabc);
    let capabilities = qp.capabilities();
    assert_eq!(
        (capabilities.max_send_wr, capabilities.max_recv_wr),
        (256, 65)
    );
    assert_eq!(
        (capabilities.max_send_sge, capabilities.max_recv_sge),
        (3, 4)
    );
    assert_eq!(capabilities.max_inline, 220);
    assert!(qp.send_cq().ptr_eq(&send_cq) && qp.recv_cq().ptr_eq(&recv_cq));
    assert!(qp.pd().ptr_eq(&pd));
}

#[test]
fn sizes_are_clamped_to_the_device() {
    fake(|fake| (fake.device.max_qp_wr, fake.device.max_sge) = (100, 1));
    let context = context();
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
    for part in ["fake_0", "128 send", "64 inline", "64 receive", "max_qp_wr"] {
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
    let qp = queue_pair(&context());
    let ece = Ece {
        vendor_id: 0x15b3,
        options: 0x3000_0002,
        comp_mask: 0,
    };
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

    let qp = queue_pair(&context_of(oldest_functions()));
    assert_eq!(qp.ece().unwrap(), None);
    let error = qp.set_ece(&ece).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("ibv_set_ece"));
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
}

#[test]
fn a_table_can_wrap_another() {
    unsafe extern "C" fn refuse(
        _: *mut ibnet_verbs::sys::ibv_qp,
        _: *mut ibv_qp_attr,
        _: std::os::raw::c_int,
    ) -> std::os::raw::c_int {
        libc::ETIMEDOUT
    }
    let wrapped = Functions {
        modify_qp: refuse,
        ..functions()
    };
    let qp = queue_pair(&context_of(wrapped));
    assert_eq!(qp.to_error().unwrap_err().errno(), Some(libc::ETIMEDOUT));
    assert_eq!(called("modify_qp"), 0);
}
