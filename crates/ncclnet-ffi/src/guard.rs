//! The boundary: a Rust result becomes NCCL's code, and no panic ever reaches C.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::abi::NcclResult;
use crate::fault::Fault;

/// Runs the body of an entry point.
///
/// A fault is logged with the entry point's name, and its code returned. A panic is a fault of the
/// plugin: it is caught, logged and becomes `ncclInternalError`. (The objects that the body was in a
/// call with are then poisoned, so that no half-changed state is used again: `handles::Table::with`.)
// Once for each entry point anyway: as a function of its own it would take the arguments through
// memory.
#[inline(always)]
pub(crate) fn guard(entry: &'static str, body: impl FnOnce() -> Result<(), Fault>) -> NcclResult {
    // Nothing that the body leaves half-changed is looked at afterwards: see above.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => NcclResult::SUCCESS,
        Ok(Err(fault)) => report(entry, fault),
        Err(payload) => report_panic(entry, payload),
    }
}

#[cold]
fn report_panic(entry: &'static str, payload: Box<dyn Any + Send>) -> NcclResult {
    let text = panic_text(payload.as_ref()).to_owned();
    // Dropping a payload may panic again, outside of any guard.
    mem::forget(payload);
    let fault = Fault::internal(format!("panic in the plugin: {text}"));
    report(entry, fault)
}

/// Logs a fault. The logger is called from here, so a panic on the way is caught too.
#[cold]
fn report(entry: &'static str, fault: Fault) -> NcclResult {
    let logged = catch_unwind(AssertUnwindSafe(|| tracing::warn!("{entry}: {fault}")));
    if let Err(payload) = logged {
        mem::forget(payload);
    }
    fault.code()
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// An out-parameter that must not be null.
pub(crate) fn required<T>(pointer: *mut T, name: &'static str) -> Result<NonNull<T>, Fault> {
    NonNull::new(pointer).ok_or_else(|| Fault::argument(format!("{name} is null")))
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
        let fault = required(std::ptr::null_mut::<u8>(), "request").err();
        assert_eq!(fault, Some(Fault::argument("request is null")));
    }
}
