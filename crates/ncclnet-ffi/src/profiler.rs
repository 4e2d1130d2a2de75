//! NCCL's profiler: an event for each work request of a queue pair, from its posting to its completion.
//!
//! NCCL gives its callback to `init` and a *parent* to each send and to each buffer of a receive, where
//! the profiler wants to know. The rules (NCCL `src/plugin/profiler.cc`):
//!
//! - a start reads through the parent, so there is none without one;
//! - it fills the event's handle only if the profiler has asked for such events, and leaves it null
//!   otherwise; a stop uses the handle without looking. So an [`Event`] exists only where something was
//!   started;
//! - each start has exactly one stop (pitfall 84): an [`Event`] can be ended once, by its owner, and
//!   ends itself if its owner forgets it, as in a connection that is closed with work outstanding.
//!
//! Without a profiler the cost is one load and one branch for each message ([`Parent::from_c`]).

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{
    PROFILE_QP, PROFILER_NET_IB_V1, PROFILER_START, PROFILER_STOP, ProfilerCallback,
    ProfilerDescriptor, ProfilerQpEvent,
};

/// NCCL's callback, or null. A function pointer has no atomic of its own.
static CALLBACK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sends events to `callback` from now on; none means nowhere. Events that have begun end where they
/// began.
pub(crate) fn install(callback: Option<ProfilerCallback>) {
    let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut ());
    CALLBACK.store(callback, Ordering::Release);
}

fn callback() -> Option<ProfilerCallback> {
    let callback = CALLBACK.load(Ordering::Acquire);
    if callback.is_null() {
        return None;
    }
    // SAFETY: `install` stored this pointer, which it got as a `ProfilerCallback`; both have the size of
    // a pointer on every platform that `abi` compiles for.
    Some(unsafe { mem::transmute::<*mut (), ProfilerCallback>(callback) })
}

/// What NCCL wants the events of a message to belong to. There is a profiler then, or was when the
/// message began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent(NonNull<c_void>);

impl Parent {
    /// The parent that came with a message: none if there is none, or nobody to tell.
    pub(crate) fn from_c(parent: *mut c_void) -> Option<Self> {
        if CALLBACK.load(Ordering::Relaxed).is_null() {
            return None;
        }
        NonNull::new(parent).map(Self)
    }
}

/// A work request as the profiler is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Number of the physical device.
    pub(crate) device: c_int,
    pub(crate) wr_id: u64,
    /// `enum ibv_wr_opcode`; 0 for a receive.
    pub(crate) opcode: c_int,
    /// 24 bits.
    pub(crate) qp_number: u32,
    /// Bytes.
    pub(crate) length: usize,
}

/// An event that the profiler has begun. Dropping it ends it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Event {
    handle: NonNull<c_void>,
    callback: ProfilerCallback,
}

// SAFETY: NCCL's callback may be called from any thread, with handles that another thread got.
unsafe impl Send for Event {}

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the transport does not announce its work requests yet"
    )
)]
impl Event {
    /// Tells the profiler that `work` is about to be posted. None: it does not care.
    ///
    /// # Safety
    /// NCCL gave `parent` to a message that is not done yet: it reads through it.
    pub(crate) unsafe fn begin(parent: Parent, work: &Work) -> Option<Self> {
        let callback = callback()?;
        let mut descriptor = ProfilerDescriptor {
            kind: PROFILE_QP,
            qp: ProfilerQpEvent {
                device: work.device,
                wr_id: work.wr_id,
                opcode: work.opcode,
                // Never negative: 24 bits.
                qp_number: work.qp_number as c_int,
                length: work.length,
            },
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the contract of `ncclProfilerCallback_t`: a handle to fill, a parent of NCCL's as this
        // function requires, and the descriptor that belongs to the plugin's identifier.
        let result = unsafe {
            callback(
                &mut handle,
                PROFILER_START,
                parent.0.as_ptr(),
                PROFILER_NET_IB_V1,
                (&raw mut descriptor).cast(),
            )
        };
        // A handle that comes with an error is none to stop.
        if !result.is_success() {
            return None;
        }
        let handle = NonNull::new(handle)?;
        Some(Self { handle, callback })
    }

    /// Tells the profiler that the work is done.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut handle = self.handle.as_ptr();
        // SAFETY: as in `begin`, with the handle that it got, which was not used for a stop before: only
        // this function does, and an event is dropped once.
        let _ = unsafe {
            (self.callback)(
                &mut handle,
                PROFILER_STOP,
                ptr::null_mut(),
                PROFILER_NET_IB_V1,
                ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::abi::NcclResult;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Call {
        Start(usize, i64, ProfilerDescriptor),
        Stop(usize, i64),
    }

    static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

    /// The callback is one for the whole process: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    fn calls() -> Vec<Call> {
        mem::take(&mut CALLS.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins the event 0x100 for parents below 0x1000, fails for 0x2000, and has no interest in others.
    unsafe extern "C" fn fake(
        event: *mut *mut c_void,
        kind: c_int,
        parent: *mut c_void,
        plugin: i64,
        data: *mut c_void,
    ) -> NcclResult {
        let call = match kind {
            PROFILER_START => {
                // SAFETY: the plugin's contract, which is what is tested.
                unsafe { assert!((*event).is_null(), "the handle is null before a start") };
                if parent.addr() < 0x1000 || parent.addr() == 0x2000 {
                    // SAFETY: as above.
                    unsafe { *event = ptr::without_provenance_mut(0x100) };
                }
                // SAFETY: as above.
                let descriptor = unsafe { *data.cast::<ProfilerDescriptor>() };
                Call::Start(parent.addr(), plugin, descriptor)
            }
            // SAFETY: as above.
            PROFILER_STOP => Call::Stop(unsafe { (*event).addr() }, plugin),
            other => panic!("there is no call {other}"),
        };
        CALLS.lock().unwrap().push(call);
        if parent.addr() == 0x2000 {
            NcclResult::SYSTEM_ERROR
        } else {
            NcclResult::SUCCESS
        }
    }

    const WORK: Work = Work {
        device: 3,
        wr_id: 0x1_0000_0001,
        opcode: 1,
        qp_number: 0xff_ffff,
        length: 1 << 33,
    };

    fn parent(value: usize) -> Option<Parent> {
        Parent::from_c(ptr::without_provenance_mut(value))
    }

    fn begin(value: usize) -> Option<Event> {
        // SAFETY: the fake callback does not read through its parents.
        unsafe { Event::begin(parent(value).unwrap(), &WORK) }
    }

    #[test]
    fn an_event_has_one_start_and_one_stop() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        install(Some(fake));
        calls();
        let event = begin(0x10).unwrap();
        let descriptor = ProfilerDescriptor {
            kind: 1,
            qp: ProfilerQpEvent {
                device: 3,
                wr_id: 0x1_0000_0001,
                opcode: 1,
                qp_number: 0xff_ffff,
                length: 1 << 33,
            },
        };
        assert_eq!(calls(), [Call::Start(0x10, 0x10001, descriptor)]);
        // A profiler that goes meanwhile still hears of the end.
        install(None);
        event.end();
        assert_eq!(
            calls(),
            [Call::Stop(0x100, 0x10001)],
            "once, and not again by Drop"
        );

        install(Some(fake));
        drop(begin(0x10));
        assert_eq!(calls().len(), 2, "an event that is forgotten ends, too");
        install(None);
    }

    #[test]
    fn what_was_not_started_is_not_stopped() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        install(Some(fake));
        calls();
        assert!(begin(0x1000).is_none(), "no interest");
        assert!(begin(0x2000).is_none(), "an error");
        assert!(matches!(calls()[..], [Call::Start(..), Call::Start(..)]));
        install(None);
    }

    #[test]
    fn without_a_profiler_or_a_parent_there_is_no_event() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        install(None);
        assert_eq!(parent(0x10), None);
        install(Some(fake));
        assert_eq!(parent(0), None);
        let left = parent(0x10).unwrap();
        install(None);
        calls();
        // SAFETY: there is no callback that could read through the parent.
        assert!(unsafe { Event::begin(left, &WORK) }.is_none());
        assert_eq!(calls(), []);
    }
}
