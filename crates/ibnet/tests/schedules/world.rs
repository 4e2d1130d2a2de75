//! A random fabric, and a connection on it.

use std::time::Duration;

use ibnet::{
    Config, ConnectOptions, ListenOptions, PathPolicy, RecvConnection, SendConnection, Transport,
};
use ibnet_simverbs::{DeviceSpec, Fabric, Limits, PortSpec, Random};
use ibnet_verbs::Mtu;

use crate::rig::{self, attempt, expect_nothing_left};

pub(crate) struct World {
    pub(crate) fabric: Fabric,
    sender: End,
    receiver: End,
}

/// One end: its devices and its settings.
struct End {
    devices: Vec<String>,
    config: Config,
    /// It waits rather than polls.
    notify: bool,
}

impl World {
    /// One to four devices at each end, InfiniBand or RoCE, with limits that make the transport
    /// take other ways: no room inline, small messages, shallow queues, different MTUs; and with
    /// settings that differ between the ends.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_infiniband = random.chance(3);
        let are_shallow = random.chance(3);
        let counts = [1, 1, 1, 2, 3, 4];
        let mut names = |side: &str| -> Vec<String> {
            let count = counts[random.index(counts.len())];
            (0..count).map(|index| format!("{side}{index}")).collect()
        };
        let senders = names("s");
        // Sometimes both ends are the same device.
        let is_loop_back = random.chance(4);
        let receivers = if is_loop_back {
            senders.clone()
        } else {
            (0..counts[random.index(counts.len())])
                .map(|index| format!("r{index}"))
                .collect()
        };
        let mut builder = Fabric::builder().stepped(seed).trace();
        let others = receivers.iter().filter(|_| !is_loop_back);
        for (index, name) in senders.iter().chain(others).enumerate() {
            let lid = index as u16 + 1;
            let spec = device(&mut random, name, lid, is_infiniband, are_shallow);
            builder = builder.device(spec);
        }
        Self {
            sender: End {
                config: config(&mut random, &senders),
                devices: senders,
                notify: false,
            },
            receiver: End {
                config: config(&mut random, &receivers),
                devices: receivers,
                notify: false,
            },
            fabric: builder.build().unwrap(),
        }
    }

    /// As [`new`](Self::new), with ends that make queue pairs anew which have failed.
    pub(crate) fn recovering(seed: u64) -> Self {
        let mut world = Self::new(seed);
        for end in [&mut world.sender, &mut world.receiver] {
            end.config.recovery_timeout = Duration::from_secs(60);
        }
        world
    }

    /// Up to eight devices at each end and up to 128 paths, with limits that leave next to no room;
    /// sometimes too little for a connection.
    pub(crate) fn cramped(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_infiniband = random.chance(3);
        let counts = [1, 2, 3, 5, 8];
        let [senders, receivers] = ["s", "r"].map(|side| -> Vec<String> {
            let count = counts[random.index(counts.len())];
            (0..count).map(|index| format!("{side}{index}")).collect()
        });
        let mut builder = Fabric::builder().stepped(seed);
        for (index, name) in senders.iter().chain(&receivers).enumerate() {
            let limits = Limits {
                max_inline: [0, 64, 256][random.index(3)],
                max_qp_wr: [8, 9, 10, 17, 64][random.index(5)],
                max_cqe: 40 + random.below(3000) as u32,
                ..Limits::default()
            };
            let (port, spec) = if is_infiniband {
                let port = PortSpec::infiniband().lid(index as u16 + 1, 0);
                (port, DeviceSpec::infiniband(name))
            } else {
                (PortSpec::roce(), DeviceSpec::roce(name))
            };
            let port = port.max_message([1 << 16, 1 << 31][random.index(2)]);
            builder = builder.device(spec.ports([port]).limits(limits));
        }
        let mut end = |devices: Vec<String>| {
            let mut config = config(&mut random, &devices);
            config.queue_pairs = [1, 2, 16, 128][random.index(4)];
            config.split_data = true;
            config.min_part = Some(128);
            config.first_entry = [0, 0_u64.wrapping_sub(20), (1 << 32) - 20][random.index(3)];
            End {
                devices,
                config,
                notify: random.chance(2),
            }
        };
        Self {
            sender: end(senders),
            receiver: end(receivers),
            fabric: builder.build().unwrap(),
        }
    }

    pub(crate) fn connect(&self) -> Result<(SendConnection, RecvConnection), ibnet::Error> {
        let ((from, sender), (to, receiver)) = (self.open(&self.sender), self.open(&self.receiver));
        let options = ListenOptions::default().notify(self.receiver.notify);
        let mut listener = to.listen_with(receiver, options).unwrap();
        let options = ConnectOptions::default().notify(self.sender.notify);
        let connecting = from.connect(sender, &listener.handle(), options).unwrap();
        let (sending, receiving) = attempt(connecting, &mut listener);
        Ok((sending?, receiving.unwrap()?))
    }

    /// The transport of one end, and its device: a virtual one if it has several.
    fn open(&self, end: &End) -> (Transport, usize) {
        let transport = Transport::with_library(self.fabric.library(), end.config.clone()).unwrap();
        let all: Vec<usize> = (0..end.devices.len()).collect();
        let device = if all.len() == 1 {
            0
        } else {
            transport.merge(&all).unwrap()
        };
        (transport, device)
    }

    pub(crate) fn is_sender_notified(&self) -> bool {
        self.sender.notify
    }

    /// Call when everything was closed.
    pub(crate) fn expect_nothing_left(&self) {
        expect_nothing_left(&self.fabric);
    }
}

fn device(
    random: &mut Random,
    name: &str,
    lid: u16,
    is_infiniband: bool,
    are_shallow: bool,
) -> DeviceSpec {
    let mtus = [Mtu::MTU_256, Mtu::MTU_1024, Mtu::MTU_4096];
    let port = if is_infiniband {
        PortSpec::infiniband().lid(lid, 0)
    } else {
        PortSpec::roce()
    };
    let mut port = port.mtu(mtus[random.index(mtus.len())], Mtu::MTU_4096);
    let usual = Limits::default();
    let mut limits = Limits {
        max_inline: [0, 32, 64, 256][random.index(4)],
        ..usual
    };
    // Many writes for a message, or shallow queues: together they would limit the messages.
    if are_shallow {
        limits.max_qp_wr = [64, 300, usual.max_qp_wr][random.index(3)];
        limits.max_cqe = [512, 2000, usual.max_cqe][random.index(3)];
    } else {
        port = port.max_message([512, 1000, 4096, 1 << 23][random.index(4)]);
    }
    let spec = if is_infiniband {
        DeviceSpec::infiniband(name)
    } else {
        DeviceSpec::roce(name)
    };
    spec.ports([port]).limits(limits)
}

fn config(random: &mut Random, devices: &[String]) -> Config {
    let mut config = rig::config();
    config.hca = format!("={}", devices.join(",")).parse().unwrap();
    config.queue_pairs = [1, 1, 2, 3][random.index(4)];
    config.split_data = random.chance(2);
    config.min_part = [Some(128), Some(1024), None][random.index(3)];
    config.adaptive_routing = [None, Some(false), Some(true)][random.index(3)];
    config.adaptive_routing_threshold = [0, 300, 8192][random.index(3)];
    config.inline = random.chance(2);
    config.ece = random.chance(2);
    if random.chance(2) {
        config.path_policy = PathPolicy::LeastOutstanding;
    }
    config
}
