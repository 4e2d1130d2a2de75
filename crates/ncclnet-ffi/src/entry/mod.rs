//! The C functions that several API versions have in common, and what turns C arguments into calls
//! of [`plugin`](crate::plugin) and back. What is different in a version is in
//! [`versions`](crate::versions).
//!
//! A function whose signature changed is named for the API version that introduced it, as its type in
//! [`abi`](crate::abi) is. Out-parameters are written in every case: null, zero or "not done" first,
//! the result when there is one.
//!
//! # Safety
//!
//! For all of them, and for those in `versions`: a pointer that is not null points to what its type
//! says, valid for as long as NCCL's interface says (the call; for message memory until the request is
//! done; for registered memory until it is deregistered). Null is checked wherever it can be. Values
//! that are handles of this plugin may be anything at all: they are checked, not followed.

use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use ibnet::raw::RequestId;

use crate::fault::Fault;
use crate::guard::required;
use crate::handles::{Kind, ObjectId, RequestToken};

pub(crate) mod connect;
pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod flush;
pub(crate) mod init;
pub(crate) mod memory;

/// The network's name: what `NCCL_NET` selects by. None of NCCL's or RCCL's own networks has it.
pub(crate) const NAME: *const c_char = c"IBNET".as_ptr();

/// An out-parameter for a handle: null from the start, and until there is one.
pub(crate) struct Out(NonNull<*mut c_void>);

impl Out {
    /// Writes null to `pointer`, which must not be null itself but can be written.
    pub(crate) fn new(pointer: *mut *mut c_void, name: &'static str) -> Result<Self, Fault> {
        let out = Self(required(pointer, name)?);
        out.set(ptr::null_mut());
        Ok(out)
    }

    pub(crate) fn set(&self, value: *mut c_void) {
        // SAFETY: not null, and the caller of the entry point lets it be written: see the module.
        unsafe { self.0.write(value) };
    }

    /// Writes the handle of a communicator's request, if there is one.
    fn set_request(&self, kind: Kind, communicator: ObjectId, request: Option<RequestId>) {
        if let Some(request) = request {
            self.set(RequestToken::new(kind, communicator, request.into_raw()).to_pointer());
        }
    }
}

/// An array from C.
///
/// # Safety
/// `pointer` is null or has `count` elements that nobody changes during the call.
unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Fault> {
    let pointer = required(pointer.cast_mut(), name)?;
    // SAFETY: not null, and the rest as this function requires.
    Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
}

/// A size that is an `int` in this version as bytes.
pub(crate) fn bytes(size: std::ffi::c_int) -> Result<usize, Fault> {
    usize::try_from(size).map_err(|_| Fault::argument(format!("{size} bytes is no size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_negative_are_none() {
        assert_eq!(bytes(0), Ok(0));
        assert_eq!(bytes(i32::MAX), Ok(i32::MAX as usize));
        assert!(bytes(-1).is_err());
        assert!(bytes(i32::MIN).is_err());
    }
}
