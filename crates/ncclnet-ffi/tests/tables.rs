//! The tables themselves, called from Rust in the test's own process.
#![allow(clippy::unwrap_used)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use ncclnet_ffi::abi::{HANDLE_MAX_SIZE, NcclResult, PTR_HOST};
use ncclnet_ffi::{
    ncclNetPlugin_v8, ncclNetPlugin_v9, ncclNetPlugin_v10, ncclNetPlugin_v11, ncclNetPlugin_v12,
};

/// For one table: the fields that must be there are there, and those that say "absent" are not.
macro_rules! assert_complete {
    ($table:expr, has { $($field:ident),+ $(,)? }, lacks { $($absent:ident),* $(,)? }) => {
        // SAFETY: the name is a string constant of the library.
        assert_eq!(unsafe { CStr::from_ptr($table.name) }, c"IBNET");
        $(assert!($table.$field.is_some(), stringify!($field));)+
        $(assert!($table.$absent.is_none(), stringify!($absent));)*
    };
}

#[test]
fn nothing_that_nccl_calls_without_looking_is_null() {
    assert_complete!(
        ncclNetPlugin_v12,
        has {
            init,
            devices,
            get_properties,
            listen,
            connect,
            accept,
            reg_mr,
            reg_mr_dmabuf,
            dereg_mr,
            isend,
            irecv,
            iflush,
            test,
            close_send,
            close_recv,
            close_listen,
            make_vdevice,
            finalize,
        },
        lacks {
            get_device_mr,
            irecv_consumed,
            set_net_attr
        }
    );
    assert_complete!(
        ncclNetPlugin_v11,
        has {
            init,
            devices,
            get_properties,
            listen,
            connect,
            accept,
            reg_mr,
            reg_mr_dmabuf,
            dereg_mr,
            isend,
            irecv,
            iflush,
            test,
            close_send,
            close_recv,
            close_listen,
            make_vdevice,
            finalize,
        },
        lacks {
            get_device_mr,
            irecv_consumed,
            set_net_attr
        }
    );
    assert_complete!(
        ncclNetPlugin_v10,
        has {
            init,
            devices,
            get_properties,
            listen,
            connect,
            accept,
            reg_mr,
            reg_mr_dmabuf,
            dereg_mr,
            isend,
            irecv,
            iflush,
            test,
            close_send,
            close_recv,
            close_listen,
            make_vdevice,
        },
        lacks {
            get_device_mr,
            irecv_consumed
        }
    );
    assert_complete!(
        ncclNetPlugin_v9,
        has {
            init,
            devices,
            get_properties,
            listen,
            connect,
            accept,
            reg_mr,
            reg_mr_dmabuf,
            dereg_mr,
            isend,
            irecv,
            iflush,
            test,
            close_send,
            close_recv,
            close_listen,
            make_vdevice,
        },
        lacks {
            get_device_mr,
            irecv_consumed
        }
    );
    assert_complete!(
        ncclNetPlugin_v8,
        has {
            init,
            devices,
            get_properties,
            listen,
            connect,
            accept,
            reg_mr,
            reg_mr_dmabuf,
            dereg_mr,
            isend,
            irecv,
            iflush,
            test,
            close_send,
            close_recv,
            close_listen,
        },
        lacks {
            get_device_mr,
            irecv_consumed
        }
    );
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
/// called `init`: an error each time, null or zero in every out-parameter, and no crash.
macro_rules! assert_refuses_garbage {
    ($table:expr, isend($($parent:expr)?), irecv($($parents:expr)?), size $size:ty) => {
        let table = &$table;
        let mut memory = [0_u8; 64];
        let data: *mut c_void = memory.as_mut_ptr().cast();
        for value in garbage() {
            let mut out: *mut c_void = ptr::without_provenance_mut(7);
            let mut done: c_int = 7;
            let mut sizes: [$size; 1] = [16];
            let (mut tags, mut datas, mut handles) = ([0], [data], [value]);
            let check = |what: &str, result: NcclResult, out: &mut *mut c_void| {
                assert!(!result.is_success(), "{what} of {value:p}");
                assert!(out.is_null(), "{what} of {value:p} left {out:p}");
                *out = ptr::without_provenance_mut(7);
            };
            // SAFETY: pointers to live variables, and values that are to be checked by the callee.
            unsafe {
                let result = (table.accept.unwrap())(value, &mut out, ptr::null_mut());
                check("accept", result, &mut out);
                let result = (table.reg_mr.unwrap())(value, data, 64, PTR_HOST, &mut out);
                check("regMr", result, &mut out);
                let result =
                    (table.reg_mr_dmabuf.unwrap())(value, data, 64, PTR_HOST, 0, -1, &mut out);
                check("regMrDmaBuf", result, &mut out);
                let result =
                    (table.isend.unwrap())(value, data, 16, 0, value, $($parent,)? &mut out);
                check("isend", result, &mut out);
                let result = (table.irecv.unwrap())(
                    value, 1, datas.as_mut_ptr(), sizes.as_mut_ptr(), tags.as_mut_ptr(),
                    handles.as_mut_ptr(), $($parents,)? &mut out,
                );
                check("irecv", result, &mut out);
                let result = (table.iflush.unwrap())(
                    value, 1, datas.as_mut_ptr(), ptr::null_mut(), handles.as_mut_ptr(), &mut out,
                );
                check("iflush", result, &mut out);
                let result = (table.test.unwrap())(value, &mut done, ptr::null_mut());
                assert!(!result.is_success() && done == 0, "test of {value:p}");

                let null = value.is_null();
                assert_eq!((table.close_send.unwrap())(value).is_success(), null);
                assert_eq!((table.close_recv.unwrap())(value).is_success(), null);
                assert_eq!((table.close_listen.unwrap())(value).is_success(), null);
                assert_eq!((table.dereg_mr.unwrap())(value, value).is_success(), null);
            }
        }
        // SAFETY: null where null is to be noticed.
        unsafe {
            assert!(!(table.devices.unwrap())(ptr::null_mut()).is_success());
            assert!(!(table.get_properties.unwrap())(0, ptr::null_mut()).is_success());
            assert!(!(table.test.unwrap())(ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
                .is_success());
            assert!(!(table.accept.unwrap())(ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
                .is_success());
        }
    };
}

#[test]
fn garbage_is_refused_by_version_12() {
    assert_refuses_garbage!(ncclNetPlugin_v12, isend(ptr::null_mut()), irecv(ptr::null_mut()), size usize);
}

#[test]
fn garbage_is_refused_by_version_11() {
    assert_refuses_garbage!(ncclNetPlugin_v11, isend(ptr::null_mut()), irecv(ptr::null_mut()), size usize);
}

#[test]
fn garbage_is_refused_by_version_10() {
    assert_refuses_garbage!(ncclNetPlugin_v10, isend(ptr::null_mut()), irecv(ptr::null_mut()), size usize);
}

#[test]
fn garbage_is_refused_by_version_9() {
    assert_refuses_garbage!(ncclNetPlugin_v9, isend(), irecv(), size usize);
}

#[test]
fn garbage_is_refused_by_version_8() {
    assert_refuses_garbage!(ncclNetPlugin_v8, isend(), irecv(), size c_int);
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

#[test]
fn a_traffic_class_that_is_none_is_refused_before_anything_is_opened() {
    let mut config = ncclnet_ffi::abi::CommConfig { traffic_class: 256 };
    let mut context: *mut c_void = ptr::without_provenance_mut(7);
    // SAFETY: pointers to live variables.
    let result =
        unsafe { (ncclNetPlugin_v12.init.unwrap())(&mut context, 0, &mut config, None, None) };
    assert_eq!(result, NcclResult::INVALID_USAGE);
    assert!(context.is_null());
}
