//! [`CompletionChannel`]: waiting for completions instead of polling for them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibverbs_sys::{ibv_comp_channel, ibv_cq};

use crate::context::{Context, set_non_blocking};
use crate::conv;
use crate::error::Error;
use crate::object::Object;
use crate::operation::Operation;

/// A completion channel (`struct ibv_comp_channel`): a descriptor that becomes readable when one
/// of its completion queues has news.
///
/// Clones are cheap and mean the same channel. The way to wait without missing anything is:
///
/// 1. [`CompletionQueue::request_notification`](crate::CompletionQueue::request_notification);
/// 2. [`CompletionQueue::poll`](crate::CompletionQueue::poll) until it is empty;
/// 3. [`wait`](Self::wait), or wait until [`fd`](Self::fd) is readable and take the event with
///    [`next_event`](Self::next_event); and begin again.
#[derive(Clone, Debug)]
pub struct CompletionChannel(Arc<Object<ibv_comp_channel>>);

impl Context {
    /// Makes a completion channel (ibv_create_comp_channel(3)). Its descriptor is non-blocking.
    pub fn create_channel(&self) -> Result<CompletionChannel, Error> {
        let failed = |source| self.error(Operation::CreateChannel, source);
        let create = self.functions().create_comp_channel;
        // SAFETY: the context is open.
        let object = Object::create(self, || unsafe { create(self.as_raw()) }).map_err(failed)?;
        // SAFETY: the channel was just made. It is destroyed if anything fails from here on.
        if unsafe { (*object.as_raw()).fd } < 0 {
            return Err(failed(io::Error::other("the channel has no descriptor")));
        }
        let channel = CompletionChannel(Arc::new(object));
        set_non_blocking(channel.fd()).map_err(failed)?;
        Ok(channel)
    }
}

impl CompletionChannel {
    /// The open device that the channel is of.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// The descriptor that becomes readable when an event is pending. It is non-blocking. To be
    /// waited on with poll(2) or epoll(7), never to be read directly.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists, and so does its descriptor, which is not negative (checked
        // when the channel was made).
        unsafe { BorrowedFd::borrow_raw((*self.as_raw()).fd) }
    }

    /// Takes the next event (ibv_get_cq_event(3)), none if nothing is pending. The event is
    /// acknowledged when it is dropped.
    ///
    /// # Errors
    ///
    /// For example after the device was removed.
    pub fn next_event(&self) -> Result<Option<CompletionEvent>, Error> {
        let get_cq_event = self.context().functions().get_cq_event;
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists, and the arguments are valid places for the results.
        let taken =
            conv::take(|| unsafe { get_cq_event(self.as_raw(), &raw mut cq, &raw mut cq_context) });
        match taken {
            Ok(taken) => Ok(taken.then(|| CompletionEvent {
                cq,
                channel: self.clone(),
            })),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Waits for the next event, for at most `limit`; for ever without one. None if there was none
    /// in time.
    ///
    /// # Errors
    ///
    /// As for [`next_event`](Self::next_event).
    pub fn wait(&self, limit: Option<Duration>) -> Result<Option<CompletionEvent>, Error> {
        // A limit beyond what the clock can tell is none.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(Some(event));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            // Rounded up, so that the last wait is not a loop without one.
            let milliseconds = left.map_or(-1, |left| {
                i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
            });
            let mut entry = libc::pollfd {
                fd: self.fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the argument is one valid entry.
            let result =
                conv::count(|| unsafe { libc::poll(&raw mut entry, 1, milliseconds) } as isize);
            match result {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(self.failed(error));
                }
                _ => {}
            }
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        self.context().error(Operation::NextCompletionEvent, source)
    }

    /// The C object. It is valid for as long as this channel, a clone of it, or a completion
    /// queue that uses it.
    pub fn as_raw(&self) -> *mut ibv_comp_channel {
        self.0.as_raw()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// Names a completion queue among those that exist at the same time. Unlike a clone of the queue
/// it does not keep it alive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CqId(usize);

impl CqId {
    pub(crate) fn of_raw(raw: *mut ibv_cq) -> Self {
        Self(raw.addr())
    }
}

impl fmt::Debug for CqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CqId({:#x})", self.0)
    }
}

/// The news that a completion queue got the completion that notification was requested for.
///
/// It is acknowledged when it is dropped (ibv_ack_cq_events(3)). Until then destroying the
/// completion queue waits, so never drop the queue in the thread that still holds its event.
#[must_use = "the event is acknowledged when it is dropped"]
pub struct CompletionEvent {
    cq: *mut ibv_cq,
    channel: CompletionChannel,
}

// SAFETY: the pointer belongs to libibverbs, which may be called from any thread, and stays
// valid until the event is acknowledged.
unsafe impl Send for CompletionEvent {}
// SAFETY: as above; sharing the event gives only the pointer's value.
unsafe impl Sync for CompletionEvent {}

impl CompletionEvent {
    /// Names the completion queue that it is about.
    pub fn cq_id(&self) -> CqId {
        CqId::of_raw(self.cq)
    }
}

impl fmt::Debug for CompletionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionEvent")
            .field(&self.cq_id())
            .finish()
    }
}

impl Drop for CompletionEvent {
    fn drop(&mut self) {
        if self.channel.context().is_inherited() {
            return;
        }
        // SAFETY: destroying a queue waits for the acknowledgement of its events, so the queue
        // exists; this event is acknowledged once.
        unsafe { (self.channel.context().functions().ack_cq_events)(self.cq, 1) };
    }
}
