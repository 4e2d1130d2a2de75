//! [`End`] and [`Pair`]: two ends of a connection, each with its own memory, domain and queues.

use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, Error, EventType, GidTableEntry,
    GidType, GlobalRoute, InitAttributes, LinkLayer, MemoryRegion, Mtu, PostError,
    ProtectionDomain, QueuePair, QueuePairOptions, QueuePairState, ReadyToReceive, ReadyToSend,
    RecvRequest, RemoteAddress, SendRequest, Sge, Sysfs,
};

use super::memory::Memory;
use super::stage::Stage;
use super::wait::{event_about, wait_a_moment_until};
use crate::behaviour::{Failure, Outcome};

/// The port that is used of each device.
pub(crate) const PORT: u8 = 1;

/// How long the memory of an end is, in bytes.
pub(crate) const SIZE: usize = 64 << 10;

/// What an end is made with, and how it is connected.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) elements: u32,
    pub(crate) inline: u32,
    pub(crate) cq: u32,
    pub(crate) signal_all: bool,
    /// What the peer may do through the queue pair.
    pub(crate) access: Access,
    /// What the peer may do with the memory.
    pub(crate) region_access: Access,
    pub(crate) mtu: Mtu,
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// Reads under way at once.
    pub(crate) reads: u8,
    /// In place of the peer's number.
    pub(crate) remote_qp: Option<u32>,
    /// In place of the peer's sequence number.
    pub(crate) remote_psn: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            send_wr: 8,
            recv_wr: 8,
            elements: 2,
            inline: 64,
            cq: 64,
            signal_all: false,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            region_access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            mtu: Mtu::MTU_1024,
            // Soon goes round.
            psn: 0xff_fffd,
            // 268 ms: a busy machine may take its time.
            timeout: 16,
            retries: 7,
            rnr_retries: 7,
            reads: 4,
            remote_qp: None,
            remote_psn: None,
        }
    }
}

impl Setup {
    /// Gives up after a few milliseconds: for peers that do not answer.
    pub(crate) fn impatient() -> Self {
        Self {
            // 8 ms
            timeout: 11,
            retries: 1,
            ..Self::default()
        }
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) region: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    pub(crate) setup: Setup,
    // After the region.
    pub(crate) memory: Memory,
}

impl End {
    pub(crate) fn new(context: &Context, setup: Setup) -> Result<Self, Failure> {
        let send_cq = context.create_cq(setup.cq)?;
        let recv_cq = context.create_cq(setup.cq)?;
        Self::with_queues(context, setup, send_cq, recv_cq)
    }

    pub(crate) fn with_queues(
        context: &Context,
        setup: Setup,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
    ) -> Result<Self, Failure> {
        let pd = context.allocate_pd()?;
        let memory = Memory::new(SIZE)?;
        // SAFETY: the memory is kept longer than the region.
        let region = unsafe { pd.register(memory.as_ptr(), SIZE, setup.region_access) }?;
        let qp = pd.create_qp(&QueuePairOptions {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            max_send_wr: setup.send_wr,
            max_recv_wr: setup.recv_wr,
            max_send_sge: setup.elements,
            max_recv_sge: setup.elements,
            max_inline: setup.inline,
            signal_all: setup.signal_all,
        })?;
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            region,
            pd,
            context: context.clone(),
            setup,
            memory,
        })
    }

    pub(crate) fn sge(&self, at: usize, length: usize) -> Sge {
        Sge {
            address: self.region.address() + at as u64,
            length: length as u32,
            lkey: self.region.lkey(),
        }
    }

    pub(crate) fn remote(&self, at: usize) -> RemoteAddress {
        RemoteAddress {
            address: self.region.address() + at as u64,
            rkey: self.region.rkey(),
        }
    }

    pub(crate) fn send(&self, requests: &mut [SendRequest]) -> Result<(), PostError> {
        // SAFETY: behaviours keep the memory of what they post until the queue pair is gone, and
        // touch it through pointers only.
        unsafe { self.qp.post_send(requests) }
    }

    pub(crate) fn receive(&self, requests: &mut [RecvRequest]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(requests) }
    }

    /// Posts receives without buffers.
    pub(crate) fn receive_immediates(
        &self,
        wr_ids: impl IntoIterator<Item = u64>,
    ) -> Result<(), PostError> {
        let mut requests: Vec<_> = wr_ids.into_iter().map(RecvRequest::new).collect();
        self.receive(&mut requests)
    }

    pub(crate) fn state(&self) -> Result<Outcome, Failure> {
        Ok(Outcome::State(self.qp.state()?))
    }

    /// Waits until the queue pair is in a state, and gives the one that it is in at last: a peer
    /// may fail a moment after it has answered.
    pub(crate) fn state_at_last(&self, state: QueuePairState) -> Result<Outcome, Failure> {
        wait_a_moment_until(|| Ok(self.qp.state()? == state))?;
        self.state()
    }

    /// An event about the queue pair, other than that its connection came into being.
    pub(crate) fn event(&self) -> Result<Outcome, Failure> {
        event_about(&self.context, |event| {
            event.is_qp(&self.qp) && event.kind() != EventType::COMM_EST
        })
    }

    pub(crate) fn init_attributes(&self) -> InitAttributes {
        InitAttributes {
            port: PORT,
            pkey_index: 0,
            access: self.setup.access,
        }
    }

    pub(crate) fn ready_to_receive(&self, peer: &Self) -> Result<ReadyToReceive, Failure> {
        Ok(ReadyToReceive {
            mtu: self.setup.mtu,
            remote_qp: self.setup.remote_qp.unwrap_or_else(|| peer.qp.number()),
            remote_psn: self.setup.remote_psn.unwrap_or(peer.setup.psn),
            max_dest_rd_atomic: self.setup.reads,
            // 0.64 ms
            min_rnr_timer: 12,
            address: AddressVector {
                port: PORT,
                service_level: 0,
                destination: self.way_to(peer)?,
            },
        })
    }

    pub(crate) fn ready_to_send(&self) -> ReadyToSend {
        ReadyToSend {
            psn: self.setup.psn,
            timeout: self.setup.timeout,
            retry_count: self.setup.retries,
            rnr_retry: self.setup.rnr_retries,
            max_rd_atomic: self.setup.reads,
        }
    }

    fn way_to(&self, peer: &Self) -> Result<Destination, Failure> {
        let port = peer.context.port(PORT)?;
        if port.link_layer == LinkLayer::InfiniBand {
            return Ok(Destination::infiniband(port.lid, None));
        }
        Ok(Destination::global(GlobalRoute {
            dgid: peer.address()?.gid,
            sgid_index: self.address()?.index.try_into()?,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }))
    }

    /// The entry of the GID table to be used with RoCE. A link-local address is not always
    /// reachable from itself; an IPv4 address is.
    fn address(&self) -> Result<GidTableEntry, Failure> {
        let entries = self.context.gid_table(PORT, &Sysfs::default())?;
        let usable = entries
            .into_iter()
            .filter(|entry| entry.unreadable.is_none())
            .filter(|entry| entry.gid_type == Some(GidType::RoceV2));
        let best = usable.max_by_key(|entry| entry.gid.ipv4_mapped().is_some());
        Ok(best.ok_or("no RoCE version 2 address")?)
    }

    pub(crate) fn to_init(&self) -> Result<(), Error> {
        self.qp.to_init(&self.init_attributes())
    }

    pub(crate) fn to_rtr(&self, peer: &Self) -> Result<(), Failure> {
        Ok(self.qp.to_rtr(&self.ready_to_receive(peer)?)?)
    }

    pub(crate) fn to_rts(&self) -> Result<(), Error> {
        self.qp.to_rts(&self.ready_to_send())
    }

    /// All the way from RESET to RTS.
    pub(crate) fn connect(&self, peer: &Self) -> Result<(), Failure> {
        self.to_init()?;
        self.to_rtr(peer)?;
        Ok(self.to_rts()?)
    }
}

/// Two ends.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
}

impl Pair {
    /// Two connected ends.
    pub(crate) fn new(stage: &Stage) -> Result<Self, Failure> {
        Self::with(stage, Setup::default(), Setup::default())
    }

    /// Two connected ends, made as is said.
    pub(crate) fn with(stage: &Stage, a: Setup, b: Setup) -> Result<Self, Failure> {
        let pair = Self::unconnected(stage, a, b)?;
        pair.connect()?;
        Ok(pair)
    }

    /// Two ends in RESET.
    pub(crate) fn unconnected(stage: &Stage, a: Setup, b: Setup) -> Result<Self, Failure> {
        Ok(Self {
            a: End::new(&stage.contexts[0], a)?,
            b: End::new(&stage.contexts[1], b)?,
        })
    }

    pub(crate) fn connect(&self) -> Result<(), Failure> {
        self.a.connect(&self.b)?;
        self.b.connect(&self.a)
    }
}
