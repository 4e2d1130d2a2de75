//! In which order things are destroyed, whatever the order in which their owners are dropped.

use ibnet_verbs::Access;

use crate::queue_pairs::options;
use crate::tap::{Failure, context, fail, take_calls};

const TEARDOWN: [&str; 7] = [
    "destroy_qp",
    "destroy_cq",
    "destroy_comp_channel",
    "dereg_mr",
    "dealloc_pd",
    "close_device",
    "free_device_list",
];

/// Makes one of everything, drops the owners in the order that `order` puts them in, and gives
/// the order of the destroying calls.
fn teardown(order: impl FnOnce(&mut Vec<Box<dyn Send>>)) -> Vec<&'static str> {
    let context = context();
    let pd = context.allocate_pd().unwrap();
    let channel = context.create_channel().unwrap();
    let cq = context.create_cq_with_channel(8, &channel).unwrap();
    let qp = pd.create_qp(&options(&cq, &cq)).unwrap();
    let memory: &'static mut [u8] = Box::leak(vec![0; 64].into_boxed_slice());
    // SAFETY: the memory is never freed and not used otherwise.
    let mr = unsafe { pd.register(memory.as_mut_ptr(), 64, Access::empty()) }.unwrap();
    let mut owners: Vec<Box<dyn Send>> = vec![
        Box::new(context),
        Box::new(pd),
        Box::new(channel),
        Box::new(cq),
        Box::new(mr),
        Box::new(qp),
    ];
    order(&mut owners);
    owners.into_iter().for_each(drop);
    take_calls()
        .into_iter()
        .filter(|call| TEARDOWN.contains(call))
        .collect()
}

fn position(calls: &[&str], call: &str) -> usize {
    let positions: Vec<_> = (0..calls.len()).filter(|&at| calls[at] == call).collect();
    assert_eq!(positions.len(), 1, "{call} in {calls:?}");
    positions[0]
}

fn check(calls: &[&str]) {
    assert_eq!(calls.len(), TEARDOWN.len(), "{calls:?}");
    for (earlier, later) in [
        ("destroy_qp", "destroy_cq"),
        ("destroy_cq", "destroy_comp_channel"),
        ("destroy_qp", "dealloc_pd"),
        ("dereg_mr", "dealloc_pd"),
        ("destroy_comp_channel", "close_device"),
        ("dealloc_pd", "close_device"),
        ("close_device", "free_device_list"),
    ] {
        assert!(
            position(calls, earlier) < position(calls, later),
            "{earlier} before {later}"
        );
    }
}

#[test]
fn parents_dropped_first_still_go_last() {
    let calls = teardown(|_| {});
    check(&calls);
    // The queue pair was the last owner: all that only it held goes with it.
    assert_eq!(
        calls,
        [
            "dereg_mr",
            "destroy_qp",
            "destroy_cq",
            "destroy_comp_channel",
            "dealloc_pd",
            "close_device",
            "free_device_list"
        ]
    );
}

#[test]
fn children_dropped_first_go_first() {
    check(&teardown(|owners| owners.reverse()));
}

#[test]
fn any_order_of_owners_is_safe() {
    for rotation in 1..6 {
        check(&teardown(|owners| owners.rotate_left(rotation)));
    }
}

#[test]
fn destroying_that_fails_neither_panics_nor_stops_the_rest() {
    for (index, function) in TEARDOWN.iter().take(6).enumerate() {
        fail(
            function,
            Failure::Errno(if index % 2 == 0 {
                libc::EBUSY
            } else {
                libc::EIO
            }),
        );
    }
    // Each once.
    check(&teardown(|_| {}));
}

#[test]
fn what_fails_to_be_made_leaves_nothing_behind() {
    let context = context();
    let cq = context.create_cq(8).unwrap();
    let pd = context.allocate_pd().unwrap();
    fail("create_qp", Failure::Errno(libc::ENOMEM));
    fail("reg_mr", Failure::Errno(libc::ENOMEM));
    fail("alloc_pd", Failure::Errno(libc::ENOMEM));
    fail("create_cq", Failure::Errno(libc::ENOMEM));
    let mut byte = 0_u8;
    pd.create_qp(&options(&cq, &cq)).unwrap_err();
    // SAFETY: nothing is registered.
    unsafe { pd.register(&raw mut byte, 1, Access::empty()) }.unwrap_err();
    context.allocate_pd().unwrap_err();
    context.create_cq(8).unwrap_err();
    drop((context, cq, pd));
    let destroyed: Vec<_> = take_calls()
        .into_iter()
        .filter(|call| TEARDOWN.contains(call))
        .collect();
    assert_eq!(
        destroyed,
        [
            "destroy_cq",
            "dealloc_pd",
            "close_device",
            "free_device_list"
        ]
    );
}
