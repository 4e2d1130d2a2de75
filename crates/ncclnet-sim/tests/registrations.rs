//! What `regIsGlobal` promises: registering a part of what is registered costs no registration, on the
//! same connection or another one of the device. Counted on the simulated device.
#![allow(clippy::unwrap_used)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, Instant};

use ibnet_simverbs::{DeviceSpec, Fabric};
use ncclnet_ffi::abi::{HANDLE_MAX_SIZE, NcclResult, PTR_CUDA, PTR_HOST};
use ncclnet_ffi::ncclNetPlugin_v12 as net;

const SIZE: usize = 1 << 20;

fn check(result: NcclResult) {
    assert!(result.is_success(), "{}", result.name());
}

/// A loop-back connection: sender and receiver.
fn connect(context: *mut c_void) -> (*mut c_void, *mut c_void) {
    let mut handle = [0_u8; HANDLE_MAX_SIZE];
    let handle = handle.as_mut_ptr().cast();
    let [mut listener, mut sender, mut receiver]: [*mut c_void; 3] = [ptr::null_mut(); 3];
    let deadline = Instant::now() + Duration::from_secs(60);
    // SAFETY: pointers to live variables, and the handle is as long as NCCL's are.
    unsafe {
        check((net.listen.unwrap())(context, 0, handle, &mut listener));
        while sender.is_null() || receiver.is_null() {
            assert!(Instant::now() < deadline, "no connection");
            let none = ptr::null_mut();
            if sender.is_null() {
                check((net.connect.unwrap())(
                    context,
                    0,
                    handle,
                    &mut sender,
                    none,
                ));
            }
            if receiver.is_null() {
                check((net.accept.unwrap())(listener, &mut receiver, none));
            }
        }
        check((net.close_listen.unwrap())(listener));
    }
    (sender, receiver)
}

fn register(communicator: *mut c_void, memory: &mut [u8]) -> *mut c_void {
    let mut region = ptr::null_mut();
    let data = memory.as_mut_ptr().cast();
    // SAFETY: the memory outlives the registrations.
    let result =
        unsafe { (net.reg_mr.unwrap())(communicator, data, memory.len(), PTR_HOST, &mut region) };
    check(result);
    region
}

/// `size` bytes at `data`, exported once more: with a descriptor, and so an inode, of its own. Which
/// memory it is, is said by the address; the file has the size.
fn register_export(communicator: *mut c_void, data: *mut u8, size: usize) -> *mut c_void {
    let path = std::env::temp_dir().join(format!("ibnet-export-{}", std::process::id()));
    let export = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    export.set_len(size as u64).unwrap();
    let (mut region, register) = (ptr::null_mut(), net.reg_mr_dmabuf.unwrap());
    // SAFETY: the memory outlives the registrations.
    let result = unsafe {
        let (data, fd) = (data.cast(), export.as_raw_fd());
        register(communicator, data, size, PTR_CUDA, 0, fd, &mut region)
    };
    check(result);
    region
}

fn deregister(communicator: *mut c_void, region: *mut c_void) {
    // SAFETY: handles, which are checked.
    check(unsafe { (net.dereg_mr.unwrap())(communicator, region) });
}

#[test]
fn parts_of_what_is_registered_cost_nothing() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .build()
        .unwrap();
    ncclnet_ffi::use_library(fabric.library());
    let mut context = ptr::null_mut();
    // SAFETY: a pointer to a live variable; the others may be null.
    check(unsafe { (net.init.unwrap())(&mut context, 0, ptr::null_mut(), None, None) });
    let mut count: c_int = 0;
    // SAFETY: a pointer to a live variable.
    check(unsafe { (net.devices.unwrap())(&mut count) });
    assert_eq!(count, 1);

    let (first, second) = (connect(context), connect(context));
    let mut memory = vec![0_u8; SIZE];
    let before = fabric.live_objects().mrs;
    let registrations = || fabric.live_objects().mrs - before;

    let whole = register(first.1, &mut memory);
    assert_eq!(registrations(), 1);
    // As much is allowed on the receiving ends; on the sending ones less is needed.
    let parts = [
        (first.1, register(first.1, &mut memory[100..5000])),
        (first.0, register(first.0, &mut memory[..])),
        (second.1, register(second.1, &mut memory[SIZE / 2..])),
        (second.0, register(second.0, &mut memory[70_000..70_001])),
    ];
    assert_eq!(registrations(), 1);

    // The last one to go takes the registration along, whichever made it.
    deregister(first.1, whole);
    for (left, (communicator, region)) in (0..parts.len()).rev().zip(parts) {
        assert_eq!(registrations(), 1, "{} to go", left + 1);
        deregister(communicator, region);
    }
    assert_eq!(registrations(), 0);

    // The same of a GPU's memory, which is exported anew for each registration.
    let page = memory.as_mut_ptr();
    let page = page.wrapping_add(page.align_offset(4096));
    let part = page.wrapping_add(64 << 10);
    let whole = register_export(first.1, page, 512 << 10);
    assert_eq!(registrations(), 1);
    let others = [
        (first.1, register_export(first.1, page, 512 << 10)),
        (first.1, register_export(first.1, part, 4096)),
        (second.1, register_export(second.1, page, 512 << 10)),
        (second.0, register_export(second.0, part, 64 << 10)),
    ];
    assert_eq!(registrations(), 1);
    deregister(first.1, others[0].1);
    deregister(first.1, whole);
    for (communicator, region) in &others[1..] {
        assert_eq!(registrations(), 1);
        deregister(*communicator, *region);
    }
    assert_eq!(registrations(), 0);

    for (sender, receiver) in [first, second] {
        // SAFETY: handles, which are checked.
        unsafe {
            check((net.close_send.unwrap())(sender));
            check((net.close_recv.unwrap())(receiver));
        }
    }
    // SAFETY: as above.
    check(unsafe { (net.finalize.unwrap())(context) });
    assert!(fabric.live_objects().is_empty());
}
