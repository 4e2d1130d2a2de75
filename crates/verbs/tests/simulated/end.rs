//! [`End`]: one end of a connection on simulated devices.

use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, FabricBuilder};
use ibnet_verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint, Library,
    LinkLayer, QueuePair, QueuePairOptions, RecvRequest, SendRequest, WorkCompletion,
};

pub(crate) const SIZE: usize = 4096;

/// One end: a queue pair of up to four elements in each request, and a buffer for all to write to.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
    pub(crate) buffer: Buffer,
    pub(crate) options: ConnectOptions,
}

impl End {
    pub(crate) fn new(context: &Context) -> Self {
        let pd = context.allocate_pd().unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq_with_channel(16, &channel).unwrap();
        let options = QueuePairOptions {
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            ..QueuePairOptions::new(&cq, 8)
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let connect = ConnectOptions::default().access(access - Access::LOCAL_WRITE);
        let connect = match context.port(1).unwrap().link_layer {
            // The usual table of a simulated port: its IPv4 address by RoCE version 2.
            LinkLayer::Ethernet => connect.gid_index(3),
            _ => connect,
        };
        Self {
            qp: pd.create_qp(&options).unwrap(),
            cq,
            channel,
            buffer: pd.allocate(SIZE, access).unwrap(),
            options: connect,
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint(&self.options).unwrap()
    }

    pub(crate) fn send<const N: usize>(&self, request: SendRequest<N>) {
        // SAFETY: the buffers are not looked at before the completions.
        unsafe { self.qp.post_send(&mut [request]) }.unwrap();
    }

    pub(crate) fn receive<const N: usize>(&self, request: RecvRequest<N>) {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(&mut [request]) }.unwrap();
    }

    /// The next completion, waited for.
    pub(crate) fn completion(&self) -> WorkCompletion {
        let mut batch = [WorkCompletion::default(); 1];
        loop {
            self.cq.request_notification(false).unwrap();
            if let [completion] = self.cq.poll(&mut batch).unwrap() {
                return *completion;
            }
            let limit = Some(Duration::from_secs(20));
            let event = self.channel.wait(limit).unwrap().expect("a completion");
            assert_eq!(event.cq_id(), self.cq.id());
        }
    }

    pub(crate) fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.buffer.read(offset, &mut bytes);
        bytes
    }
}

/// Two adapters of this kind.
pub(crate) fn two(kind: fn(&'static str) -> DeviceSpec) -> Fabric {
    let devices = ["sim0", "sim1"].map(kind).into_iter();
    devices
        .fold(Fabric::builder(), FabricBuilder::device)
        .build()
        .unwrap()
}

/// Two ends, on the first and the second device, that have told each other their endpoints as text.
pub(crate) fn connected(library: &Library) -> (End, End) {
    let devices = library.devices().unwrap();
    let [a, b] = [0, 1].map(|index| End::new(&devices[index].open().unwrap()));
    let (of_a, of_b) = (a.endpoint().to_string(), b.endpoint().to_string());
    a.qp.connect(&of_b.parse().unwrap(), &a.options).unwrap();
    b.qp.connect(&of_a.parse().unwrap(), &b.options).unwrap();
    (a, b)
}
