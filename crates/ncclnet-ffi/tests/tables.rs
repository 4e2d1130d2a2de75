//! The tables themselves, called from Rust in the test's own process.
#![allow(clippy::unwrap_used)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use ncclnet_ffi::abi::{DeviceHandle, HANDLE_MAX_SIZE, NcclResult, PTR_HOST};
use ncclnet_ffi::*;

/// For tables with these fields: they are there, and the name is the network's.
macro_rules! assert_complete {
    ([$($table:ident),+], $fields:tt) => {
        $(assert_complete!(one $table, $fields);)+
    };
    (one $table:ident, [$($field:ident),+ $(,)?]) => {
        // SAFETY: the name is a string constant of the library.
        assert_eq!(unsafe { CStr::from_ptr($table.name) }, c"IBNET");
        $(assert!($table.$field.is_some(), "{}: {}", stringify!($table), stringify!($field));)+
    };
}

#[test]
fn nothing_that_nccl_calls_without_looking_is_null() {
    // Every table has these.
    assert_complete!(
        [
            ncclNetPlugin_v2,
            ncclNetPlugin_v3,
            ncclNetPlugin_v4,
            ncclNetPlugin_v5,
            ncclNetPlugin_v6,
            ncclNetPlugin_v7,
            ncclNetPlugin_v8,
            ncclNetPlugin_v9,
            ncclNetPlugin_v10,
            ncclNetPlugin_v11,
            ncclNetPlugin_v12
        ],
        [
            init,
            devices,
            listen,
            connect,
            accept,
            reg_mr,
            dereg_mr,
            isend,
            irecv,
            test,
            close_send,
            close_recv,
            close_listen,
        ]
    );
    assert_complete!([ncclNetPlugin_v2], [pci_path, ptr_support, flush]);
    assert_complete!([ncclNetPlugin_v3], [get_properties, flush]);
    assert_complete!(
        [ncclNetPlugin_v4, ncclNetPlugin_v5],
        [get_properties, iflush]
    );
    assert_complete!(
        [ncclNetPlugin_v6, ncclNetPlugin_v7, ncclNetPlugin_v8],
        [get_properties, iflush, reg_mr_dmabuf]
    );
    assert_complete!(
        [
            ncclNetPlugin_v9,
            ncclNetPlugin_v10,
            ncclNetPlugin_v11,
            ncclNetPlugin_v12
        ],
        [get_properties, iflush, reg_mr_dmabuf, make_vdevice]
    );
    assert_complete!([ncclNetPlugin_v11, ncclNetPlugin_v12], [finalize]);
}

/// NCCL calls the first two for networks that a GPU drives, where they are; a hint costs a call.
#[test]
fn what_is_not_offered_is_null() {
    macro_rules! assert_absent {
        ([$($table:ident),+], $field:ident) => {
            $(assert!($table.$field.is_none(), stringify!($table));)+
        };
    }
    assert_absent!(
        [
            ncclNetPlugin_v7,
            ncclNetPlugin_v8,
            ncclNetPlugin_v9,
            ncclNetPlugin_v10,
            ncclNetPlugin_v11,
            ncclNetPlugin_v12
        ],
        get_device_mr
    );
    assert_absent!(
        [
            ncclNetPlugin_v7,
            ncclNetPlugin_v8,
            ncclNetPlugin_v9,
            ncclNetPlugin_v10,
            ncclNetPlugin_v11,
            ncclNetPlugin_v12
        ],
        irecv_consumed
    );
    assert_absent!([ncclNetPlugin_v11, ncclNetPlugin_v12], set_net_attr);
}

/// Values that are no handles, some of which look as if they were.
fn garbage() -> Vec<*mut c_void> {
    let mut values: Vec<usize> = vec![0, 1, 8, 0x7fff_ffff_f000, usize::MAX];
    for kind in 0..16_usize {
        values.extend([
            kind << 60,
            kind << 60 | 5,
            kind << 60 | 0x0fff_ffff_ffff_ffff,
        ]);
    }
    values
        .into_iter()
        .map(ptr::without_provenance_mut)
        .collect()
}

/// Every function that takes a handle, with every value that is none, in a process that has not
/// called `init`: an error each time, null or zero in every out-parameter, and no crash. The arguments
/// that are not the same in all versions are given.
macro_rules! assert_refuses_garbage {
    (
        $table:expr, accept($($device:expr)?), isend($($send:expr),*),
        irecv($($before:expr)?; $($after:expr)?), size $size:ty, dmabuf
    ) => {
        assert_refuses_garbage!(
            $table, accept($($device)?), isend($($send),*), irecv($($before)?; $($after)?),
            size $size
        );
        let table = &$table;
        let mut memory = [0_u8; 64];
        for value in garbage() {
            let mut out: *mut c_void = ptr::without_provenance_mut(7);
            let data: *mut c_void = memory.as_mut_ptr().cast();
            let register = table.reg_mr_dmabuf.unwrap();
            // SAFETY: pointers to live variables, and a value that is to be checked by the callee.
            let result = unsafe { register(value, data, 64, PTR_HOST, 0, 0, &mut out) };
            assert!(!result.is_success() && out.is_null(), "regMrDmaBuf of {value:p}");
        }
    };
    (
        $table:expr, accept($($device:expr)?), isend($($send:expr),*),
        irecv($($before:expr)?; $($after:expr)?), size $size:ty
    ) => {
        let table = &$table;
        let mut memory = [0_u8; 64];
        let data: *mut c_void = memory.as_mut_ptr().cast();
        for value in garbage() {
            let mut out: *mut c_void = ptr::without_provenance_mut(7);
            let mut done: c_int = 7;
            let mut sizes: [$size; 1] = [16];
            let mut few = [16];
            let (mut tags, mut datas, mut handles) = ([0], [data], [value]);
            let check = |what: &str, result: NcclResult, out: &mut *mut c_void| {
                assert!(!result.is_success(), "{what} of {value:p}");
                assert!(out.is_null(), "{what} of {value:p} left {out:p}");
                *out = ptr::without_provenance_mut(7);
            };
            // SAFETY: pointers to live variables, and values that are to be checked by the callee.
            unsafe {
                let result = (table.accept.unwrap())(value, &mut out $(, $device)?);
                check("accept", result, &mut out);
                let result = (table.reg_mr.unwrap())(value, data, 64, PTR_HOST, &mut out);
                check("regMr", result, &mut out);
                let result = (table.isend.unwrap())(value, data, 16, 0, value, $($send,)* &mut out);
                check("isend", result, &mut out);
                let result = (table.irecv.unwrap())(
                    value, $($before,)? datas.as_mut_ptr(), sizes.as_mut_ptr(),
                    tags.as_mut_ptr(), handles.as_mut_ptr(), $($after,)? &mut out,
                );
                check("irecv", result, &mut out);
                let result = (table.iflush.unwrap())(
                    value, 1, datas.as_mut_ptr(), few.as_mut_ptr(), handles.as_mut_ptr(), &mut out,
                );
                check("iflush", result, &mut out);
                let result = (table.test.unwrap())(value, &mut done, ptr::null_mut());
                assert!(!result.is_success() && done == 0, "test of {value:p}");
            }
        }
        assert_refuses_handles!($table);
        // SAFETY: null where null is to be noticed.
        unsafe {
            assert!(!(table.get_properties.unwrap())(0, ptr::null_mut()).is_success());
            assert!(!(table.accept.unwrap())(ptr::null_mut(), ptr::null_mut() $(, $device)?)
                .is_success());
        }
    };
}

/// The functions that are the same in all versions.
macro_rules! assert_refuses_handles {
    ($table:expr) => {
        let table = &$table;
        for value in garbage() {
            let null = value.is_null();
            // SAFETY: values that are to be checked by the callee.
            unsafe {
                assert_eq!((table.close_send.unwrap())(value).is_success(), null);
                assert_eq!((table.close_recv.unwrap())(value).is_success(), null);
                assert_eq!((table.close_listen.unwrap())(value).is_success(), null);
                assert_eq!((table.dereg_mr.unwrap())(value, value).is_success(), null);
            }
        }
        // SAFETY: null where null is to be noticed.
        unsafe {
            assert!(!(table.devices.unwrap())(ptr::null_mut()).is_success());
            assert!(
                !(table.test.unwrap())(ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
                    .is_success()
            );
        }
    };
}

#[test]
fn garbage_is_refused_by_versions_with_groups() {
    const NULL: *mut c_void = ptr::null_mut();
    const NO_DEVICE: *mut *mut DeviceHandle = ptr::null_mut();
    assert_refuses_garbage!(
        ncclNetPlugin_v12, accept(NO_DEVICE), isend(NULL), irecv(1; ptr::null_mut()), size usize,
        dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v11, accept(NO_DEVICE), isend(NULL), irecv(1; ptr::null_mut()), size usize,
        dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v10, accept(NO_DEVICE), isend(NULL), irecv(1; ptr::null_mut()), size usize,
        dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v9, accept(NO_DEVICE), isend(), irecv(1;), size usize, dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v8, accept(NO_DEVICE), isend(), irecv(1;), size c_int, dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v7, accept(NO_DEVICE), isend(), irecv(1;), size c_int, dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v6, accept(), isend(), irecv(1;), size c_int, dmabuf
    );
    assert_refuses_garbage!(
        ncclNetPlugin_v5, accept(), isend(), irecv(1;), size c_int
    );
}

/// For versions 2 to 4, which have single buffers and (but for 4) a flush that waits.
macro_rules! assert_refuses_garbage_singly {
    ($table:expr, $flush:ident, $request:ident, [$($out:expr)?]) => {
        let table = &$table;
        let mut memory = [0_u8; 64];
        let data: *mut c_void = memory.as_mut_ptr().cast();
        for value in garbage() {
            let mut out: *mut c_void = ptr::without_provenance_mut(7);
            let mut done: c_int = 7;
            let check = |what: &str, result: NcclResult, out: &mut *mut c_void| {
                assert!(!result.is_success(), "{what} of {value:p}");
                assert!(out.is_null(), "{what} of {value:p} left {out:p}");
                *out = ptr::without_provenance_mut(7);
            };
            // SAFETY: pointers to live variables, and values that are to be checked by the callee.
            unsafe {
                let result = (table.accept.unwrap())(value, &mut out);
                check("accept", result, &mut out);
                let result = (table.reg_mr.unwrap())(value, data, 64, PTR_HOST, &mut out);
                check("regMr", result, &mut out);
                let result = (table.isend.unwrap())(value, data, 16, value, &mut out);
                check("isend", result, &mut out);
                let result = (table.irecv.unwrap())(value, data, 16, value, &mut out);
                check("irecv", result, &mut out);
                #[allow(unused_mut, reason = "a flush that waits has no request")]
                let mut $request: *mut c_void = ptr::null_mut();
                let result = (table.$flush.unwrap())(value, data, 16, value $(, $out)?);
                assert!(!result.is_success() && $request.is_null(), "flush of {value:p}");
                let result = (table.test.unwrap())(value, &mut done, ptr::null_mut());
                assert!(!result.is_success() && done == 0, "test of {value:p}");
            }
        }
        assert_refuses_handles!($table);
    };
}

#[test]
fn garbage_is_refused_by_versions_without_groups() {
    assert_refuses_garbage_singly!(ncclNetPlugin_v2, flush, request, []);
    assert_refuses_garbage_singly!(ncclNetPlugin_v3, flush, request, []);
    assert_refuses_garbage_singly!(ncclNetPlugin_v4, iflush, request, [&mut request]);
    let (mut path, mut supported) = (ptr::without_provenance_mut(7), 7);
    // SAFETY: pointers to live variables.
    unsafe {
        let result = (ncclNetPlugin_v2.pci_path.unwrap())(0, &mut path);
        assert!(!result.is_success() && path.is_null());
        let result = (ncclNetPlugin_v2.ptr_support.unwrap())(0, &mut supported);
        assert!(!result.is_success() && supported == 0);
        assert!(!(ncclNetPlugin_v2.pci_path.unwrap())(0, ptr::null_mut()).is_success());
        assert!(!(ncclNetPlugin_v2.ptr_support.unwrap())(0, ptr::null_mut()).is_success());
    }
}

#[test]
fn contexts_that_are_none_are_refused() {
    let table = &ncclNetPlugin_v12;
    let mut handle = [0_u8; HANDLE_MAX_SIZE];
    let handle: *mut c_void = handle.as_mut_ptr().cast();
    for value in garbage() {
        let mut out: *mut c_void = ptr::without_provenance_mut(7);
        // SAFETY: pointers to live variables, and values that are to be checked by the callee.
        unsafe {
            assert!(!(table.listen.unwrap())(value, 0, handle, &mut out).is_success());
            assert!(out.is_null());
            out = ptr::without_provenance_mut(7);
            let result = (table.connect.unwrap())(value, 0, handle, &mut out, ptr::null_mut());
            assert!(!result.is_success());
            assert!(out.is_null());
            assert_eq!(
                (table.finalize.unwrap())(value).is_success(),
                value.is_null()
            );
        }
    }
    // SAFETY: null where null is to be noticed.
    let result = unsafe { (table.init.unwrap())(ptr::null_mut(), 0, ptr::null_mut(), None, None) };
    assert_eq!(result, NcclResult::INVALID_ARGUMENT);
}
