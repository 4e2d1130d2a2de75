//! The limits of a device, and what reaching each looks like.

use std::io;
use std::ptr;

use ibnet_simverbs::{DeviceSpec, Fabric, Limits};
use ibnet_verbs::{Access, Context, QueuePairOptions};

use crate::pairs::{Memory, Setup, open_all, options};

fn context_with(limits: Limits) -> Context {
    let device = DeviceSpec::roce("small").limits(limits);
    open_all(&Fabric::builder().device(device).build().unwrap()).remove(0)
}

fn errno<T>(result: Result<T, ibnet_verbs::Error>) -> Option<i32> {
    result.err().unwrap().errno()
}

#[test]
fn a_device_has_only_so_many_objects() {
    let context = context_with(Limits {
        max_pd: 2,
        max_cq: 2,
        max_qp: 2,
        max_mr: 2,
        ..Limits::default()
    });
    let pds = [(); 2].map(|()| context.allocate_pd().unwrap());
    assert_eq!(errno(context.allocate_pd()), Some(libc::ENOMEM));
    let cqs = [(); 2].map(|()| context.create_cq(8).unwrap());
    assert_eq!(errno(context.create_cq(8)), Some(libc::ENOMEM));
    let (pd, cq, setup) = (&pds[0], &cqs[0], Setup::default());
    let mut qps: Vec<_> = (0..2)
        .map(|_| pd.create_qp(&options(cq, &setup)).unwrap())
        .collect();
    assert_eq!(
        errno(pd.create_qp(&options(cq, &setup))),
        Some(libc::ENOMEM)
    );
    let memory = Memory::new(64);
    // SAFETY: the memory outlives the regions.
    let register = || unsafe { pd.register(memory.as_ptr(), 64, Access::empty()) };
    let mut mrs: Vec<_> = (0..2).map(|_| register().unwrap()).collect();
    assert_eq!(errno(register()), Some(libc::ENOMEM));

    // What is given back can be had again.
    qps.pop();
    mrs.pop();
    pd.create_qp(&options(cq, &setup)).unwrap();
    register().unwrap();
}

#[test]
fn attributes_report_the_limits() {
    let limits = Limits {
        max_qp: 3,
        max_qp_wr: 4,
        max_sge: 5,
        max_cq: 6,
        max_cqe: 7,
        max_mr: 8,
        max_mr_size: 9000,
        max_pd: 10,
        max_qp_rd_atom: 11,
        max_qp_init_rd_atom: 12,
        ..Limits::default()
    };
    let found = context_with(limits).attributes().unwrap();
    assert_eq!(
        [found.max_qp, found.max_qp_wr, found.max_sge, found.max_cq],
        [3, 4, 5, 6]
    );
    assert_eq!([found.max_cqe, found.max_mr, found.max_pd], [7, 8, 10]);
    assert_eq!([found.max_qp_rd_atom, found.max_qp_init_rd_atom], [11, 12]);
    assert_eq!(found.max_mr_size, 9000);
}

#[test]
fn objects_have_only_so_much_of_everything() {
    let context = context_with(Limits {
        max_cqe: 16,
        max_qp_wr: 8,
        max_sge: 2,
        max_inline: 32,
        max_mr_size: 4096,
        ..Limits::default()
    });
    assert_eq!(errno(context.create_cq(17)), Some(libc::EINVAL));
    assert_eq!(errno(context.create_cq(0)), Some(libc::EINVAL));
    let (pd, cq) = (
        context.allocate_pd().unwrap(),
        context.create_cq(16).unwrap(),
    );
    assert_eq!(cq.depth(), 16);
    let fitting = QueuePairOptions {
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 32,
        ..options(&cq, &Setup::default())
    };
    let granted = pd.create_qp(&fitting).unwrap().capabilities();
    assert_eq!(
        (granted.max_send_wr, granted.max_recv_wr, granted.max_inline),
        (8, 8, 32)
    );
    for too_much in [
        QueuePairOptions {
            max_send_wr: 9,
            ..fitting
        },
        QueuePairOptions {
            max_recv_wr: 9,
            ..fitting
        },
        QueuePairOptions {
            max_send_sge: 3,
            ..fitting
        },
        QueuePairOptions {
            max_recv_sge: 3,
            ..fitting
        },
        QueuePairOptions {
            max_inline: 33,
            ..fitting
        },
    ] {
        assert_eq!(errno(pd.create_qp(&too_much)), Some(libc::EINVAL));
    }
    let memory = Memory::new(4097);
    // SAFETY: the memory outlives the region.
    let register = |length| unsafe { pd.register(memory.as_ptr(), length, Access::empty()) };
    register(4096).unwrap();
    assert_eq!(errno(register(4097)), Some(libc::EINVAL));
}

/// What the verbs crate would not even ask for.
#[test]
fn objects_of_different_contexts_do_not_go_together() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .build()
        .unwrap();
    let contexts = [open_all(&fabric), open_all(&fabric)].concat();
    let functions = *fabric.library().functions();
    let channel = contexts[1].create_channel().unwrap();
    let create_cq = |channel, vector| {
        // SAFETY: the context is open, and the channel exists or is null.
        let cq = unsafe {
            let context = contexts[0].as_raw();
            (functions.create_cq)(context, 8, ptr::null_mut(), channel, vector)
        };
        assert!(cq.is_null());
        io::Error::last_os_error().raw_os_error()
    };
    assert_eq!(create_cq(channel.as_raw(), 0), Some(libc::EINVAL));
    assert_eq!(create_cq(ptr::null_mut(), 4), Some(libc::EINVAL));
    assert_eq!(create_cq(ptr::null_mut(), -1), Some(libc::EINVAL));

    let pd = contexts[0].allocate_pd().unwrap();
    let cqs = [0, 1].map(|index: usize| contexts[index].create_cq(8).unwrap());
    for (send, receive) in [(0, 1), (1, 0)] {
        let mut attributes = ibnet_verbs::sys::ibv_qp_init_attr {
            send_cq: cqs[send].as_raw(),
            recv_cq: cqs[receive].as_raw(),
            qp_type: ibnet_verbs::sys::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: the domain and the queues exist.
        let qp = unsafe { (functions.create_qp)(pd.as_raw(), &raw mut attributes) };
        assert!(qp.is_null());
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EINVAL)
        );
    }
}

#[test]
fn a_device_is_busy_while_something_of_it_exists() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .build()
        .unwrap();
    let context = open_all(&fabric).remove(0);
    let close_device = fabric.library().functions().close_device;
    let pd = context.allocate_pd().unwrap();
    // SAFETY: the context is open; the call does not succeed.
    assert_eq!(unsafe { close_device(context.as_raw()) }, libc::EBUSY);
    drop((pd, context));
    assert!(fabric.live_objects().is_empty());
}
