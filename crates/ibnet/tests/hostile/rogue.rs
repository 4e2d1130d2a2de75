//! A peer by hand: its socket, its device and its queue pair.

use std::cell::UnsafeCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use ibnet::{ConnectOptions, Connecting, Error, RecvConnection, SendConnection, Transport, Wait};
use ibnet_simverbs::Fabric;
use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, GidType, GlobalRoute,
    InitAttributes, MemoryRegion, Mtu, ProtectionDomain, QueuePair, QueuePairOptions,
    ReadyToReceive, ReadyToSend, RecvRequest, RemoteAddress, SendRequest, Sge, Sysfs, WcStatus,
    WorkCompletion,
};

use crate::stage::{Besieged, handle, until};
use crate::wire::{
    ENDPOINT, ETHERNET, Endpoint, HELLO, Hello, Offer, PLAN, Party, Path, Plan, QueuePairEnd,
    READY, Ready, RemoteArea, Wire, frame, take,
};

/// A stream on which anything can be said.
pub(crate) struct Line {
    stream: TcpStream,
    heard: Vec<u8>,
    has_ended: bool,
}

impl Line {
    pub(crate) fn call(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            heard: Vec::new(),
            has_ended: false,
        }
    }

    /// The own address, which is the peer's name for us.
    pub(crate) fn name(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        // What the peer no longer wants to hear is lost.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn hang_up(&mut self, how: Shutdown) {
        let _ = self.stream.shutdown(how);
    }

    /// Everything heard so far and not taken.
    pub(crate) fn listen(&mut self) -> &mut Vec<u8> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(count) => {
                    self.heard.extend_from_slice(&buffer[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.has_ended = true,
            }
            return &mut self.heard;
        }
    }

    pub(crate) fn hear<T: Wire>(&mut self, kind: u64) -> Option<T> {
        take(kind, self.listen())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.listen();
        self.has_ended
    }
}

/// A device of the attacker.
pub(crate) struct Device {
    pd: ProtectionDomain,
    context: Context,
    offer: Offer,
}

impl Device {
    pub(crate) fn open(fabric: &Fabric) -> Self {
        let devices = fabric.library().devices().unwrap();
        let device = devices.iter().find(|device| device.name() == "evil");
        let context = device.unwrap().open().unwrap();
        let gids = context.gid_table(1, &Sysfs::default()).unwrap();
        let is_usual = |gid: &&ibnet_verbs::GidTableEntry| {
            gid.gid_type == Some(GidType::RoceV2) && gid.gid.to_ipv6().to_ipv4_mapped().is_some()
        };
        let gid = gids.iter().find(is_usual);
        let gid = gid.unwrap();
        let offer = Offer {
            name: b"evil".to_vec(),
            port: 1,
            link: ETHERNET,
            lid: 0,
            gid: gid.gid.0,
            gid_index: gid.index as u8,
            prefix_length: None,
            roce_version: Some(2),
            rail: None,
            mtu: 1024,
            max_message: 1 << 30,
            reorders: 0,
        };
        Self {
            pd: context.allocate_pd().unwrap(),
            context,
            offer,
        }
    }

    pub(crate) fn party(&self) -> Party {
        Party {
            host: b"evilhost".to_vec(),
            process: 666,
            devices: vec![self.offer.clone()],
        }
    }

    /// A good greeting for a listener.
    pub(crate) fn hello(&self, cookie: [u8; 16]) -> Hello {
        Hello {
            cookie,
            party: self.party(),
            queue_pairs: 1,
            service_level: 0,
            traffic_class: 0,
            notify: 0,
        }
    }
}

/// Bytes of the attacker's memory. The ring lies at its beginning, what it writes elsewhere from
/// [`SCRATCH`] on.
const MEMORY: usize = 32 * 1024;
const SCRATCH: usize = 16 * 1024;

#[repr(C, align(4096))]
struct Memory([u8; MEMORY]);

/// A queue pair and memory of the attacker.
pub(crate) struct End {
    queue_pair: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    // After the region, whose memory it is.
    memory: Box<UnsafeCell<Memory>>,
}

impl End {
    pub(crate) fn new(device: &Device) -> Self {
        let memory = Box::new(UnsafeCell::new(Memory([0; MEMORY])));
        let cq = device.context.create_cq(64).unwrap();
        let options = QueuePairOptions {
            send_cq: &cq,
            recv_cq: &cq,
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            signal_all: true,
        };
        let queue_pair = device.pd.create_qp(&options).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // SAFETY: the memory is freed after the region.
        let region = unsafe { device.pd.register(memory.get().cast(), MEMORY, access) }.unwrap();
        let init = InitAttributes {
            port: 1,
            pkey_index: 0,
            access: Access::REMOTE_WRITE,
        };
        queue_pair.to_init(&init).unwrap();
        Self {
            queue_pair,
            cq,
            region,
            memory,
        }
    }

    pub(crate) fn end(&self) -> QueuePairEnd {
        QueuePairEnd {
            number: self.queue_pair.number().into(),
            psn: 9,
            ece: None,
        }
    }

    pub(crate) fn area(&self) -> RemoteArea {
        RemoteArea {
            address: self.memory.get() as u64,
            rkeys: vec![self.region.rkey().into()],
        }
    }

    fn join(&self, device: &Device, peer: &Offer, end: &QueuePairEnd) {
        let destination = Destination::global(GlobalRoute {
            dgid: ibnet_verbs::Gid(peer.gid),
            sgid_index: device.offer.gid_index,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        });
        let to_rtr = ReadyToReceive {
            mtu: Mtu::MTU_1024,
            remote_qp: end.number as u32,
            remote_psn: end.psn as u32,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            address: AddressVector {
                port: 1,
                service_level: 0,
                destination,
            },
        };
        self.queue_pair.to_rtr(&to_rtr).unwrap();
        let to_rts = ReadyToSend {
            psn: 9,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        };
        self.queue_pair.to_rts(&to_rts).unwrap();
        for _ in 0..8 {
            // SAFETY: these receives name no memory.
            unsafe { self.queue_pair.post_recv(&mut [RecvRequest::new(1)]) }.unwrap();
        }
    }

    /// Whatever the peer has written at the beginning of the memory.
    pub(crate) fn read(&self, offset: usize, count: usize) -> Vec<u8> {
        assert!(offset + count <= SCRATCH);
        let start = self.memory.get().cast::<u8>().wrapping_add(offset);
        // SAFETY: the bytes lie in the memory; a volatile read tolerates the device's writes.
        (0..count)
            .map(|at| unsafe { start.add(at).read_volatile() })
            .collect()
    }

    /// `bytes`, laid where the device can fetch them.
    fn lay(&self, bytes: &[u8]) -> Option<Sge> {
        let scratch = self.memory.get().cast::<u8>().wrapping_add(SCRATCH);
        assert!(bytes.len() <= MEMORY - SCRATCH);
        // SAFETY: the bytes fit into the memory; no request is outstanding, as each is waited for.
        unsafe { scratch.copy_from(bytes.as_ptr(), bytes.len()) };
        (!bytes.is_empty()).then_some(Sge {
            address: scratch as u64,
            length: bytes.len() as u32,
            lkey: self.region.lkey(),
        })
    }

    pub(crate) fn write(&self, bytes: &[u8], address: u64, rkey: u64) -> WcStatus {
        let remote = remote(address, rkey);
        self.post(SendRequest::write(0, self.lay(bytes), remote))
    }

    pub(crate) fn write_with(&self, immediate: u32, bytes: &[u8], to: (u64, u64)) -> WcStatus {
        let (sge, remote) = (self.lay(bytes), remote(to.0, to.1));
        self.post(SendRequest::write_with_immediate(0, sge, remote, immediate))
    }

    pub(crate) fn read_remote(&self, address: u64, rkey: u64) -> WcStatus {
        let sge = self.lay(&[0; 8]);
        self.post(SendRequest::read(0, sge, remote(address, rkey)))
    }

    pub(crate) fn send(&self) -> WcStatus {
        self.post(SendRequest::send(0, None))
    }

    /// Posts a request and waits for its end.
    fn post(&self, request: SendRequest) -> WcStatus {
        // SAFETY: the memory is not touched before the completion below.
        unsafe { self.queue_pair.post_send(&mut [request]) }.unwrap();
        until(|| {
            let mut batch = [WorkCompletion::default()];
            let done = self.cq.poll(&mut batch).unwrap();
            // Receives have another number.
            done.first()
                .filter(|done| done.wr_id() == 0)
                .map(WorkCompletion::status)
        })
    }
}

fn remote(address: u64, rkey: u64) -> RemoteAddress {
    RemoteAddress {
        address,
        rkey: rkey as u32,
    }
}

/// The attacker as the sender of a connection that stands.
pub(crate) struct Sender {
    pub(crate) line: Line,
    pub(crate) end: End,
    /// What the listener told.
    pub(crate) plan: Plan,
    pub(crate) receiving: RecvConnection,
    _device: Device,
}

impl Sender {
    /// Connects to the listener; `spoil` may change what it is told of the own end.
    pub(crate) fn connect(
        besieged: &mut Besieged,
        fabric: &Fabric,
        spoil: impl FnOnce(&mut Endpoint),
    ) -> Self {
        let device = Device::open(fabric);
        let mut line = Line::call(besieged.address());
        line.say(&frame(HELLO, &device.hello(besieged.cookie())));
        let plan: Plan = until(|| {
            assert!(besieged.listener.accept().try_now().unwrap().is_none());
            line.hear(PLAN)
        });
        let end = End::new(&device);
        end.join(&device, &plan.party.devices[0], &plan.queue_pairs[0]);
        let mut endpoint = Endpoint {
            queue_pairs: vec![end.end()],
            ring: end.area(),
        };
        spoil(&mut endpoint);
        line.say(&frame(ENDPOINT, &endpoint));
        let receiving = until(|| besieged.listener.accept().try_now().unwrap());
        until(|| line.hear::<Ready>(READY));
        Self {
            line,
            end,
            plan,
            receiving,
            _device: device,
        }
    }
}

/// The attacker as a listener.
pub(crate) struct Trap {
    pub(crate) socket: TcpListener,
    pub(crate) device: Device,
}

const COOKIE: [u8; 16] = *b"come in, come in";

impl Trap {
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self {
            socket: TcpListener::bind("127.0.0.1:0").unwrap(),
            device: Device::open(fabric),
        }
    }

    /// The victim calls, and has greeted.
    pub(crate) fn lure(&self, victim: &Transport) -> (Connecting, Line, Hello) {
        let handle = handle(self.socket.local_addr().unwrap(), COOKIE);
        let options = ConnectOptions::default();
        let mut connecting = victim.connect(0, &handle, options).unwrap();
        let mut line = Line::new(self.socket.accept().unwrap().0);
        let hello: Hello = until(|| {
            assert!(connecting.try_now().unwrap().is_none());
            line.hear(HELLO)
        });
        assert_eq!(hello.cookie, COOKIE);
        (connecting, line, hello)
    }

    /// A good plan, with the own end of its only path.
    pub(crate) fn plan(&self, end: &End) -> Plan {
        Plan {
            party: self.device.party(),
            paths: vec![Path {
                connector_device: 0,
                listener_device: 0,
                mtu: 1024,
                reorders: 0,
            }],
            queue_pairs: vec![end.end()],
            entry_bytes: 32,
            first_entry: 256,
            size_table: RemoteArea {
                address: end.area().address + SCRATCH as u64 / 2,
                rkeys: end.area().rkeys,
            },
        }
    }
}

/// The attacker as the receiver of a connection that stands.
pub(crate) struct Receiver {
    pub(crate) line: Line,
    pub(crate) end: End,
    /// Where the victim's ring is.
    pub(crate) ring: RemoteArea,
    pub(crate) sending: SendConnection,
}

impl Receiver {
    /// Lets the victim connect; `spoil` may change the plan.
    pub(crate) fn accept(
        trap: &Trap,
        victim: &Transport,
        spoil: impl FnOnce(&mut Plan),
    ) -> Result<Self, Error> {
        let (mut connecting, mut line, hello) = trap.lure(victim);
        let end = End::new(&trap.device);
        let mut plan = trap.plan(&end);
        spoil(&mut plan);
        line.say(&frame(PLAN, &plan));
        let endpoint: Result<Endpoint, Error> = until(|| match connecting.try_now() {
            Ok(_) => line.hear(ENDPOINT).map(Ok),
            Err(error) => Some(Err(error)),
        });
        let endpoint = endpoint?;
        end.join(
            &trap.device,
            &hello.party.devices[0],
            &endpoint.queue_pairs[0],
        );
        line.say(&frame(READY, &Ready {}));
        let sending = until(|| connecting.try_now().unwrap());
        Ok(Self {
            line,
            end,
            ring: endpoint.ring,
            sending,
        })
    }

    /// Writes an entry into the victim's ring, from its description.
    pub(crate) fn announce(&self, entry: &Entry) -> WcStatus {
        let mut bytes = Vec::new();
        bytes.extend(entry.address.to_le_bytes());
        bytes.extend(entry.capacity.to_le_bytes());
        bytes.extend(entry.tag.to_le_bytes());
        bytes.extend([entry.group, entry.position, 0, 0]);
        bytes.extend((entry.rkey as u32).to_le_bytes());
        bytes.extend(entry.id.to_le_bytes());
        let slot = entry.id % 256;
        self.end
            .write(&bytes, self.ring.address + slot * 32, self.ring.rkeys[0])
    }

    /// A good announcement of some of the attacker's memory.
    pub(crate) fn entry(&self, id: u64) -> Entry {
        Entry {
            id,
            address: self.end.area().address,
            capacity: 100,
            tag: 7,
            group: 1,
            position: 0,
            rkey: self.end.area().rkeys[0],
        }
    }
}

/// An announcement.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) address: u64,
    pub(crate) capacity: u32,
    pub(crate) tag: u32,
    pub(crate) group: u8,
    pub(crate) position: u8,
    pub(crate) rkey: u64,
}
