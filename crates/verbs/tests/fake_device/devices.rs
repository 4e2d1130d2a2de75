//! Listing devices, and the library itself.

use std::path::Path;

use ibnet_verbs::sys::{IBV_FORK_DISABLED, IBV_FORK_ENABLED};
use ibnet_verbs::{ForkStatus, Operation, Transport};

use crate::fake::{
    Failure, called, fail, fake, functions, library_of, oldest_functions, set_errno,
};

#[test]
fn a_device_tells_who_it_is() {
    fake(|fake| (fake.devices, fake.sysfs) = (2, "/sys/class/infiniband/fake".into()));
    let devices = library_of(functions()).devices().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    assert_eq!(names, ["fake_0", "fake_1"]);
    assert_eq!(devices[0].guid(), 0x0102_0304_0506_0708);
    assert_eq!(
        devices[1].sysfs_path(),
        Path::new("/sys/class/infiniband/fake")
    );
    assert_eq!(devices[1].kernel_index(), Some(7));
    assert!(format!("{:?}", devices[1]).contains("fake_1"));
}

#[test]
fn the_transport_is_kept_whatever_it_is() {
    for (raw, transport) in [
        (0, Transport::InfiniBand),
        (1, Transport::Iwarp),
        (-1, Transport::NotKnown),
        (99, Transport::Unknown(99)),
    ] {
        fake(|fake| fake.transport = raw);
        let device = library_of(functions()).devices().unwrap().remove(0);
        assert_eq!(device.transport(), transport);
    }
}

#[test]
fn the_kernel_index_may_be_unknown() {
    let device = library_of(oldest_functions()).devices().unwrap().remove(0);
    assert_eq!(device.kernel_index(), None);
    let device = library_of(functions()).devices().unwrap().remove(0);
    fail("get_device_index", Failure::Silent);
    assert_eq!(device.kernel_index(), None);
}

#[test]
fn the_list_is_freed_once_with_the_last_device_of_it() {
    fake(|fake| fake.devices = 2);
    let mut devices = library_of(functions()).devices().unwrap();
    let last = devices.remove(1);
    let context = devices.remove(0).open().unwrap();
    drop(devices);
    drop(last);
    assert_eq!(called("free_device_list"), 0);
    assert_eq!(context.device_name(), "fake_0");
    drop(context);
    assert_eq!(called("free_device_list"), 1);
}

#[test]
fn no_devices_are_an_empty_list_that_is_freed_too() {
    fake(|fake| fake.devices = 0);
    assert!(library_of(functions()).devices().unwrap().is_empty());
    assert_eq!(called("free_device_list"), 1);
}

#[test]
fn a_kernel_without_rdma_has_no_devices() {
    fail("get_device_list", Failure::Errno(libc::ENOSYS));
    assert!(library_of(functions()).devices().unwrap().is_empty());
    assert_eq!(called("free_device_list"), 0);
}

#[test]
fn a_list_that_cannot_be_read_is_an_error() {
    fail("get_device_list", Failure::Errno(libc::EPERM));
    let error = library_of(functions()).devices().unwrap_err();
    assert!(error.operation == Operation::ListDevices);
    assert_eq!(error.errno(), Some(libc::EPERM));
    assert!(error.to_string().contains("no permission"), "{error}");
}

#[test]
fn the_errno_of_an_earlier_call_is_not_taken_for_this_ones() {
    set_errno(libc::ENOSYS);
    fail("get_device_list", Failure::Silent);
    let error = library_of(functions()).devices().unwrap_err();
    assert_eq!(error.errno(), None);
    assert!(
        error.to_string().contains("without setting errno"),
        "{error}"
    );
}

#[test]
fn fork_is_prepared_and_its_status_told() {
    let library = library_of(functions());
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
        fake(|fake| fake.fork_status = raw);
        assert_eq!(library.fork_status(), status);
    }
    let oldest = library_of(oldest_functions());
    assert_eq!(oldest.fork_status(), ForkStatus::NotReported);
    // Who cannot tell is taken for who does not.
    assert!(!oldest.copies_on_fork());
}

#[test]
fn a_table_of_the_process_has_no_file_and_tells_what_it_lacks() {
    let library = library_of(functions());
    assert_eq!(library.file(), None);
    assert!(library.supports_optional_access() && library.supports_dmabuf());
    let oldest = library_of(oldest_functions());
    assert!(!oldest.supports_optional_access() && !oldest.supports_dmabuf());
}
