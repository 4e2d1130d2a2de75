//! Opening devices, and what is asked of an open one apart from ports and GIDs.

use std::os::fd::AsRawFd;

use ibnet_simverbs::{DeviceSpec, Limits, PortSpec};
use ibnet_verbs::Operation;

use crate::tap::{
    Failure, called, context, device, fabric, fail, oldest_fabric, open, set_errno, tap,
};

#[test]
fn the_descriptor_of_events_is_non_blocking() {
    let context = context();
    // SAFETY: the descriptor is open, and the command takes and gives plain numbers.
    let flags = unsafe { libc::fcntl(context.async_fd().as_raw_fd(), libc::F_GETFL) };
    assert_ne!(flags & libc::O_NONBLOCK, 0);
}

#[test]
fn a_device_that_cannot_be_opened_says_why() {
    fail("open_device", Failure::Errno(libc::EACCES));
    let error = device(&fabric(DeviceSpec::roce("sim0")))
        .open()
        .unwrap_err();
    assert_eq!(error.errno(), Some(libc::EACCES));
    let text = error.to_string();
    assert!(
        text.contains("sim0") && text.contains("/dev/infiniband"),
        "{text}"
    );

    set_errno(libc::EACCES);
    fail("open_device", Failure::Silent);
    assert_eq!(
        device(&fabric(DeviceSpec::roce("sim0")))
            .open()
            .unwrap_err()
            .errno(),
        None
    );
}

#[test]
fn a_context_without_a_descriptor_is_closed_again() {
    tap(|tap| tap.without_descriptors = true);
    let error = device(&fabric(DeviceSpec::roce("sim0")))
        .open()
        .unwrap_err();
    assert!(error.operation == Operation::OpenDevice);
    assert!(error.to_string().contains("descriptor"), "{error}");
    assert_eq!(called("close_device"), 1);
}

#[test]
fn contexts_are_the_same_only_if_opened_once() {
    let device = device(&fabric(DeviceSpec::roce("sim0")));
    let (one, other) = (device.open().unwrap(), device.open().unwrap());
    assert!(one.ptr_eq(&one.clone()));
    assert!(!one.ptr_eq(&other));
}

#[test]
fn attributes_are_those_of_the_device() {
    let limits = Limits {
        max_qp_wr: 16_351,
        max_mr_size: u64::MAX,
        ..Limits::default()
    };
    let device = DeviceSpec::roce("sim0").limits(limits);
    let fabric = fabric(device.guids(1, 0xb83f_d203_00aa_bbcc));
    let attributes = open(&fabric).attributes().unwrap();
    assert_eq!(attributes.node_guid, 1);
    assert_eq!(attributes.max_qp_wr, 16_351);
    assert_eq!(attributes.max_mr_size, u64::MAX);
    assert_eq!(attributes.sys_image_guid, 0xb83f_d203_00aa_bbcc);
    assert_eq!(attributes.phys_port_count, 1);
}

/// The manual page promises a returned errno. Providers exist that return -1 or a negated errno.
#[test]
fn every_way_of_returning_an_errno_is_understood() {
    let context = context();
    for (failure, errno) in [
        (Failure::Errno(libc::EIO), Some(libc::EIO)),
        (Failure::Negated(libc::EIO), Some(libc::EIO)),
        (Failure::MinusOne(libc::EIO), Some(libc::EIO)),
        (Failure::Silent, None),
    ] {
        set_errno(libc::EBUSY);
        fail("query_device", failure);
        let error = context.attributes().unwrap_err();
        assert!(error.operation == Operation::QueryDevice);
        assert_eq!(error.errno(), errno, "{error}");
    }
}

/// A device whose port has two P_Keys.
fn two_pkeys() -> DeviceSpec {
    DeviceSpec::roce("sim0").ports([PortSpec::roce().pkeys([0xffff, 0x8001])])
}

#[test]
fn pkeys_are_in_host_byte_order() {
    let context = open(&fabric(two_pkeys()));
    assert_eq!(context.pkey(1, 1).unwrap(), 0x8001);
    assert_eq!(context.pkey_index(1, 0x8001).unwrap(), 1);
    assert!(matches!(
        context.pkey(1, 2).unwrap_err().operation,
        Operation::QueryPkey { index: 2, .. }
    ));
    let error = context.pkey_index(1, 0x0180).unwrap_err();
    assert!(error.to_string().contains("0x0180"), "{error}");
}

#[test]
fn a_pkey_is_found_without_the_function_for_it() {
    // The last entry of the table cannot be read.
    tap(|tap| tap.port = Some(Box::new(|port| port.pkey_tbl_len = 3)));
    let context = open(&oldest_fabric(two_pkeys()));
    assert_eq!(context.pkey_index(1, 0x8001).unwrap(), 1);
    assert!(matches!(
        context.pkey_index(1, 0x7fff).unwrap_err().operation,
        Operation::FindPkey { .. }
    ));
}
