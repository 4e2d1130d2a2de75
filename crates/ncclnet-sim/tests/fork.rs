//! A forked child that initialises the plugin has devices of its own.
#![allow(clippy::unwrap_used)]

use std::ffi::c_void;
use std::ptr;

use ibnet_simverbs::{DeviceSpec, Fabric};
use ncclnet_ffi::abi::HANDLE_MAX_SIZE;
use ncclnet_ffi::ncclNetPlugin_v8 as net;

/// Listens on the first device: whether that can be done.
fn listens() -> bool {
    let mut handle = [0_u8; HANDLE_MAX_SIZE];
    let mut listener: *mut c_void = ptr::null_mut();
    // SAFETY: pointers to live variables, and the handle is as long as NCCL's are.
    unsafe {
        let result = (net.listen.unwrap())(0, handle.as_mut_ptr().cast(), &mut listener);
        result.is_success() && (net.close_listen.unwrap())(listener).is_success()
    }
}

/// The exit code of a child that does `what`.
fn in_child(what: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child calls what it was forked for and ends without returning; no other thread of this
    // program holds a lock that it needs, because there is no other test here.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(what()),
            child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
        }
    }
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_child_that_initialises_the_plugin_opens_the_devices_anew() {
    let fabric = Fabric::builder().device(DeviceSpec::roce("sim0"));
    let fabric = fabric.build().unwrap();
    ncclnet_ffi::use_library(fabric.library());
    // SAFETY: there may be no logger.
    let init = || unsafe { (net.init.unwrap())(None) }.is_success();
    assert!(init());
    assert!(listens());
    let uses_its_parents = in_child(|| i32::from(listens()));
    assert_eq!(uses_its_parents, 0, "they are its parent's");
    let has_its_own = in_child(|| i32::from(init() && listens()));
    assert_eq!(has_its_own, 1);
    assert!(listens(), "the parent's are as they were");
}
