//! Listing devices, and the library itself.

use std::path::Path;

use ibnet_simverbs::{DeviceSpec, Fabric};
use ibnet_verbs::sys::{IBV_FORK_DISABLED, IBV_FORK_ENABLED};
use ibnet_verbs::{ForkStatus, Operation, Transport};

use crate::tap::{Failure, called, device, fabric, fail, library, oldest_fabric, set_errno, tap};

fn one() -> Fabric {
    fabric(DeviceSpec::roce("sim0"))
}

fn two() -> Fabric {
    let second = DeviceSpec::roce("sim1").guids(0x0102_0304_0506_0708, 1);
    Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .device(second.sysfs_path("/sys/class/infiniband/sim1"))
        .build()
        .unwrap()
}

#[test]
fn a_device_tells_who_it_is() {
    let devices = library(&two()).devices().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    assert_eq!(names, ["sim0", "sim1"]);
    assert_eq!(devices[1].guid(), 0x0102_0304_0506_0708);
    assert_eq!(
        devices[1].sysfs_path(),
        Path::new("/sys/class/infiniband/sim1")
    );
    assert_eq!(devices[1].kernel_index(), Some(1));
    assert!(format!("{:?}", devices[1]).contains("sim1"));
}

#[test]
fn the_transport_is_kept_whatever_it_is() {
    for (raw, transport) in [
        (0, Transport::InfiniBand),
        (1, Transport::Iwarp),
        (-1, Transport::NotKnown),
        (99, Transport::Unknown(99)),
    ] {
        tap(|tap| tap.transport = Some(raw));
        assert_eq!(device(&one()).transport(), transport);
    }
}

#[test]
fn the_kernel_index_may_be_unknown() {
    let oldest = oldest_fabric(DeviceSpec::roce("sim0"));
    assert_eq!(device(&oldest).kernel_index(), None);
    let device = device(&one());
    fail("get_device_index", Failure::Silent);
    assert_eq!(device.kernel_index(), None);
}

#[test]
fn the_list_is_freed_once_with_the_last_device_of_it() {
    let mut devices = library(&two()).devices().unwrap();
    let last = devices.remove(1);
    let context = devices.remove(0).open().unwrap();
    drop(devices);
    drop(last);
    assert_eq!(called("free_device_list"), 0);
    assert_eq!(context.device_name(), "sim0");
    drop(context);
    assert_eq!(called("free_device_list"), 1);
}

#[test]
fn no_devices_are_an_empty_list_that_is_freed_too() {
    let none = Fabric::builder().build().unwrap();
    assert!(library(&none).devices().unwrap().is_empty());
    assert_eq!(called("free_device_list"), 1);
}

#[test]
fn a_kernel_without_rdma_has_no_devices() {
    fail("get_device_list", Failure::Errno(libc::ENOSYS));
    assert!(library(&one()).devices().unwrap().is_empty());
    assert_eq!(called("free_device_list"), 0);
}

#[test]
fn a_list_that_cannot_be_read_is_an_error() {
    fail("get_device_list", Failure::Errno(libc::EPERM));
    let error = library(&one()).devices().unwrap_err();
    assert!(error.operation == Operation::ListDevices);
    assert_eq!(error.errno(), Some(libc::EPERM));
    assert!(error.to_string().contains("no permission"), "{error}");
}

#[test]
fn the_errno_of_an_earlier_call_is_not_taken_for_this_ones() {
    set_errno(libc::ENOSYS);
    fail("get_device_list", Failure::Silent);
    let error = library(&one()).devices().unwrap_err();
    assert_eq!(error.errno(), None);
    assert!(
        error.to_string().contains("without setting errno"),
        "{error}"
    );
}

#[test]
fn fork_is_prepared_and_its_status_told() {
    let library = library(&one());
    library.init_fork().unwrap();
    assert_eq!(called("fork_init"), 1);
    fail("fork_init", Failure::Errno(libc::EINVAL));
    let error = library.init_fork().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    assert!(error.to_string().contains("registered before"), "{error}");

    assert_eq!(library.fork_status(), ForkStatus::Unneeded);
    assert!(library.copies_on_fork());
    for (raw, status) in [
        (IBV_FORK_DISABLED, ForkStatus::Disabled),
        (IBV_FORK_ENABLED, ForkStatus::Enabled),
        (9, ForkStatus::Unknown(9)),
    ] {
        tap(|tap| tap.fork_status = Some(raw));
        assert_eq!(library.fork_status(), status);
    }
    let oldest = crate::tap::library(&oldest_fabric(DeviceSpec::roce("sim0")));
    assert_eq!(oldest.fork_status(), ForkStatus::NotReported);
    // A library that cannot tell is taken for one of a kernel that does not copy.
    assert!(!oldest.copies_on_fork());
}

#[test]
fn a_table_of_the_process_has_no_file_and_tells_what_it_lacks() {
    let library = library(&one());
    assert_eq!(library.file(), None);
    assert!(library.supports_optional_access() && library.supports_dmabuf());
    let oldest = crate::tap::library(&oldest_fabric(DeviceSpec::roce("sim0")));
    assert!(!oldest.supports_optional_access() && !oldest.supports_dmabuf());
}
