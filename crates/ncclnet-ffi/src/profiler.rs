//! NCCL's profiler: an event for each piece of a message, on the queue pair that carries it.
//!
//! NCCL gives its callback to `init` and a *parent* to each send and to each buffer of a receive, where
//! the profiler wants to know. The rules (NCCL `src/plugin/profiler.cc`):
//!
//! - a start reads through the parent, so there is none without one;
//! - it fills the event's handle only if the profiler has asked for such events, and leaves it null
//!   otherwise; a stop uses the handle without looking. So only what was started is stopped;
//! - each start has exactly one stop. That is what the transport promises of an
//!   [`Observer`], also for connections that fail, or are closed with work outstanding.
//!
//! Without a profiler the cost is one load and one branch for each message ([`Parent::from_c`],
//! [`is_installed`]), and connections have no observer.

use std::ffi::{c_int, c_void};
use std::mem;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use ibnet::{Observer, Piece};

use crate::abi::{
    PROFILE_QP, PROFILER_NET_IB_V1, PROFILER_START, PROFILER_STOP, ProfilerCallback,
    ProfilerDescriptor, ProfilerQpEvent,
};

/// NCCL's callback, or null. A function pointer has no atomic of its own.
static CALLBACK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sends events of connections that are made from now on to `callback`; none means nowhere. Those that
/// are there go on as they began.
pub(crate) fn install(callback: Option<ProfilerCallback>) {
    let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut ());
    CALLBACK.store(callback, Ordering::Release);
}

/// Whether there is a profiler.
pub(crate) fn is_installed() -> bool {
    !CALLBACK.load(Ordering::Relaxed).is_null()
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
/// message began. A number, because nothing here follows it: NCCL's callback does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent(NonZeroUsize);

impl Parent {
    /// The parent that came with a message: none if there is none, or nobody to tell.
    pub(crate) fn from_c(parent: *mut c_void) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        NonZeroUsize::new(parent.expose_provenance()).map(Self)
    }

    /// What the transport hands on to the observer.
    pub(crate) fn to_number(self) -> NonZeroUsize {
        self.0
    }
}

/// What tells the profiler of a connection's messages: none without one. `devices` are the numbers of
/// the physical devices that the connection uses.
pub(crate) fn observer(devices: &[c_int]) -> Option<Box<dyn Observer>> {
    let callback = callback()?;
    Some(Box::new(Teller {
        callback,
        devices: devices.into(),
    }))
}

struct Teller {
    callback: ProfilerCallback,
    devices: Box<[c_int]>,
}

impl Observer for Teller {
    fn started(&mut self, parent: NonZeroUsize, piece: &Piece) -> Option<NonZeroUsize> {
        let mut descriptor = ProfilerDescriptor {
            kind: PROFILE_QP,
            qp: ProfilerQpEvent {
                device: self.devices.get(piece.device).copied().unwrap_or(-1),
                wr_id: piece.wr_id,
                // Small, as all codes of operations are.
                opcode: piece.opcode as c_int,
                // Never negative: 24 bits.
                qp_number: piece.queue_pair as c_int,
                length: piece.length,
            },
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the contract of `ncclProfilerCallback_t`: a handle to fill, a parent of NCCL's (a
        // `Parent` of a message that is not done yet, because pieces begin before that), and the
        // descriptor that belongs to the plugin's identifier.
        let result = unsafe {
            (self.callback)(
                &mut handle,
                PROFILER_START,
                ptr::with_exposed_provenance_mut(parent.get()),
                PROFILER_NET_IB_V1,
                (&raw mut descriptor).cast(),
            )
        };
        // A handle that comes with an error is none to stop.
        if !result.is_success() {
            return None;
        }
        NonZeroUsize::new(handle.expose_provenance())
    }

    fn finished(&mut self, handle: NonZeroUsize) {
        let mut handle: *mut c_void = ptr::with_exposed_provenance_mut(handle.get());
        // SAFETY: as in `started`, with the handle that it got. The transport finishes a piece once.
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

    use std::sync::{Mutex, MutexGuard, PoisonError};

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

    fn alone() -> MutexGuard<'static, ()> {
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        calls();
        alone
    }

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

    const PIECE: Piece = Piece {
        device: 1,
        queue_pair: 0xff_ffff,
        wr_id: 0x1_0000_0001,
        opcode: 1,
        length: 1 << 33,
    };

    fn parent(value: usize) -> Option<NonZeroUsize> {
        Parent::from_c(ptr::without_provenance_mut(value)).map(Parent::to_number)
    }

    #[test]
    fn a_piece_is_told_in_the_words_of_nccl() {
        let _alone = alone();
        install(Some(fake));
        let mut observer = observer(&[5, 3]).unwrap();
        let event = observer.started(parent(0x10).unwrap(), &PIECE);
        let descriptor = ProfilerDescriptor {
            kind: 1,
            qp: ProfilerQpEvent {
                // The physical device's own number, not its place in the connection.
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
        observer.finished(event.unwrap());
        assert_eq!(calls(), [Call::Stop(0x100, 0x10001)]);
    }

    #[test]
    fn what_was_not_started_is_not_stopped() {
        let _alone = alone();
        install(Some(fake));
        let mut observer = observer(&[0, 1]).unwrap();
        let no_interest = observer.started(parent(0x1000).unwrap(), &PIECE);
        assert_eq!(no_interest, None);
        let an_error = observer.started(parent(0x2000).unwrap(), &PIECE);
        assert_eq!(an_error, None);
        assert!(matches!(calls()[..], [Call::Start(..), Call::Start(..)]));
        install(None);
    }

    #[test]
    fn without_a_profiler_or_a_parent_there_is_nothing_to_tell() {
        let _alone = alone();
        install(None);
        assert!(!is_installed());
        assert_eq!(parent(0x10), None);
        assert!(observer(&[0]).is_none());
        install(Some(fake));
        assert!(is_installed());
        assert_eq!(parent(0), None);
        install(None);
        assert_eq!(calls(), []);
    }
}
