//! [`CompletionQueue`]: where the device reports that work requests have ended.

use std::io;
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::ptr;
use std::sync::Arc;

use ibverbs_sys::ibv_cq;

use crate::channel::{CompletionChannel, CqId};
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::object::Object;
use crate::operation::Operation;
use crate::wc::WorkCompletion;

/// A completion queue (`struct ibv_cq`).
///
/// Clones are cheap and mean the same queue. It is destroyed when the last clone and every queue
/// pair that uses it are gone.
#[derive(Clone, Debug)]
pub struct CompletionQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    object: Object<ibv_cq>,
    depth: u32,
    /// Dropped after the queue is destroyed.
    channel: Option<CompletionChannel>,
}

impl Context {
    /// Makes a completion queue of at least `depth` entries (ibv_create_cq(3)), to be polled. See
    /// `max_cq` and `max_cqe` of [`DeviceAttributes`](crate::DeviceAttributes).
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, depth, None)
    }

    /// Makes a completion queue of at least `depth` entries, which tells `channel` of new
    /// completions when asked to by [`CompletionQueue::request_notification`].
    ///
    /// # Errors
    ///
    /// A channel of another context is refused without a call.
    pub fn create_cq_with_channel(
        &self,
        depth: u32,
        channel: &CompletionChannel,
    ) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, depth, Some(channel))
    }
}

impl CompletionQueue {
    fn create(
        context: &Context,
        depth: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Error> {
        let operation = Operation::CreateCq { depth };
        let Ok(entries) = c_int::try_from(depth) else {
            let problem = "the depth exceeds 2^31 - 1";
            return Err(Error::invalid(operation, context.device_name(), problem));
        };
        if channel.is_some_and(|channel| !channel.context().ptr_eq(context)) {
            let problem = "the completion channel is of another context";
            return Err(Error::invalid(operation, context.device_name(), problem));
        }
        let raw_channel = channel.map_or(ptr::null_mut(), CompletionChannel::as_raw);
        let create_cq = context.functions().create_cq;
        // SAFETY: the context is open, and the channel (if any) is alive and of this context.
        // Vector 0 always exists.
        let object = Object::create(context, || unsafe {
            create_cq(context.as_raw(), entries, ptr::null_mut(), raw_channel, 0)
        })
        .map_err(|source| context.error(operation, source))?;
        // SAFETY: the queue was just made.
        let depth = u32::try_from(unsafe { (*object.as_raw()).cqe }).unwrap_or(depth);
        Ok(Self(Arc::new(Inner {
            object,
            depth,
            channel: channel.cloned(),
        })))
    }

    /// How many entries the queue has, which may be more than were asked for. With more
    /// completions than that outstanding the queue overruns, which is fatal to it.
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// The open device that the queue is of.
    pub fn context(&self) -> &Context {
        self.0.object.context()
    }

    /// The channel that is told of new completions, if there is one.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.channel.as_ref()
    }

    /// Takes up to `batch.len()` completions out of the queue (ibv_poll_cq(3)), and returns those
    /// that there were.
    ///
    /// Never waits, and allocates nothing unless it fails.
    ///
    /// Failed work requests are no error of this call: see [`WorkCompletion::status`]. The
    /// completions are in the caller's batch, which cannot be filled again while they are in use:
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
    #[inline]
    pub fn poll<'b>(&self, batch: &'b mut [WorkCompletion]) -> Result<&'b [WorkCompletion], Error> {
        let batch = ptr::from_mut(batch) as *mut [MaybeUninit<WorkCompletion>];
        // SAFETY: of the same layout, and only completions that `ibv_poll_cq` has filled in are written.
        self.poll_uninit(unsafe { &mut *batch })
    }

    /// As [`poll`](Self::poll), into memory that has nothing in it yet.
    ///
    /// # Errors
    ///
    /// As for [`poll`](Self::poll).
    #[inline]
    pub fn poll_uninit<'b>(
        &self,
        batch: &'b mut [MaybeUninit<WorkCompletion>],
    ) -> Result<&'b [WorkCompletion], Error> {
        let capacity = c_int::try_from(batch.len()).unwrap_or(c_int::MAX);
        // SAFETY: the context is open as long as the queue exists.
        let Some(poll_cq) = (unsafe { (*self.context().as_raw()).ops.poll_cq }) else {
            return Err(self.unsupported(Operation::PollCq, "poll_cq"));
        };
        // SAFETY: the queue exists, and the batch has room for `capacity` completions, which are
        // laid out as `ibv_wc`.
        let polled = unsafe { poll_cq(self.as_raw(), capacity, batch.as_mut_ptr().cast()) };
        if polled < 0 {
            return Err(self.failed(Operation::PollCq, conv::data_path_error(polled)));
        }
        let polled = &batch[..(polled as usize).min(batch.len())];
        // SAFETY: `ibv_poll_cq` has filled in so many, and they are laid out alike.
        Ok(unsafe { &*(ptr::from_ref(polled) as *const [WorkCompletion]) })
    }

    /// Asks for one event on the channel when the next completion comes, or with
    /// `solicited_only` the next that is a failure or that the peer marked as solicited
    /// (ibv_req_notify_cq(3)).
    ///
    /// Completions that came before do not count. So poll once more after this call, before
    /// waiting for the event.
    pub fn request_notification(&self, solicited_only: bool) -> Result<(), Error> {
        // SAFETY: the context is open as long as the queue exists.
        let Some(req_notify_cq) = (unsafe { (*self.context().as_raw()).ops.req_notify_cq }) else {
            return Err(self.unsupported(Operation::RequestNotification, "req_notify_cq"));
        };
        // SAFETY: the queue exists.
        conv::returned(|| unsafe { req_notify_cq(self.as_raw(), solicited_only.into()) })
            .map_err(|source| self.failed(Operation::RequestNotification, source))
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
        self.0.object.as_raw()
    }

    #[cold]
    fn failed(&self, operation: Operation, source: io::Error) -> Error {
        self.context().error(operation, source)
    }

    #[cold]
    fn unsupported(&self, operation: Operation, missing: &str) -> Error {
        Error::unsupported(operation, self.context().device_name(), missing)
    }
}
