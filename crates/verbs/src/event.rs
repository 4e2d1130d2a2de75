//! [`AsyncEvent`]: what a device reports about itself, its ports, queue pairs and queues.

use std::fmt;
use std::ptr::NonNull;

use ibverbs_sys::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SM_CHANGE,
    IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_WQ_FATAL,
    ibv_async_event, ibv_qp,
};

use crate::c_enum::open_constants;
use crate::channel::CqId;
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::operation::Operation;
use crate::qp::QueuePair;

/// Newer than the generated bindings (rdma-core 62).
const IBV_EVENT_DEVICE_SPEED_CHANGE: u32 = IBV_EVENT_WQ_FATAL + 1;

open_constants! {
    /// What happened (`enum ibv_event_type`, ibv_get_async_event(3)).
    pub struct EventType(u32) {
        /// A completion queue overran or failed.
        CQ_ERR = IBV_EVENT_CQ_ERR,
        /// A queue pair failed and could not even complete its requests.
        QP_FATAL = IBV_EVENT_QP_FATAL,
        /// A queue pair got a request that violates the protocol.
        QP_REQ_ERR = IBV_EVENT_QP_REQ_ERR,
        /// A queue pair got a request for memory or an operation that was not allowed.
        QP_ACCESS_ERR = IBV_EVENT_QP_ACCESS_ERR,
        /// A packet came for a queue pair in RTR: the peer is connected.
        COMM_EST = IBV_EVENT_COMM_EST,
        /// A queue pair in SQD has finished what it was sending.
        SQ_DRAINED = IBV_EVENT_SQ_DRAINED,
        /// A queue pair changed to its alternate path.
        PATH_MIG = IBV_EVENT_PATH_MIG,
        /// A queue pair failed to change to its alternate path.
        PATH_MIG_ERR = IBV_EVENT_PATH_MIG_ERR,
        /// The device failed. Nothing on it works any more.
        DEVICE_FATAL = IBV_EVENT_DEVICE_FATAL,
        /// A port became active.
        PORT_ACTIVE = IBV_EVENT_PORT_ACTIVE,
        /// A port lost its link.
        PORT_ERR = IBV_EVENT_PORT_ERR,
        /// The subnet manager gave a port another LID.
        LID_CHANGE = IBV_EVENT_LID_CHANGE,
        /// The P_Key table of a port changed.
        PKEY_CHANGE = IBV_EVENT_PKEY_CHANGE,
        /// Another subnet manager took over.
        SM_CHANGE = IBV_EVENT_SM_CHANGE,
        /// A shared receive queue failed.
        SRQ_ERR = IBV_EVENT_SRQ_ERR,
        /// A shared receive queue fell below its limit.
        SRQ_LIMIT_REACHED = IBV_EVENT_SRQ_LIMIT_REACHED,
        /// A queue pair has taken its last request from a shared receive queue.
        QP_LAST_WQE_REACHED = IBV_EVENT_QP_LAST_WQE_REACHED,
        /// The subnet manager lost its registrations and asks to repeat them.
        CLIENT_REREGISTER = IBV_EVENT_CLIENT_REREGISTER,
        /// The GID table of a port changed.
        GID_CHANGE = IBV_EVENT_GID_CHANGE,
        /// A work queue failed.
        WQ_FATAL = IBV_EVENT_WQ_FATAL,
        /// The effective data rate of a port of the device changed.
        DEVICE_SPEED_CHANGE = IBV_EVENT_DEVICE_SPEED_CHANGE,
    }
}

impl EventType {
    /// Whether the device, queue pair or queue that it is about can no longer be used.
    pub const fn is_fatal(self) -> bool {
        matches!(
            self,
            Self::CQ_ERR
                | Self::QP_FATAL
                | Self::QP_REQ_ERR
                | Self::QP_ACCESS_ERR
                | Self::DEVICE_FATAL
                | Self::SRQ_ERR
                | Self::WQ_FATAL
        )
    }

    const fn is_about_qp(self) -> bool {
        matches!(
            self,
            Self::QP_FATAL
                | Self::QP_REQ_ERR
                | Self::QP_ACCESS_ERR
                | Self::COMM_EST
                | Self::SQ_DRAINED
                | Self::PATH_MIG
                | Self::PATH_MIG_ERR
                | Self::QP_LAST_WQE_REACHED
        )
    }

    const fn is_about_port(self) -> bool {
        matches!(
            self,
            Self::PORT_ACTIVE
                | Self::PORT_ERR
                | Self::LID_CHANGE
                | Self::PKEY_CHANGE
                | Self::SM_CHANGE
                | Self::CLIENT_REREGISTER
                | Self::GID_CHANGE
        )
    }
}

/// An asynchronous event of an open device (`struct ibv_async_event`).
///
/// It is acknowledged when it is dropped. Until then, destroying the queue pair or completion
/// queue that it is about waits. So drop it soon, and never drop such an object in the thread
/// that still holds an event about it.
#[must_use = "the event is acknowledged when it is dropped"]
pub struct AsyncEvent {
    raw: ibv_async_event,
    context: Context,
}

// SAFETY: the pointer in the event belongs to libibverbs, which may be called from any thread,
// and stays valid until the event is acknowledged.
unsafe impl Send for AsyncEvent {}
// SAFETY: as above; sharing the event gives only reads of it.
unsafe impl Sync for AsyncEvent {}

impl Context {
    /// Takes the next asynchronous event (ibv_get_async_event(3)), none if nothing is pending. The
    /// event is acknowledged when it is dropped.
    ///
    /// # Errors
    ///
    /// For example after the device was removed.
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let get_async_event = self.functions().get_async_event;
        let mut raw = ibv_async_event::default();
        // SAFETY: the context is open, and the argument is a valid place for the event.
        let taken = conv::take(|| unsafe { get_async_event(self.as_raw(), &raw mut raw) });
        match taken {
            Ok(taken) => Ok(taken.then(|| AsyncEvent {
                raw,
                context: self.clone(),
            })),
            Err(source) => Err(self.error(Operation::NextEvent, source)),
        }
    }
}

impl AsyncEvent {
    /// What happened.
    pub fn kind(&self) -> EventType {
        EventType::from_raw(self.raw.event_type)
    }

    /// The device that it happened to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The port that it is about, if it is about a port.
    pub fn port(&self) -> Option<u8> {
        if !self.kind().is_about_port() {
            return None;
        }
        // SAFETY: for these types the port is the member of the union that libibverbs fills.
        u8::try_from(unsafe { self.raw.element.port_num }).ok()
    }

    /// The number of the queue pair that it is about, if it is about a queue pair.
    pub fn qp_number(&self) -> Option<u32> {
        let qp = NonNull::new(self.qp()?)?;
        // SAFETY: destroying a queue pair waits for the acknowledgement of its events, so it
        // exists as long as this event does. The number never changes.
        Some(unsafe { (*qp.as_ptr()).qp_num })
    }

    /// Whether it is about that queue pair.
    pub fn is_qp(&self, qp: &QueuePair) -> bool {
        self.qp() == Some(qp.as_raw())
    }

    /// The completion queue that it is about, if it is about one.
    pub fn cq_id(&self) -> Option<CqId> {
        // SAFETY: for this type the completion queue is the member that libibverbs fills.
        (self.kind() == EventType::CQ_ERR).then(|| CqId::of_raw(unsafe { self.raw.element.cq }))
    }

    /// Whether the device, queue pair or queue that it is about can no longer be used.
    pub fn is_fatal(&self) -> bool {
        self.kind().is_fatal()
    }

    fn qp(&self) -> Option<*mut ibv_qp> {
        if !self.kind().is_about_qp() {
            return None;
        }
        // SAFETY: for these types the queue pair is the member that libibverbs fills.
        Some(unsafe { self.raw.element.qp })
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.kind(), self.context.device_name())?;
        if let Some(port) = self.port() {
            write!(f, " port {port}")?;
        }
        if let Some(number) = self.qp_number() {
            write!(f, " queue pair {number:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncEvent({self})")
    }
}

impl Drop for AsyncEvent {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        // SAFETY: the event came from `get_async_event` of this context, which is still open, and
        // is acknowledged once.
        unsafe { (self.context.functions().ack_async_event)(&raw mut self.raw) };
    }
}
