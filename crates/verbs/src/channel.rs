//! [`CompletionChannel`]: waiting for completions instead of polling for them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs_sys::{ibv_comp_channel, ibv_cq};

use crate::context::{Context, set_non_blocking};
use crate::conv;
use crate::cq::{CompletionQueue, CqId};
use crate::error::Error;

/// A completion channel (`struct ibv_comp_channel`): a descriptor that becomes readable when one
/// of its completion queues has news.
///
/// Clones are cheap and mean the same channel. The way to wait without missing anything is:
///
/// 1. [`CompletionQueue::request_notification`];
/// 2. [`CompletionQueue::poll`] until it is empty;
/// 3. wait until [`fd`](Self::fd) is readable, take the event with
///    [`next_event`](Self::next_event), and begin again.
#[derive(Clone)]
pub struct CompletionChannel(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_comp_channel>,
    /// Dropped after the channel is destroyed.
    context: Context,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the channel is destroyed once, by whichever thread drops it last.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl CompletionChannel {
    pub(crate) fn create(context: Context) -> Result<Self, Error> {
        let failed = |source| Error::CreateChannel {
            device: context.name(),
            source,
        };
        let create = context.functions().create_comp_channel;
        // SAFETY: the context is open.
        let raw = conv::pointer(|| unsafe { create(context.as_raw()) }).map_err(failed)?;
        // From here on the channel is destroyed if anything fails.
        let channel = Self(Arc::new(Inner {
            raw,
            context: context.clone(),
        }));
        // SAFETY: the channel was just made.
        if unsafe { (*raw.as_ptr()).fd } < 0 {
            return Err(failed(io::Error::other("the channel has no descriptor")));
        }
        set_non_blocking(channel.fd()).map_err(failed)?;
        Ok(channel)
    }

    /// The open device that the channel is of.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The descriptor that becomes readable when an event is pending. It is non-blocking. To be
    /// waited on with poll(2) or epoll(7), never to be read directly.
    ///
    /// See also: ibv_get_cq_event(3).
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists, and so does its descriptor, which is not negative (checked
        // when the channel was made).
        unsafe { BorrowedFd::borrow_raw((*self.as_raw()).fd) }
    }

    /// Takes the next event, none if nothing is pending. The event is acknowledged when it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NextCompletionEvent`], for example after the device was removed.
    ///
    /// See also: ibv_get_cq_event(3).
    pub fn next_event(&self) -> Result<Option<CompletionEvent>, Error> {
        let get_cq_event = self.0.context.functions().get_cq_event;
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists, and the arguments are valid places for the results.
        conv::take(|| unsafe { get_cq_event(self.as_raw(), &raw mut cq, &raw mut cq_context) })
            .map(|taken| {
                taken.then(|| CompletionEvent {
                    cq,
                    channel: self.clone(),
                })
            })
            .map_err(|source| Error::NextCompletionEvent {
                device: self.0.context.name(),
                source,
            })
    }

    /// The C object. It is valid for as long as this channel, a clone of it, or a completion
    /// queue that uses it.
    pub fn as_raw(&self) -> *mut ibv_comp_channel {
        self.0.raw.as_ptr()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("device", &self.0.context.device_name())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        let destroy = self.context.functions().destroy_comp_channel;
        // SAFETY: every queue and event of the channel holds it, so this is its last use.
        if let Err(error) = conv::returned(|| unsafe { destroy(self.raw.as_ptr()) }) {
            let device = self.context.device_name();
            tracing::warn!(device, %error, "ibv_destroy_comp_channel failed; leaked");
        }
    }
}

/// The news that a completion queue got the completion that notification was requested for.
///
/// It is acknowledged when it is dropped. Until then destroying the completion queue waits, so
/// never drop the queue in the thread that still holds its event.
///
/// See also: ibv_get_cq_event(3), ibv_ack_cq_events(3).
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

    /// Whether it is about that completion queue.
    pub fn is_cq(&self, cq: &CompletionQueue) -> bool {
        self.cq == cq.as_raw()
    }
}

impl fmt::Debug for CompletionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionEvent")
            .field("cq", &self.cq)
            .finish_non_exhaustive()
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
