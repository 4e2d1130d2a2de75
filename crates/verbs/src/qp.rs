//! [`QueuePair`]: one end of a reliable connection.

use std::fmt;
use std::io;
use std::ptr;

use ibverbs_sys::{
    ibv_context, ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_type,
};

use crate::conv;
use crate::cq::CompletionQueue;
use crate::ece::Ece;
use crate::error::Error;
use crate::object::Object;
use crate::operation::Operation;
use crate::pd::ProtectionDomain;
use crate::post::{self, PostError};
use crate::qp_attr::{Capabilities, QueuePairAttributes, QueuePairOptions};
use crate::qp_state::QueuePairState;
use crate::qp_step::{InitAttributes, ReadyToReceive, ReadyToSend, Step};
use crate::wr::{RecvRequest, SendRequest};

/// A reliable-connection queue pair (`struct ibv_qp`). Destroyed on drop.
///
/// It is made in RESET and connected by [`to_init`](Self::to_init), [`to_rtr`](Self::to_rtr) and
/// [`to_rts`](Self::to_rts), with what the two ends have told each other. Requests may be posted
/// from several threads at once; each queue carries them out in the order of the calls.
///
/// It cannot be cloned: its owner decides when the connection ends.
///
/// ```compile_fail,E0599
/// fn two(qp: ibnet_verbs::QueuePair) -> (ibnet_verbs::QueuePair, ibnet_verbs::QueuePair) {
///     (qp.clone(), qp)
/// }
/// ```
pub struct QueuePair {
    object: Object<ibv_qp>,
    /// The context of the domain, for the operations that go through it.
    context: *mut ibv_context,
    number: u32,
    capabilities: Capabilities,
    // All are dropped after the queue pair is destroyed.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    pd: ProtectionDomain,
}

// SAFETY: the context lives as long as the domain, and verbs may be called from any thread
// (`Library::from_functions` demands it of every table).
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl ProtectionDomain {
    /// Makes a reliable-connection queue pair (ibv_create_qp(3)), in the state RESET.
    ///
    /// # Errors
    ///
    /// Usually more was asked for than the device allows, see [`QueuePairOptions::clamp_to`]. A
    /// completion queue of another context is refused without a call.
    pub fn create_qp(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, Error> {
        let context = self.context();
        let operation = Operation::CreateQp {
            options: options.to_string(),
        };
        let is_of_this = |cq: &CompletionQueue| cq.context().ptr_eq(context);
        if !is_of_this(options.send_cq) || !is_of_this(options.recv_cq) {
            let problem = "a completion queue is of another context";
            return Err(Error::invalid(operation, context.device_name(), problem));
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
        let create_qp = context.functions().create_qp;
        // SAFETY: the domain and the completion queues exist and are of one context.
        let object = Object::create(context, || unsafe {
            create_qp(self.as_raw(), &raw mut attributes)
        })
        .map_err(|source| context.error(operation, source))?;
        Ok(QueuePair {
            context: context.as_raw(),
            // SAFETY: the queue pair was just made; its number never changes.
            number: unsafe { (*object.as_raw()).qp_num },
            object,
            // The call has put in what it granted.
            capabilities: Capabilities::from(&attributes.cap),
            send_cq: options.send_cq.clone(),
            recv_cq: options.recv_cq.clone(),
            pd: self.clone(),
        })
    }
}

impl QueuePair {
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
        self.object.as_raw()
    }

    /// RESET to INIT (ibv_modify_qp(3), as all these steps): the queue pair is bound to a port, and
    /// receives can be posted.
    pub fn to_init(&self, attributes: &InitAttributes) -> Result<(), Error> {
        self.step(attributes)
    }

    /// INIT to RTR: the queue pair is connected to its peer, and receives.
    ///
    /// With RoCE the call resolves the peer's Ethernet address, which may take seconds when the
    /// peer does not answer.
    ///
    /// # Errors
    ///
    /// `EINVAL` usually for the GID index or the path MTU, `ETIMEDOUT` when the peer's address was
    /// not resolved. A value that does not fit its field is refused without a call.
    pub fn to_rtr(&self, attributes: &ReadyToReceive) -> Result<(), Error> {
        self.step(attributes)
    }

    /// RTR to RTS: the queue pair sends, too.
    ///
    /// # Errors
    ///
    /// A value that does not fit its field is refused without a call.
    pub fn to_rts(&self, attributes: &ReadyToSend) -> Result<(), Error> {
        self.step(attributes)
    }

    /// Any state to ERR: what is queued completes as flushed, and packets of the peer are
    /// dropped.
    pub fn to_error(&self) -> Result<(), Error> {
        self.leave(QueuePairState::ERR)
    }

    /// Any state to RESET: what is queued is forgotten without completing, and the queue pair
    /// can be connected anew.
    ///
    /// Completions that were not polled yet are removed from the completion queues, or not,
    /// depending on the driver. Move to ERR and poll them first.
    pub fn to_reset(&self) -> Result<(), Error> {
        self.leave(QueuePairState::RESET)
    }

    /// The present state (ibv_query_qp(3)).
    pub fn state(&self) -> Result<QueuePairState, Error> {
        let raw = self.query_raw(ibv_qp_attr_mask::IBV_QP_STATE)?;
        Ok(QueuePairState::from_raw(raw.qp_state))
    }

    /// The present attributes (ibv_query_qp(3)).
    pub fn query(&self) -> Result<QueuePairAttributes, Error> {
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_CAP
            | InitAttributes::MASK
            | ReadyToReceive::MASK
            | ReadyToSend::MASK;
        Ok(QueuePairAttributes::from(&self.query_raw(mask)?))
    }

    /// The options for enhanced connection establishment (ibv_query_ece(3)). None if the library
    /// (before IBVERBS_1.10) or the driver has none.
    pub fn ece(&self) -> Result<Option<Ece>, Error> {
        let Some(query_ece) = self.pd.context().functions().query_ece else {
            return Ok(None);
        };
        let mut raw = ibv_ece::default();
        // SAFETY: the queue pair exists, and the argument is a valid place for the options.
        let queried = conv::returned(|| unsafe { query_ece(self.as_raw(), &raw mut raw) });
        let qp = self.number;
        match queried.map_err(|source| self.failed(Operation::QueryEce { qp }, source)) {
            Ok(()) => Ok(Some(Ece::from(raw))),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the options for enhanced connection establishment (ibv_set_ece(3)), which take effect
    /// in the next steps to RTR and RTS. The driver may accept only some of them: ask
    /// [`ece`](Self::ece).
    ///
    /// # Errors
    ///
    /// Also if the library has no such function (before IBVERBS_1.10). [`Error::is_unsupported`]
    /// knows the driver's ways of saying so, too.
    pub fn set_ece(&self, ece: &Ece) -> Result<(), Error> {
        let context = self.pd.context();
        let operation = Operation::SetEce { qp: self.number };
        let Some(set_ece) = context.functions().set_ece else {
            let device = context.device_name();
            return Err(Error::unsupported(operation, device, "ibv_set_ece"));
        };
        let mut raw = ece.to_raw();
        // SAFETY: the queue pair exists, and the argument is valid for reading and writing.
        conv::returned(|| unsafe { set_ece(self.as_raw(), &raw mut raw) })
            .map_err(|source| self.failed(operation, source))
    }

    /// Posts a chain of requests to the send queue, in one call (ibv_post_send(3)): the second of
    /// the two unsafe gates of this crate.
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
    #[inline]
    pub unsafe fn post_send<const N: usize>(
        &self,
        chain: &mut [SendRequest<N>],
    ) -> Result<(), PostError> {
        // SAFETY: the context is open as long as the queue pair exists.
        let operation = unsafe { (*self.context).ops.post_send };
        // SAFETY: the queue pair exists; about the memory see the caller.
        unsafe { post::chain(self.as_raw(), self.number, chain, operation) }
    }

    /// Posts a chain of requests to the receive queue, in one call (ibv_post_recv(3)), as
    /// [`post_send`](Self::post_send) does.
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// For every request that is accepted, until its completion was polled: the memory that it
    /// names stays registered and mapped, and nothing reads or writes it.
    #[inline]
    pub unsafe fn post_recv<const N: usize>(
        &self,
        chain: &mut [RecvRequest<N>],
    ) -> Result<(), PostError> {
        // SAFETY: the context is open as long as the queue pair exists.
        let operation = unsafe { (*self.context).ops.post_recv };
        // SAFETY: the queue pair exists; about the memory see the caller.
        unsafe { post::chain(self.as_raw(), self.number, chain, operation) }
    }

    fn step<S: Step>(&self, step: &S) -> Result<(), Error> {
        let operation = || Operation::ModifyQp {
            qp: self.number,
            to: S::TO,
            attributes: step.to_string(),
        };
        let mut bounds = step.bounds().into_iter();
        if let Some((field, value, most)) = bounds.find(|(_, value, most)| value > most) {
            let problem = format!("{field} is {value:#x}, but at most {most:#x} fits");
            let device = self.pd.context().device_name();
            return Err(Error::invalid(operation(), device, problem));
        }
        self.modify(S::TO, step.attributes(), S::MASK)
            .map_err(|source| self.failed(operation(), source))
    }

    /// A step that needs to be told nothing.
    fn leave(&self, to: QueuePairState) -> Result<(), Error> {
        self.modify(to, ibv_qp_attr::default(), ibv_qp_attr_mask(0))
            .map_err(|source| {
                let operation = Operation::ModifyQp {
                    qp: self.number,
                    to,
                    attributes: String::new(),
                };
                self.failed(operation, source)
            })
    }

    fn modify(
        &self,
        to: QueuePairState,
        mut attributes: ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> io::Result<()> {
        let modify_qp = self.pd.context().functions().modify_qp;
        attributes.qp_state = to.raw();
        // The mask is an int in C. Its bits are few and low.
        let mask = (mask | ibv_qp_attr_mask::IBV_QP_STATE).0.cast_signed();
        // SAFETY: the queue pair exists, and the argument holds the attributes of the mask.
        conv::returned(|| unsafe { modify_qp(self.as_raw(), &raw mut attributes, mask) })
    }

    fn query_raw(&self, mask: ibv_qp_attr_mask) -> Result<ibv_qp_attr, Error> {
        let query_qp = self.pd.context().functions().query_qp;
        let (mut attributes, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let mask = mask.0.cast_signed();
        // SAFETY: the queue pair exists, and the arguments are valid places for the attributes.
        conv::returned(|| unsafe {
            query_qp(self.as_raw(), &raw mut attributes, mask, &raw mut init)
        })
        .map_err(|source| self.failed(Operation::QueryQp { qp: self.number }, source))?;
        Ok(attributes)
    }

    fn failed(&self, operation: Operation, source: io::Error) -> Error {
        self.pd.context().error(operation, source)
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
