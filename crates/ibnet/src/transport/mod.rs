//! The transport: the opened devices of a process and its events thread.

mod connecting;
pub(crate) mod listener;

use std::fmt;
use std::sync::Arc;

pub use connecting::Connecting;
pub use listener::{Accept, Listener};

use ibnet_verbs::LockedMemory;

use crate::config::Config;
use crate::connect::interface::HandshakeInterface;
use crate::connect::options::{ConnectOptions, ListenOptions};
use crate::connect::service::Complaints;
use crate::connect::shared::Shared;
use crate::device::nic::Nics;
use crate::device::{DeviceInfo, Found, PortReport, discover};
use crate::error::Error;
use crate::events::EventThread;
use crate::wire::handle::Handle;

/// The devices of this process, opened and ready for connections.
///
/// Clones share them. Listeners and connections keep them open; when the last of all these is
/// gone, the events thread is joined and the devices are closed.
///
/// A child that is forked afterwards may drop what it inherited, which disturbs nothing of the
/// parent; what it calls on it is [`Error::Forked`]. It can open a transport of its own. Where the kernel
/// does not copy pinned pages on fork (before 5.12), the child does not have the memory that was
/// registered.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<Shared>,
}

impl Transport {
    /// Loads libibverbs and opens the devices that `config` admits.
    ///
    /// # Errors
    /// [`Error::Config`] for a field out of range; [`Error::LibraryMissing`] or [`Error::NoDevices`], each
    /// with its reason; or what the system said.
    pub fn open(config: Config) -> Result<Self, Error> {
        let library = match &config.library {
            Some(path) => ibnet_verbs::Library::load_from(path),
            None => ibnet_verbs::Library::load(),
        };
        Self::with_library(library.map_err(Error::LibraryMissing)?, config)
    }

    /// Opens the devices of `library` that `config` admits.
    ///
    /// # Errors
    /// [`Error::Config`] for a field out of range, [`Error::NoDevices`] with its reason, or what the system
    /// said.
    pub fn with_library(library: ibnet_verbs::Library, config: Config) -> Result<Self, Error> {
        config.check()?;
        // Before anything is registered, or it has no effect. Not where the kernel
        // copies pinned pages: older libibverbs then keep registered memory out of children all the
        // same, which splits a mapping for each registration and ends a child that reads it.
        if !library.copies_on_fork()
            && let Err(error) = library.init_fork()
        {
            tracing::warn!(%error, "forked children may disturb registered memory");
        }
        let events = EventThread::start(config.return_async_events)?;
        let Found { devices, left_out } = discover(&library, &config, &events)?;
        let handshake_interface = HandshakeInterface::default();
        let handshake = match handshake_interface.to_listen_on(&config) {
            Ok((local, _)) => format!("over {} {}", local.interface, local.address.ip()),
            // No error before one is needed.
            Err(error) => format!("impossible: {error}"),
        };
        for (index, device) in devices.iter().enumerate() {
            tracing::info!("[{index}] {}", device.describe(&handshake));
        }
        warn_of_memlock();
        Ok(Self {
            shared: Arc::new(Shared {
                events,
                nics: Nics::new(&devices, config.merge_nics),
                left_out,
                complaints: Complaints::default(),
                handshake_interface,
                config,
            }),
        })
    }

    /// Whether this process is a forked child of the one that opened the devices. Then nothing can be done with
    /// them, but a transport of its own can be opened.
    pub fn is_inherited(&self) -> bool {
        self.shared.events.check_process().is_err()
    }

    /// The devices, in the order in which the other functions count them: first the physical ones,
    /// each a port of an RDMA device, then those that [`merge`](Self::merge) made. A device never
    /// changes its place.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.shared.nics.infos()
    }

    /// The device with this name, as an index into [`devices`](Self::devices): `mlx5_0`, `mlx5_0:1`
    /// with its port, or the name of a virtual device. Of several ports the first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the names that there are.
    pub fn device(&self, name: &str) -> Result<usize, Error> {
        let devices = self.devices();
        let is_it = |device: &DeviceInfo| device.name == name || device.label() == name;
        devices.iter().position(is_it).ok_or_else(|| {
            let names: Vec<String> = devices.iter().map(DeviceInfo::label).collect();
            let text = format!("there is no device {name}; there are {}", names.join(", "));
            Error::InvalidArgument(text)
        })
    }

    /// One line for each device or port that cannot be used or was not asked for, with the reason.
    pub fn left_out(&self) -> &[String] {
        &self.shared.left_out
    }

    /// What would be used now of each member of device `device`, and what is thought of every
    /// entry of its GID table.
    ///
    /// # Errors
    /// No such device, or a port that cannot be asked.
    pub fn port_reports(&self, device: usize) -> Result<Vec<PortReport>, Error> {
        let nic = self.shared.nics.get(device)?;
        nic.members().iter().map(|member| member.report()).collect()
    }

    /// Makes one virtual device of several physical ones, and gives its index. A connection of
    /// it uses all of them.
    ///
    /// Named twice is named once. A device made of a single one is that one, and the same set
    /// as before, in whatever order, is the same virtual device as before: NCCL asks anew for each
    /// communicator. The members keep the order in which they were first named; they can still be
    /// used by themselves.
    ///
    /// Members should be alike: those of different speed or vendor are accepted with a warning.
    ///
    /// # Errors
    /// [`Error::Unmergeable`] for no device or more than 8, an index without a device, a virtual
    /// member, different link layers, or more than one device with [`Config::merge_nics`] off. Nothing
    /// is changed then.
    pub fn merge(&self, devices: &[usize]) -> Result<usize, Error> {
        self.shared.nics.merge(devices)
    }

    /// Waits for peers that will send to device `device`.
    ///
    /// # Errors
    /// No such device, no socket to listen on, or [`Error::Forked`].
    pub fn listen(&self, device: usize) -> Result<Listener, Error> {
        self.listen_with(device, ListenOptions::default())
    }

    /// As [`listen`](Self::listen), for connections as `options` say.
    ///
    /// # Errors
    /// As for [`listen`](Self::listen).
    pub fn listen_with(&self, device: usize, options: ListenOptions) -> Result<Listener, Error> {
        self.shared.events.check_process()?;
        let nic = self.shared.nics.get(device)?;
        Listener::new(Arc::clone(&self.shared), nic, options)
    }

    /// Begins to connect device `device` to the listener that gave out `handle`.
    ///
    /// # Errors
    /// No such device, no socket to connect with, or [`Error::Forked`].
    pub fn connect(
        &self,
        device: usize,
        handle: &Handle,
        options: ConnectOptions,
    ) -> Result<Connecting, Error> {
        self.shared.events.check_process()?;
        let nic = self.shared.nics.get(device)?;
        let Shared {
            complaints, config, ..
        } = &*self.shared;
        complaints.tell(config, nic.link(), options.traffic_class);
        Connecting::new(Arc::clone(&self.shared), nic, handle, options)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.devices().into_iter().map(|device| device.name);
        f.debug_struct("Transport")
            .field("devices", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Registration fails once this much memory is pinned; users learn of it here rather than then.
fn warn_of_memlock() {
    const ENOUGH: u64 = 1 << 30;
    let limit = LockedMemory::of_this_process().limit;
    if let Some(bytes) = limit.filter(|bytes| *bytes < ENOUGH) {
        tracing::info!(
            "the limit of locked memory is {} KiB; registrations beyond it fail (ulimit -l \
             unlimited lifts it)",
            bytes / 1024
        );
    }
}
