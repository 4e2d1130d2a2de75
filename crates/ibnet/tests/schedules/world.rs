//! A random fabric, and a connection on it.

use std::time::{Duration, Instant};

use ibnet::{
    Config, ConnectOptions, HcaFilter, InterfaceFilter, RecvConnection, SendConnection, Transport,
};
use simverbs::{DeviceSpec, Fabric, Limits, PortSpec, Random};
use verbs::Mtu;

pub(crate) struct World {
    pub(crate) fabric: Fabric,
    sender: &'static str,
    receiver: &'static str,
}

impl World {
    /// One device or two, InfiniBand or RoCE, with limits that make the transport take other ways:
    /// no room inline, small messages, different MTUs.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_infiniband = random.chance(3);
        let mut device = |name: &str, lid: u16| {
            let mtus = [Mtu::MTU_256, Mtu::MTU_1024, Mtu::MTU_4096];
            let port = if is_infiniband {
                PortSpec::infiniband().lid(lid, 0)
            } else {
                PortSpec::roce()
            };
            let port = port
                .mtu(mtus[random.index(mtus.len())], Mtu::MTU_4096)
                .max_message([512, 1000, 4096, 1 << 23][random.index(4)]);
            let limits = Limits {
                max_inline: [0, 32, 64, 256][random.index(4)],
                ..Limits::default()
            };
            let spec = if is_infiniband {
                DeviceSpec::infiniband(name)
            } else {
                DeviceSpec::roce(name)
            };
            spec.ports([port]).limits(limits)
        };
        let devices = [device("sim0", 1), device("sim1", 2)];
        let fabric = devices
            .into_iter()
            .fold(
                Fabric::builder().stepped(seed).trace(),
                |builder, device| builder.device(device),
            )
            .build()
            .unwrap();
        let (sender, receiver) = if random.chance(2) {
            ("sim0", "sim1")
        } else {
            ("sim0", "sim0")
        };
        Self {
            fabric,
            sender,
            receiver,
        }
    }

    fn transport(&self, device: &str) -> Transport {
        let mut config = Config::default();
        config.hca = HcaFilter::parse(&format!("={device}")).unwrap();
        config.interfaces = InterfaceFilter::parse("=lo");
        Transport::with_library(self.fabric.library(), config).unwrap()
    }

    pub(crate) fn connect(&self) -> (SendConnection, RecvConnection) {
        let (from, to) = (self.transport(self.sender), self.transport(self.receiver));
        let mut listener = to.listen(0).unwrap();
        let mut connecting = from
            .connect(0, &listener.handle(), ConnectOptions::default())
            .unwrap();
        let (mut sending, mut receiving) = (None, None);
        let deadline = Instant::now() + Duration::from_secs(30);
        while sending.is_none() || receiving.is_none() {
            assert!(Instant::now() < deadline, "the handshake hangs");
            if sending.is_none() {
                sending = connecting.poll().unwrap();
            }
            if receiving.is_none() {
                receiving = listener.poll_accept().unwrap();
            }
        }
        (sending.unwrap(), receiving.unwrap())
    }

    /// Call when everything was closed.
    pub(crate) fn expect_nothing_left(&self) {
        let left = self.fabric.live_objects();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}
