//! [`QueuePair`]: one end of a reliable connection.

use std::fmt;
use std::ptr::{self, NonNull};

use ibverbs_sys::{
    ibv_context, ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_type,
};

use crate::conv;
use crate::cq::CompletionQueue;
use crate::ece::Ece;
use crate::error::Error;
use crate::pd::ProtectionDomain;
use crate::post::{self, PostError};
use crate::qp_attr::{Capabilities, QueuePairAttributes, QueuePairOptions};
use crate::qp_state::{
    InitAttributes, Modification, QueuePairState, ReadyToReceive, ReadyToSend, Transition,
};
use crate::wr::{RecvRequest, SendRequest};

/// A reliable-connection queue pair (`struct ibv_qp`). Destroyed on drop.
///
/// It is made in RESET and connected by [`to_init`](Self::to_init), [`to_rtr`](Self::to_rtr) and
/// [`to_rts`](Self::to_rts), with what the two ends have told each other. Requests may be posted
/// from several threads at once; each queue carries them out in the order of the calls.
///
/// It cannot be cloned: whoever owns it decides when the connection ends.
///
/// ```compile_fail,E0599
/// fn two(qp: ibnet_verbs::QueuePair) -> (ibnet_verbs::QueuePair, ibnet_verbs::QueuePair) {
///     (qp.clone(), qp)
/// }
/// ```
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    /// The context of the domain, for the operations that go through it.
    context: NonNull<ibv_context>,
    number: u32,
    capabilities: Capabilities,
    // All are dropped after the queue pair is destroyed.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    pd: ProtectionDomain,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table).
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    pub(crate) fn create(
        pd: ProtectionDomain,
        options: &QueuePairOptions<'_>,
    ) -> Result<Self, Error> {
        let device = || pd.context().name();
        let of_this = |cq: &CompletionQueue| cq.context().ptr_eq(pd.context());
        if !of_this(options.send_cq) || !of_this(options.recv_cq) {
            return Err(Error::InvalidArgument {
                device: device(),
                operation: "creating a queue pair",
                problem: "a completion queue is of another context".to_owned(),
            });
        }
        let mut attributes = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: options.send_cq.as_raw(),
            recv_cq: options.recv_cq.as_raw(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: options.max_send_wr,
                max_recv_wr: options.max_recv_wr,
                max_send_sge: options.max_send_sge,
                max_recv_sge: options.max_recv_sge,
                max_inline_data: options.max_inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: options.signal_all.into(),
        };
        let create_qp = pd.context().functions().create_qp;
        // SAFETY: the domain and the completion queues exist and are of one context.
        let raw = conv::pointer(|| unsafe { create_qp(pd.as_raw(), &raw mut attributes) })
            .map_err(|source| Error::CreateQp {
                device: device(),
                request: options.to_string(),
                source,
            })?;
        Ok(Self {
            raw,
            context: pd.context().raw(),
            // SAFETY: the queue pair was just made; its number never changes.
            number: unsafe { (*raw.as_ptr()).qp_num },
            // The call has put in what it granted.
            capabilities: Capabilities::from(&attributes.cap),
            send_cq: options.send_cq.clone(),
            recv_cq: options.recv_cq.clone(),
            pd,
        })
    }

    /// The number by which the peer addresses the queue pair, 24 bits.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What the queue pair was granted when it was made.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The protection domain that the queue pair is in.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Where completions of the send queue go.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Where completions of the receive queue go.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.recv_cq
    }

    /// The C object. It is valid for as long as this queue pair.
    #[inline]
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    /// RESET to INIT: the queue pair is bound to a port, and receives can be posted.
    ///
    /// # Errors
    ///
    /// [`Error::ModifyQp`].
    ///
    /// See also: ibv_modify_qp(3).
    pub fn to_init(&self, attributes: &InitAttributes) -> Result<(), Error> {
        self.modify(Modification::to_init(attributes), || attributes.to_string())
    }

    /// INIT to RTR: the queue pair is connected to its peer, and receives.
    ///
    /// With RoCE the call resolves the peer's Ethernet address, which may take seconds when the
    /// peer does not answer.
    ///
    /// # Errors
    ///
    /// [`Error::ModifyQp`]; `EINVAL` usually for the GID index or the path MTU, `ETIMEDOUT` when
    /// the peer's address was not resolved. [`Error::InvalidArgument`] if a value does not fit
    /// its field.
    ///
    /// See also: ibv_modify_qp(3).
    pub fn to_rtr(&self, attributes: &ReadyToReceive) -> Result<(), Error> {
        self.check("moving a queue pair to RTR", attributes.problem())?;
        self.modify(Modification::to_rtr(attributes), || attributes.to_string())
    }

    /// RTR to RTS: the queue pair sends, too.
    ///
    /// # Errors
    ///
    /// [`Error::ModifyQp`]. [`Error::InvalidArgument`] if a value does not fit its field.
    ///
    /// See also: ibv_modify_qp(3).
    pub fn to_rts(&self, attributes: &ReadyToSend) -> Result<(), Error> {
        self.check("moving a queue pair to RTS", attributes.problem())?;
        self.modify(Modification::to_rts(attributes), || attributes.to_string())
    }

    /// Any state to ERR: what is queued completes as flushed, and packets of the peer are
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::ModifyQp`].
    ///
    /// See also: ibv_modify_qp(3).
    pub fn to_error(&self) -> Result<(), Error> {
        self.modify(Modification::to_state(QueuePairState::ERR), String::new)
    }

    /// Any state to RESET: what is queued is forgotten without completing, and the queue pair
    /// can be connected anew.
    ///
    /// Completions that were not polled yet are removed from the completion queues, or not,
    /// depending on the driver. Move to ERR and poll them first.
    ///
    /// # Errors
    ///
    /// [`Error::ModifyQp`].
    ///
    /// See also: ibv_modify_qp(3).
    pub fn to_reset(&self) -> Result<(), Error> {
        self.modify(Modification::to_state(QueuePairState::RESET), String::new)
    }

    /// The present state.
    ///
    /// # Errors
    ///
    /// [`Error::QueryQp`].
    ///
    /// See also: ibv_query_qp(3).
    pub fn state(&self) -> Result<QueuePairState, Error> {
        let raw = self.query_raw(ibv_qp_attr_mask::IBV_QP_STATE)?;
        Ok(QueuePairState::from_raw(raw.qp_state))
    }

    /// The present attributes.
    ///
    /// # Errors
    ///
    /// [`Error::QueryQp`].
    ///
    /// See also: ibv_query_qp(3).
    pub fn query(&self) -> Result<QueuePairAttributes, Error> {
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_CAP
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ibv_qp_attr_mask::IBV_QP_AV
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER
            | ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        Ok(QueuePairAttributes::from(&self.query_raw(mask)?))
    }

    /// The options for enhanced connection establishment. None if the library (before
    /// IBVERBS_1.10) or the driver has none.
    ///
    /// # Errors
    ///
    /// [`Error::QueryEce`] if the driver has them but failed.
    ///
    /// See also: ibv_query_ece(3).
    pub fn ece(&self) -> Result<Option<Ece>, Error> {
        let Some(query_ece) = self.pd.context().functions().query_ece else {
            return Ok(None);
        };
        let mut raw = ibv_ece::default();
        // SAFETY: the queue pair exists, and the argument is a valid place for the options.
        conv::returned(|| unsafe { query_ece(self.as_raw(), &raw mut raw) })
            .map(|()| Some(Ece::from(raw)))
            .or_else(|source| {
                let error = Error::QueryEce {
                    device: self.device(),
                    qp: self.number,
                    source,
                };
                if error.is_unsupported() {
                    Ok(None)
                } else {
                    Err(error)
                }
            })
    }

    /// Sets the options for enhanced connection establishment, which take effect in the next
    /// steps to RTR and RTS. The driver may accept only some of them: ask [`ece`](Self::ece).
    ///
    /// # Errors
    ///
    /// [`Error::SetEce`]; [`Error::Unsupported`] if the library has no such function (before
    /// IBVERBS_1.10). [`Error::is_unsupported`] also knows the driver's ways of saying so.
    ///
    /// See also: ibv_set_ece(3).
    pub fn set_ece(&self, ece: &Ece) -> Result<(), Error> {
        let Some(set_ece) = self.pd.context().functions().set_ece else {
            return Err(Error::Unsupported {
                device: self.device(),
                operation: "setting ECE options",
                missing: "ibv_set_ece",
            });
        };
        let mut raw = ece.to_raw();
        // SAFETY: the queue pair exists, and the argument is valid for reading and writing.
        conv::returned(|| unsafe { set_ece(self.as_raw(), &raw mut raw) }).map_err(|source| {
            Error::SetEce {
                device: self.device(),
                qp: self.number,
                source,
            }
        })
    }

    /// Posts a chain of requests to the send queue, in one call: the second of the two unsafe
    /// gates of this crate.
    ///
    /// The chain is linked in place and needs no heap. It can be changed or dropped afterwards.
    /// An empty chain is accepted.
    ///
    /// # Errors
    ///
    /// [`PostError`] says how many requests of the chain were accepted; those will be carried
    /// out. `ENOMEM` means that the queue is full.
    ///
    /// # Safety
    ///
    /// For every request that is accepted, until its completion was polled (or that of a later
    /// request of this queue pair's send queue): the local memory that it names stays registered
    /// and mapped; nothing writes to memory that it sends; nothing reads or writes memory that
    /// it fills. For [`inline`](SendRequest::inline) requests the memory only has to be readable
    /// during this call.
    ///
    /// See also: ibv_post_send(3).
    #[inline]
    pub unsafe fn post_send(&self, chain: &mut [SendRequest]) -> Result<(), PostError> {
        // SAFETY: the context is open as long as the queue pair exists.
        let operation = unsafe { (*self.context.as_ptr()).ops.post_send };
        // SAFETY: the queue pair exists; about the memory see the caller.
        unsafe { post::chain(self.as_raw(), self.number, chain, operation) }
    }

    /// Posts a chain of requests to the receive queue, in one call.
    ///
    /// The chain is linked in place and needs no heap. It can be changed or dropped afterwards.
    /// An empty chain is accepted.
    ///
    /// # Errors
    ///
    /// [`PostError`] says how many requests of the chain were accepted; those will be carried
    /// out. `ENOMEM` means that the queue is full.
    ///
    /// # Safety
    ///
    /// For every request that is accepted, until its completion was polled: the memory that it
    /// names stays registered and mapped, and nothing reads or writes it.
    ///
    /// See also: ibv_post_recv(3).
    #[inline]
    pub unsafe fn post_recv(&self, chain: &mut [RecvRequest]) -> Result<(), PostError> {
        // SAFETY: the context is open as long as the queue pair exists.
        let operation = unsafe { (*self.context.as_ptr()).ops.post_recv };
        // SAFETY: the queue pair exists; about the memory see the caller.
        unsafe { post::chain(self.as_raw(), self.number, chain, operation) }
    }

    fn check(&self, operation: &'static str, problem: Option<String>) -> Result<(), Error> {
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::InvalidArgument {
                device: self.device(),
                operation,
                problem,
            }),
        }
    }

    /// `attributes` describes the step, for the error.
    fn modify(
        &self,
        mut modification: Modification,
        attributes: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let modify_qp = self.pd.context().functions().modify_qp;
        // The mask is an int in C. Its bits are few and low.
        let mask = modification.mask.0.cast_signed();
        // SAFETY: the queue pair exists, and the argument holds the attributes of the mask.
        conv::returned(|| unsafe { modify_qp(self.as_raw(), &raw mut modification.raw, mask) })
            .map_err(|source| {
                let to = QueuePairState::from_raw(modification.raw.qp_state);
                Error::ModifyQp {
                    device: self.device(),
                    qp: self.number,
                    transition: Transition::new(to, attributes()),
                    source,
                }
            })
    }

    fn query_raw(&self, mask: ibv_qp_attr_mask) -> Result<ibv_qp_attr, Error> {
        let query_qp = self.pd.context().functions().query_qp;
        let (mut attributes, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let mask = mask.0.cast_signed();
        // SAFETY: the queue pair exists, and the arguments are valid places for the attributes.
        conv::returned(|| unsafe {
            query_qp(self.as_raw(), &raw mut attributes, mask, &raw mut init)
        })
        .map_err(|source| Error::QueryQp {
            device: self.device(),
            qp: self.number,
            source,
        })?;
        Ok(attributes)
    }

    fn device(&self) -> String {
        self.pd.context().name()
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("device", &self.pd.context().device_name())
            .field("number", &format_args!("{:#x}", self.number))
            .finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.pd.context().is_inherited() {
            return;
        }
        let destroy_qp = self.pd.context().functions().destroy_qp;
        // SAFETY: the queue pair exists and is destroyed once.
        if let Err(error) = conv::returned(|| unsafe { destroy_qp(self.as_raw()) }) {
            let (device, qp) = (self.pd.context().device_name(), self.number);
            tracing::warn!(device, qp, %error, "ibv_destroy_qp failed; leaked");
        }
    }
}
