//! [`CompletionQueue`]: where the device reports that work requests have ended.

use std::fmt;
use std::os::raw::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs_sys::ibv_cq;

use crate::channel::CompletionChannel;
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::wc::WorkCompletion;

/// A completion queue (`struct ibv_cq`).
///
/// Clones are cheap and mean the same queue. It is destroyed when the last clone and every queue
/// pair that uses it are gone.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_cq>,
    depth: u32,
    // Both are dropped after the queue is destroyed.
    channel: Option<CompletionChannel>,
    context: Context,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the queue is destroyed once, by whichever thread drops it last.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl CompletionQueue {
    pub(crate) fn create(
        context: Context,
        depth: u32,
        channel: Option<CompletionChannel>,
    ) -> Result<Self, Error> {
        let invalid = |problem: &str| Error::InvalidArgument {
            device: context.name(),
            operation: "creating a completion queue",
            problem: problem.to_owned(),
        };
        let entries = c_int::try_from(depth).map_err(|_| invalid("the depth exceeds 2^31 - 1"))?;
        if channel
            .as_ref()
            .is_some_and(|channel| !channel.context().ptr_eq(&context))
        {
            return Err(invalid("the completion channel is of another context"));
        }
        let raw_channel = channel
            .as_ref()
            .map_or(ptr::null_mut(), CompletionChannel::as_raw);
        let create_cq = context.functions().create_cq;
        // SAFETY: the context is open, and the channel (if any) is alive and of this context.
        // Vector 0 always exists.
        let raw = conv::pointer(|| unsafe {
            create_cq(context.as_raw(), entries, ptr::null_mut(), raw_channel, 0)
        })
        .map_err(|source| Error::CreateCq {
            device: context.name(),
            depth,
            source,
        })?;
        // SAFETY: the queue was just made.
        let depth = u32::try_from(unsafe { (*raw.as_ptr()).cqe }).unwrap_or(depth);
        Ok(Self(Arc::new(Inner {
            raw,
            depth,
            channel,
            context,
        })))
    }

    /// How many entries the queue has, which may be more than were asked for. With more
    /// completions than that outstanding the queue overruns, which is fatal to it.
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// The open device that the queue is of.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The channel that is told of new completions, if there is one.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.channel.as_ref()
    }

    /// Takes up to `batch.len()` completions out of the queue, and returns those that there were.
    ///
    /// Never waits, and allocates nothing unless it fails.
    ///
    /// # Errors
    ///
    /// [`Error::PollCq`]. Failed work requests are no error of this call: see
    /// [`WorkCompletion::status`].
    ///
    /// # Examples
    ///
    /// The completions are in the caller's batch, which cannot be filled again while they are in
    /// use:
    ///
    /// ```compile_fail,E0499
    /// fn twice(cq: &ibnet_verbs::CompletionQueue) -> Result<(), ibnet_verbs::Error> {
    ///     let mut batch = [ibnet_verbs::WorkCompletion::default(); 16];
    ///     let first = cq.poll(&mut batch)?;
    ///     let second = cq.poll(&mut batch)?;
    ///     println!("{first:?} {second:?}");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// See also: ibv_poll_cq(3).
    #[inline]
    pub fn poll<'b>(&self, batch: &'b mut [WorkCompletion]) -> Result<&'b [WorkCompletion], Error> {
        let capacity = c_int::try_from(batch.len()).unwrap_or(c_int::MAX);
        // SAFETY: the context is open as long as the queue exists.
        let Some(poll_cq) = (unsafe { (*self.0.context.as_raw()).ops.poll_cq }) else {
            return Err(self.unsupported("polling a completion queue", "poll_cq"));
        };
        // SAFETY: the queue exists, and the batch has room for `capacity` completions, which are
        // laid out as `ibv_wc`.
        let polled = conv::count(|| unsafe {
            poll_cq(self.as_raw(), capacity, batch.as_mut_ptr().cast()) as isize
        });
        match polled {
            Ok(number) => Ok(&batch[..number.min(batch.len())]),
            Err(source) => Err(Error::PollCq {
                device: self.0.context.name(),
                source,
            }),
        }
    }

    /// Asks for one event on the channel when the next completion comes, or with
    /// `solicited_only` the next that is a failure or that the peer marked as solicited.
    ///
    /// Completions that came before do not count. So poll once more after this call, before
    /// waiting for the event.
    ///
    /// # Errors
    ///
    /// [`Error::RequestNotification`].
    ///
    /// See also: ibv_req_notify_cq(3).
    pub fn request_notification(&self, solicited_only: bool) -> Result<(), Error> {
        // SAFETY: the context is open as long as the queue exists.
        let Some(req_notify_cq) = (unsafe { (*self.0.context.as_raw()).ops.req_notify_cq }) else {
            return Err(self.unsupported("requesting notification", "req_notify_cq"));
        };
        // SAFETY: the queue exists.
        conv::returned(|| unsafe { req_notify_cq(self.as_raw(), solicited_only.into()) }).map_err(
            |source| Error::RequestNotification {
                device: self.0.context.name(),
                source,
            },
        )
    }

    /// Whether both mean the same queue.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What names the queue in [`AsyncEvent::cq_id`](crate::AsyncEvent::cq_id).
    pub fn id(&self) -> CqId {
        CqId::of_raw(self.as_raw())
    }

    /// The C object. It is valid for as long as this queue, a clone of it, or a queue pair that
    /// uses it.
    #[inline]
    pub fn as_raw(&self) -> *mut ibv_cq {
        self.0.raw.as_ptr()
    }

    #[cold]
    fn unsupported(&self, operation: &'static str, missing: &'static str) -> Error {
        Error::Unsupported {
            device: self.0.context.name(),
            operation,
            missing,
        }
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

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("device", &self.0.context.device_name())
            .field("depth", &self.0.depth)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        let destroy_cq = self.context.functions().destroy_cq;
        // SAFETY: every queue pair that uses the queue holds it, so this is its last use.
        if let Err(error) = conv::returned(|| unsafe { destroy_cq(self.raw.as_ptr()) }) {
            let device = self.context.device_name();
            tracing::warn!(device, %error, "ibv_destroy_cq failed; leaked");
        }
    }
}
