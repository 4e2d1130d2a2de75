//! [`FabricBuilder`]: from descriptions of devices to a fabric.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use ibnet_verbs::{Gid, GidType, LinkLayer};

use crate::engine::device::{Device, Port};
use crate::engine::regions::Regions;
use crate::engine::slab::Slab;
use crate::engine::timers::Clock;
use crate::engine::{Fork, State};
use crate::fabric::Fabric;
use crate::random::Random;
use crate::shared::Shared;
use crate::slots::{SLOTS, Slot};
use crate::spec::{DeviceSpec, GidSlot, PortSpec, check};
use crate::sysfs::Sysfs;
use crate::table::OptionalFunction;

/// Why a fabric could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The description of a device makes no sense.
    #[error("device {device}: {problem}")]
    Device {
        /// The device.
        device: String,
        /// What is wrong.
        problem: String,
    },
    /// There are as many fabrics in the process as there can be.
    #[error("there are {SLOTS} fabrics already; drop some, with all that was opened on them")]
    TooManyFabrics,
    /// The directory that plays sysfs could not be made.
    #[error("making the sysfs directory failed: {0}")]
    Sysfs(#[source] std::io::Error),
}

/// Describes a fabric. Made by [`Fabric::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct FabricBuilder {
    devices: Vec<DeviceSpec>,
    seed: u64,
    is_stepped: bool,
    traces: bool,
    has_sysfs: bool,
    fork: Fork,
    missing: BTreeSet<OptionalFunction>,
}

impl FabricBuilder {
    pub(crate) fn new() -> Self {
        Self {
            devices: Vec::new(),
            seed: 0,
            is_stepped: false,
            traces: false,
            has_sysfs: false,
            fork: Fork::Unneeded,
            missing: BTreeSet::new(),
        }
    }

    /// Adds a device. Devices are listed in the order in which they were added.
    pub fn device(mut self, device: DeviceSpec) -> Self {
        self.devices.push(device);
        self
    }

    /// Time is virtual and nothing happens by itself: the test takes one step at a time by
    /// [`Fabric::step`], and a generator with this seed chooses which. The same seed and the same
    /// calls give the same run, wherever the memory is that they name.
    pub fn stepped(mut self, seed: u64) -> Self {
        self.is_stepped = true;
        self.seed = seed;
        self
    }

    /// Time is real, and everything happens as soon as it can, within the calls that post and
    /// poll. This is so unless [`stepped`](Self::stepped) is called.
    pub fn free_running(mut self) -> Self {
        self.is_stepped = false;
        self
    }

    /// Keeps a record of everything that happens, for [`Fabric::take_trace`]. It grows until it is
    /// taken.
    pub fn trace(mut self) -> Self {
        self.traces = true;
        self
    }

    /// Makes a directory that looks like sysfs, with the devices' PCI addresses, and lets
    /// `ibdev_path` point there. It is removed with the fabric.
    pub fn sysfs(mut self) -> Self {
        self.has_sysfs = true;
        self
    }

    /// The kernel does not copy pinned pages on fork(2), so that `ibv_fork_init` matters. Unless
    /// this is called, `ibv_is_fork_initialized` says `IBV_FORK_UNNEEDED`. Either way
    /// `ibv_fork_init` gives `EINVAL` if it is called for the first time after memory was
    /// registered; and once it has succeeded, forked children do not get what is registered
    /// (`MADV_DONTFORK`), as with libibverbs 44.
    pub fn fork_matters(mut self) -> Self {
        self.fork = Fork::Disabled;
        self
    }

    /// Plays an older libibverbs, which lacks this function.
    pub fn without(mut self, function: OptionalFunction) -> Self {
        self.missing.insert(function);
        self
    }

    /// Builds the fabric.
    ///
    /// # Errors
    ///
    /// [`BuildError::Device`] for names that are empty, too long or used twice, devices without
    /// ports, values that no device can have (limits that do not fit their fields, an Ethernet port
    /// with a LID, more GIDs than places, and so on), and LIDs that two ports of a network share;
    /// [`BuildError::TooManyFabrics`]; [`BuildError::Sysfs`].
    pub fn build(self) -> Result<Fabric, BuildError> {
        let mut random = Random::new(self.seed);
        let mut names = BTreeSet::new();
        let mut addresses = Addresses::reserve(&self.devices)?;
        let mut devices = Slab::new();
        for (index, spec) in self.devices.into_iter().enumerate() {
            let problem = check::device(&spec).or_else(|| {
                let is_new = names.insert(spec.name.clone());
                (!is_new).then_some("another device has this name")
            });
            if let Some(problem) = problem {
                return Err(BuildError::Device {
                    device: spec.name,
                    problem: problem.to_owned(),
                });
            }
            devices.insert(make_device(spec, index as u64, &mut addresses, &mut random));
        }

        let slot = Slot::take().ok_or(BuildError::TooManyFabrics)?;
        let sysfs = match self.has_sysfs {
            true => Some(make_sysfs(slot.number(), &devices).map_err(BuildError::Sysfs)?),
            false => None,
        };
        let clock = match self.is_stepped {
            true => Clock::Virtual(0),
            false => Clock::Real(Instant::now()),
        };
        let state = State::new(clock, random.next_u64(), devices, self.fork, self.traces);
        let shared = Arc::new(Shared::new(state, sysfs, slot));
        shared.slot.bind(&shared);
        Ok(Fabric::new(shared, self.seed, self.missing))
    }
}

fn make_device(
    spec: DeviceSpec,
    index: u64,
    addresses: &mut Addresses,
    random: &mut Random,
) -> Device {
    // Locally administered, and different for each device.
    let guid = spec
        .guid
        .unwrap_or(0x0200_00ff_fe00_0000 | (index + 1) << 8);
    let ports = spec.ports.iter().zip(1..);
    let ports = ports.map(|(port, number)| {
        let mut gids = match &port.gids {
            Some(gids) => gids.clone(),
            None => addresses.gids(port, guid | number),
        };
        gids.resize(port.gid_table_len, GidSlot::Empty);
        Port {
            spec: port.clone(),
            is_up: port.up,
            lid: addresses.lid(port),
            gids,
            cut: None,
        }
    });
    Device {
        guid,
        system_guid: spec.system_guid.unwrap_or(guid),
        is_removed: false,
        ports: ports.collect(),
        regions: Regions::new(random.next_u32()),
        spec,
    }
}

fn make_sysfs<K: crate::engine::slab::Key>(
    number: usize,
    devices: &Slab<K, Device>,
) -> std::io::Result<Sysfs> {
    let sysfs = Sysfs::create(number)?;
    for (_, device) in devices.iter() {
        sysfs.add(device)?;
    }
    Ok(sysfs)
}

/// Addresses that are in use, and those that are given to ports which were told none.
struct Addresses {
    /// Networks and LIDs.
    lids: BTreeSet<(u32, u16)>,
    hosts: u32,
}

impl Addresses {
    /// Notes all LIDs that were asked for.
    fn reserve(devices: &[DeviceSpec]) -> Result<Self, BuildError> {
        let mut lids = BTreeSet::new();
        for device in devices {
            for port in device.ports.iter().filter(|port| is_infiniband(port)) {
                let Some(lid) = port.lid else { continue };
                let number = 1_u16 << port.lmc.min(7);
                let first = lid & !(number - 1);
                for lid in first..first.saturating_add(number) {
                    if !lids.insert((port.network, lid)) {
                        return Err(BuildError::Device {
                            device: device.name.clone(),
                            problem: format!(
                                "another port of network {} has LID {lid:#x}",
                                port.network
                            ),
                        });
                    }
                }
            }
        }
        Ok(Self { lids, hosts: 0 })
    }

    fn lid(&mut self, port: &PortSpec) -> u16 {
        if !is_infiniband(port) {
            return 0;
        }
        port.lid.unwrap_or_else(|| {
            let mut free = (1..0xc000).filter(|&lid| !self.lids.contains(&(port.network, lid)));
            // A fabric has far fewer ports than there are LIDs.
            let lid = free.next().unwrap_or(1);
            self.lids.insert((port.network, lid));
            lid
        })
    }

    /// The GID table that the kernel makes by itself.
    fn gids(&mut self, port: &PortSpec, guid: u64) -> Vec<GidSlot> {
        const LINK_LOCAL: u64 = 0xfe80 << 48;
        if is_infiniband(port) {
            return vec![GidSlot::infiniband(LINK_LOCAL, guid)];
        }
        self.hosts += 1;
        let bits = u128::from(LINK_LOCAL) << 64 | u128::from(guid);
        let link_local = Gid::from(Ipv6Addr::from_bits(bits));
        let [_, _, high, low] = self.hosts.to_be_bytes();
        // Networks beyond 255 share their numbers, but stay apart.
        let address = Ipv4Addr::new(10, port.network as u8, high, low);
        vec![
            GidSlot::of_type(link_local, GidType::RoceV1),
            GidSlot::of_type(link_local, GidType::RoceV2),
            GidSlot::roce_v1(address),
            GidSlot::roce_v2(address),
        ]
    }
}

fn is_infiniband(port: &PortSpec) -> bool {
    port.link_layer != LinkLayer::Ethernet
}
