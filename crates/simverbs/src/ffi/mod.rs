//! The C functions: handles in, errnos out.
//!
//! Each turns its handles into the numbers by which the engine knows the objects, calls the engine
//! under the fabric's lock, and reports in the style of its verb.
//!
//! # Safety
//!
//! All functions of this module are unsafe for the same reason: they follow pointers that the
//! caller gives. As for libibverbs, the caller guarantees that a handle came from the function that
//! makes such handles, that its object was not destroyed, and that pointers to arguments and
//! results are valid. This is what "the caller's handle" and "the caller's argument" mean below.
//!
//! Private functions that take handles are called with the caller's handles and nothing else, which
//! is why they are not marked once more.
//!
//! A handle points to one of the structures in [`objects`], whose first field is the C structure.

pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod mlx5;
pub(crate) mod objects;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod query;

use std::os::raw::{c_char, c_int};
use std::ptr;

use crate::engine::Errno;

/// Reports in the style "0, or an errno".
fn returned(result: Result<(), Errno>) -> c_int {
    result.err().unwrap_or(0)
}

/// Reports in the style "a pointer, or null and `errno`".
fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        ptr::null_mut()
    })
}

/// Reports in the style "0 or more, or -1 and `errno`".
fn minus_one(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

fn set_errno(errno: Errno) {
    // SAFETY: the pointer is to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Copies text into a C array, which stays terminated. What does not fit is cut off; the builder
/// refuses names and paths that long.
fn put(array: &mut [c_char], text: &[u8]) {
    let room = array.len() - 1;
    for (to, from) in array[..room].iter_mut().zip(text) {
        *to = from.cast_signed();
    }
}
