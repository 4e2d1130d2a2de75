//! The boundary with C: a Rust result becomes NCCL's code, no panic reaches C, and pointers are looked at before
//! they are used.
//!
//! # Safety
//!
//! For every C function of the plugin: a pointer that is not null points to what its type says, valid for as long
//! as NCCL's interface says (the call; for message memory until the request is done; for registered memory until
//! it is deregistered). Null is checked wherever it can be. Handles may be anything at all: they are checked, not
//! followed.
//!
//! Out-parameters are written in every case: null, zero or "not done" first, the result when there is one.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::NcclResult;
use crate::fault::Fault;

/// Set once an NCCL before 2.13.4 has called `init`, in whose interface (API versions 2 to 5) there is no
/// `ncclRemoteError`.
pub(crate) static LACKS_REMOTE_ERROR: AtomicBool = AtomicBool::new(false);

/// Runs the body of an entry point.
///
/// A fault is logged with the entry point's name, and its code returned. A panic is a fault of the plugin: it is
/// caught, logged and becomes `ncclInternalError`, with which NCCL ends the communicator.
// Once for each entry point anyway: as a function of its own it would take the arguments through
// memory.
#[inline(always)]
pub(crate) fn guard(entry: &'static str, body: impl FnOnce() -> Result<(), Fault>) -> NcclResult {
    // Nothing that the body leaves half-changed is used afterwards, but to be closed.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => NcclResult::SUCCESS,
        Ok(Err(fault)) => report(entry, fault),
        Err(payload) => report_panic(entry, payload),
    }
}

#[cold]
fn report_panic(entry: &'static str, payload: Box<dyn Any + Send>) -> NcclResult {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned();
    // Dropping a payload may panic again, outside of any guard.
    mem::forget(payload);
    report(
        entry,
        Fault::internal(format!("panic in the plugin: {text}")),
    )
}

/// Logs a fault. The logger is called from here, so a panic on the way is caught too.
#[cold]
fn report(entry: &'static str, fault: Fault) -> NcclResult {
    let logged = catch_unwind(AssertUnwindSafe(|| tracing::warn!("{entry}: {fault}")));
    if let Err(payload) = logged {
        mem::forget(payload);
    }
    match fault.code() {
        NcclResult::REMOTE_ERROR if LACKS_REMOTE_ERROR.load(Ordering::Relaxed) => {
            NcclResult::SYSTEM_ERROR
        }
        code => code,
    }
}

/// A pointer that must not be null.
pub(crate) fn required<T>(pointer: *mut T, name: &'static str) -> Result<NonNull<T>, Fault> {
    NonNull::new(pointer).ok_or_else(|| Fault::argument(format!("{name} is null")))
}

/// An out-parameter, with nothing in it until there is a result.
pub(crate) struct Out<T>(NonNull<T>);

impl Out<*mut c_void> {
    /// For a handle: null until there is one.
    pub(crate) fn handle(pointer: *mut *mut c_void, name: &'static str) -> Result<Self, Fault> {
        Self::new(pointer, name, ptr::null_mut())
    }
}

impl<T> Out<T> {
    /// Writes `nothing` to `pointer`, which must not be null.
    pub(crate) fn new(pointer: *mut T, name: &'static str, nothing: T) -> Result<Self, Fault> {
        let out = Self(required(pointer, name)?);
        out.set(nothing);
        Ok(out)
    }

    pub(crate) fn set(&self, value: T) {
        // SAFETY: not null, and the caller of the entry point lets it be written: see the module.
        unsafe { self.0.write(value) };
    }
}

/// An array from C.
///
/// # Safety
/// `pointer` is null or has `count` elements that do not change during the call.
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Fault> {
    let pointer = required(pointer.cast_mut(), name)?;
    // SAFETY: not null, and the rest as this function requires.
    Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
}

/// The size of a message or of registered memory, as a version of the interface has it.
pub(crate) trait Size: Copy {
    /// Whether `irecv` finds flags in `*request`: the versions with this type of sizes have them.
    const HAS_FLAGS: bool;

    /// The size in bytes.
    fn bytes(self) -> Result<usize, Fault>;
}

/// In API versions 2 to 8; of registered memory in 2 to 7.
impl Size for c_int {
    const HAS_FLAGS: bool = false;

    fn bytes(self) -> Result<usize, Fault> {
        usize::try_from(self).map_err(|_| Fault::argument(format!("{self} bytes is no size")))
    }
}

impl Size for usize {
    const HAS_FLAGS: bool = true;

    fn bytes(self) -> Result<usize, Fault> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::*;

    #[test]
    fn results_become_codes() {
        assert_eq!(guard("test", || Ok(())), NcclResult::SUCCESS);
        assert_eq!(
            guard("test", || Err(Fault::usage("no"))),
            NcclResult::INVALID_USAGE
        );
    }

    #[test]
    fn a_panic_becomes_an_internal_error() {
        struct Spiteful;
        impl Drop for Spiteful {
            fn drop(&mut self) {
                panic!("the payload panics when it is dropped");
            }
        }
        let literal = guard("test", || panic!("part of the test"));
        assert_eq!(literal, NcclResult::INTERNAL_ERROR);
        let number = 5;
        let formatted = guard("test", || panic!("part of the test: {number}"));
        assert_eq!(formatted, NcclResult::INTERNAL_ERROR);
        let spiteful = guard("test", || panic::panic_any(Spiteful));
        assert_eq!(spiteful, NcclResult::INTERNAL_ERROR);
    }

    #[test]
    fn a_null_out_parameter_is_named() {
        let fault = required(ptr::null_mut::<u8>(), "request").err();
        assert_eq!(fault, Some(Fault::argument("request is null")));
    }

    #[test]
    fn sizes_that_are_negative_are_none() {
        assert_eq!(0.bytes(), Ok(0));
        assert_eq!(i32::MAX.bytes(), Ok(i32::MAX as usize));
        assert!((-1).bytes().is_err());
        assert!(i32::MIN.bytes().is_err());
    }
}
