//! [`SendRequest`] and [`RecvRequest`]: what a queue pair is told to do.

use std::fmt;

use ibverbs_sys::{
    ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_send_wr__bindgen_ty_2__bindgen_ty_1, ibv_sge,
    ibv_wr_opcode,
};

use crate::post::Request;

/// A piece of registered local memory (`struct ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sge {
    /// The address of the first byte.
    pub address: u64,
    /// The length in bytes. A length of 0 is allowed.
    pub length: u32,
    /// The local key of a memory region that covers it. Not looked at for inline data.
    pub lkey: u32,
}

impl From<Sge> for ibv_sge {
    #[inline]
    fn from(sge: Sge) -> Self {
        Self {
            addr: sge.address,
            length: sge.length,
            lkey: sge.lkey,
        }
    }
}

/// A place in a peer's registered memory (`wr.rdma` of `struct ibv_send_wr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// The address of the first byte, as the peer knows it.
    pub address: u64,
    /// The remote key of a memory region of the peer that covers it.
    pub rkey: u32,
}

impl From<RemoteAddress> for ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    #[inline]
    fn from(remote: RemoteAddress) -> Self {
        Self {
            remote_addr: remote.address,
            rkey: remote.rkey,
        }
    }
}

/// A request for the send queue (`struct ibv_send_wr`, ibv_post_send(3)), with up to `N` pieces of
/// local memory.
///
/// What is required is given to the constructor, the rest is chained:
///
/// ```
/// use ibnet_verbs::{RemoteAddress, SendRequest, Sge};
///
/// let from = Sge { address: 0x7f00_0000_0000, length: 4096, lkey: 0x1234 };
/// let to = RemoteAddress { address: 0x7e00_0000_0000, rkey: 0x5678 };
/// let request = SendRequest::write_with_immediate(1, Some(from), to, 42).signaled();
/// assert_eq!(request.wr_id(), 1);
/// let gathered = SendRequest::write(2, None, to).with_sges([from, from]);
/// ```
///
/// A request is plain data: nothing happens until it is posted, and it can be kept and posted
/// again. It has its scatter/gather elements inside, so that making a chain needs no heap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendRequest<const N: usize = 1> {
    /// `next` and `sg_list` are set anew at each post, and meaningless in between.
    raw: ibv_send_wr,
    sges: [ibv_sge; N],
}

const _: () = {
    assert!(std::mem::offset_of!(SendRequest, raw) == 0);
    assert!(size_of::<SendRequest>() == size_of::<ibv_send_wr>() + size_of::<ibv_sge>());
};

// SAFETY: the pointers in the request are set by the call that posts it and not followed
// afterwards, so the request is plain data.
unsafe impl<const N: usize> Send for SendRequest<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for SendRequest<N> {}

impl SendRequest {
    /// Writes local memory to the peer's. The peer's application does not notice.
    /// (`IBV_WR_RDMA_WRITE`)
    #[inline]
    pub fn write(wr_id: u64, sge: Option<Sge>, remote: RemoteAddress) -> Self {
        Self::new(wr_id, ibv_wr_opcode::IBV_WR_RDMA_WRITE, sge, remote, 0)
    }

    /// Writes local memory to the peer's, then consumes a receive request of the peer and hands
    /// it `immediate`, given in host byte order. (`IBV_WR_RDMA_WRITE_WITH_IMM`)
    #[inline]
    pub fn write_with_immediate(
        wr_id: u64,
        sge: Option<Sge>,
        remote: RemoteAddress,
        immediate: u32,
    ) -> Self {
        let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
        Self::new(wr_id, opcode, sge, remote, immediate)
    }

    /// Reads the peer's memory into local memory. The peer's application does not notice.
    /// (`IBV_WR_RDMA_READ`)
    #[inline]
    pub fn read(wr_id: u64, sge: Option<Sge>, remote: RemoteAddress) -> Self {
        Self::new(wr_id, ibv_wr_opcode::IBV_WR_RDMA_READ, sge, remote, 0)
    }

    /// Sends local memory into the buffer of a receive request of the peer. (`IBV_WR_SEND`)
    #[inline]
    pub fn send(wr_id: u64, sge: Option<Sge>) -> Self {
        let nowhere = RemoteAddress::default();
        Self::new(wr_id, ibv_wr_opcode::IBV_WR_SEND, sge, nowhere, 0)
    }

    /// Sends local memory into the buffer of a receive request of the peer, and hands it
    /// `immediate`, given in host byte order. (`IBV_WR_SEND_WITH_IMM`)
    #[inline]
    pub fn send_with_immediate(wr_id: u64, sge: Option<Sge>, immediate: u32) -> Self {
        let nowhere = RemoteAddress::default();
        let opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        Self::new(wr_id, opcode, sge, nowhere, immediate)
    }

    /// Makes it another write, in place, which takes a third of the time of building it anew: for
    /// requests that are kept and posted again and again. Its identifier stays, and of its flags
    /// it has only `IBV_SEND_INLINE`, and that as `is_inline` says.
    #[inline]
    pub fn rewrite(
        &mut self,
        sge: Option<Sge>,
        remote: RemoteAddress,
        immediate: Option<u32>,
        is_inline: bool,
    ) {
        self.raw.opcode = match immediate {
            Some(_) => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            None => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        };
        self.raw.__bindgen_anon_1.imm_data = immediate.unwrap_or(0).to_be();
        self.raw.send_flags = if is_inline { INLINE } else { 0 };
        self.raw.num_sge = sge.is_some().into();
        if let Some(sge) = sge {
            self.sges = [sge.into()];
        }
        self.raw.wr.rdma = remote.into();
    }

    #[inline]
    fn new(
        wr_id: u64,
        opcode: ibv_wr_opcode::Type,
        sge: Option<Sge>,
        remote: RemoteAddress,
        immediate: u32,
    ) -> Self {
        let mut raw = ibv_send_wr {
            wr_id,
            opcode,
            num_sge: sge.is_some().into(),
            ..Default::default()
        };
        raw.wr.rdma = remote.into();
        raw.__bindgen_anon_1.imm_data = immediate.to_be();
        Self {
            raw,
            sges: [sge.unwrap_or_default().into()],
        }
    }
}

const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

impl<const N: usize> SendRequest<N> {
    /// The same with these pieces of local memory, one behind the other. At most
    /// [`Capabilities::max_send_sge`](crate::Capabilities::max_send_sge).
    #[must_use]
    pub fn with_sges<const M: usize>(self, sges: [Sge; M]) -> SendRequest<M> {
        let mut raw = self.raw;
        raw.num_sge = M as i32;
        SendRequest {
            raw,
            sges: sges.map(ibv_sge::from),
        }
    }

    /// Asks for a completion also if the request succeeds (`IBV_SEND_SIGNALED`). Without it only
    /// failures complete visibly, unless the queue pair signals everything.
    #[inline]
    #[must_use]
    pub fn signaled(self) -> Self {
        self.with_flag(ibv_send_flags::IBV_SEND_SIGNALED.0)
    }

    /// Copies the data into the request when it is posted (`IBV_SEND_INLINE`): the memory need
    /// not be registered and is free again when the post returns. For writes and sends up to
    /// [`Capabilities::max_inline`](crate::Capabilities::max_inline) bytes.
    #[inline]
    #[must_use]
    pub fn inline(self) -> Self {
        self.with_flag(INLINE)
    }

    /// Starts only after all earlier reads and atomics of the queue pair are complete
    /// (`IBV_SEND_FENCE`).
    #[inline]
    #[must_use]
    pub fn fenced(self) -> Self {
        self.with_flag(ibv_send_flags::IBV_SEND_FENCE.0)
    }

    /// Wakes a peer that asked to be notified of solicited messages only
    /// (`IBV_SEND_SOLICITED`).
    #[inline]
    #[must_use]
    pub fn solicited(self) -> Self {
        self.with_flag(ibv_send_flags::IBV_SEND_SOLICITED.0)
    }

    /// Changes the identifier that the completion will carry.
    #[inline]
    #[must_use]
    pub fn with_wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    /// Changes the identifier of a request that is kept.
    #[inline]
    pub fn set_wr_id(&mut self, wr_id: u64) {
        self.raw.wr_id = wr_id;
    }

    /// Asks for a completion with this identifier, in a request that is kept.
    #[inline]
    pub fn signal_as(&mut self, wr_id: u64) {
        self.raw.wr_id = wr_id;
        self.raw.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
    }

    /// The identifier that the completion will carry.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.raw.wr_id
    }

    #[inline]
    fn with_flag(mut self, flag: u32) -> Self {
        self.raw.send_flags |= flag;
        self
    }
}

// SAFETY: `raw` is the first field (asserted above).
unsafe impl<const N: usize> Request for SendRequest<N> {
    type Raw = ibv_send_wr;

    #[inline]
    unsafe fn link(this: *mut Self, next: *mut Self) {
        // SAFETY: the caller guarantees that `this` can be written to.
        unsafe {
            (*this).raw.next = next.cast();
            (*this).raw.sg_list = (&raw mut (*this).sges).cast();
        }
    }
}

impl<const N: usize> fmt::Debug for SendRequest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.raw.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => "IBV_WR_RDMA_WRITE",
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => "IBV_WR_RDMA_WRITE_WITH_IMM",
            ibv_wr_opcode::IBV_WR_RDMA_READ => "IBV_WR_RDMA_READ",
            ibv_wr_opcode::IBV_WR_SEND => "IBV_WR_SEND",
            _ => "IBV_WR_SEND_WITH_IMM",
        };
        f.debug_struct("SendRequest")
            .field("opcode", &format_args!("{name}"))
            .field("wr_id", &format_args!("{:#x}", self.raw.wr_id))
            .field("flags", &format_args!("{:#x}", self.raw.send_flags))
            .field("sges", &&self.sges[..self.raw.num_sge as usize])
            .finish_non_exhaustive()
    }
}

/// A request for the receive queue (`struct ibv_recv_wr`, ibv_post_recv(3)), with up to `N` pieces
/// of local memory.
///
/// Without any it can take only immediates and messages of 0 bytes, which is what RDMA writes with
/// immediate need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecvRequest<const N: usize = 1> {
    /// `next` and `sg_list` are set anew at each post, and meaningless in between.
    raw: ibv_recv_wr,
    sges: [ibv_sge; N],
}

const _: () = {
    assert!(std::mem::offset_of!(RecvRequest, raw) == 0);
    assert!(size_of::<RecvRequest>() == size_of::<ibv_recv_wr>() + size_of::<ibv_sge>());
};

// SAFETY: the pointers in the request are set by the call that posts it and not followed
// afterwards, so the request is plain data.
unsafe impl<const N: usize> Send for RecvRequest<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for RecvRequest<N> {}

impl RecvRequest {
    /// A receive without a buffer.
    #[inline]
    pub fn new(wr_id: u64) -> Self {
        let raw = ibv_recv_wr {
            wr_id,
            ..Default::default()
        };
        Self {
            raw,
            sges: [ibv_sge::default()],
        }
    }

    /// A receive into this memory. Its region needs
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    #[must_use]
    pub fn with_sge(self, sge: Sge) -> Self {
        self.with_sges([sge])
    }
}

impl<const N: usize> RecvRequest<N> {
    /// The same into these pieces of memory, one behind the other. At most
    /// [`Capabilities::max_recv_sge`](crate::Capabilities::max_recv_sge).
    #[must_use]
    pub fn with_sges<const M: usize>(self, sges: [Sge; M]) -> RecvRequest<M> {
        let mut raw = self.raw;
        raw.num_sge = M as i32;
        RecvRequest {
            raw,
            sges: sges.map(ibv_sge::from),
        }
    }

    /// Changes the identifier that the completion will carry.
    #[inline]
    #[must_use]
    pub fn with_wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    /// The identifier that the completion will carry.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.raw.wr_id
    }
}

// SAFETY: `raw` is the first field (asserted above).
unsafe impl<const N: usize> Request for RecvRequest<N> {
    type Raw = ibv_recv_wr;

    #[inline]
    unsafe fn link(this: *mut Self, next: *mut Self) {
        // SAFETY: the caller guarantees that `this` can be written to.
        unsafe {
            (*this).raw.next = next.cast();
            (*this).raw.sg_list = (&raw mut (*this).sges).cast();
        }
    }
}

impl<const N: usize> fmt::Debug for RecvRequest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvRequest")
            .field("wr_id", &format_args!("{:#x}", self.raw.wr_id))
            .field("sges", &&self.sges[..self.raw.num_sge as usize])
            .finish()
    }
}
