//! The transport: the opened devices of a process and its events thread.

mod connecting;
pub(crate) mod listener;

use std::sync::Arc;

pub use connecting::Connecting;
pub use listener::{ListenOptions, Listener};

use ibnet_verbs::LockedMemory;

use crate::config::Config;
use crate::connect::interface::HandshakeInterface;
use crate::connect::service::Complaints;
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
    inner: Arc<Inner>,
}

/// What connections share. The order of the fields is the order of teardown.
pub(crate) struct Inner {
    pub(crate) events: EventThread,
    pub(crate) nics: Nics,
    left_out: Vec<String>,
    pub(crate) complaints: Complaints,
    pub(crate) handshake_interface: HandshakeInterface,
    pub(crate) config: Config,
}

#[cfg(test)]
impl Inner {
    pub(crate) fn without_devices(config: Config) -> Arc<Self> {
        let events = EventThread::start(config.return_async_events);
        Arc::new(Self {
            events: events.expect("an events thread"),
            nics: Nics::new(&[], config.merge_nics),
            left_out: Vec::new(),
            complaints: Complaints::default(),
            handshake_interface: HandshakeInterface::default(),
            config,
        })
    }
}

/// What a connecting end may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Traffic class of the packets, unless [`Config::traffic_class`] says otherwise; on InfiniBand also
    /// their service level if it is 0 to 15, unless [`Config::service_level`] says otherwise.
    pub traffic_class: Option<u8>,
    /// Waiting for a send costs no processor time, and sends can be [awaited](crate::ops::future): the
    /// devices tell of completions, and the receiver of what it announces. Each of these costs an
    /// interrupt, so whoever polls all the time goes without.
    pub notify: bool,
}

impl ConnectOptions {
    /// Sets [`traffic_class`](Self#structfield.traffic_class).
    #[must_use]
    pub fn traffic_class(mut self, traffic_class: Option<u8>) -> Self {
        self.traffic_class = traffic_class;
        self
    }

    /// Sets [`notify`](Self#structfield.notify).
    #[must_use]
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }
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
        // Before anything is registered, or it has no effect (pitfall 67). Not where the kernel
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
            inner: Arc::new(Inner {
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
        self.inner.events.check_process().is_err()
    }

    /// The devices, in the order in which the other functions count them: first the physical ones,
    /// each a port of an RDMA device, then those that [`merge`](Self::merge) made. A device never
    /// changes its place.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.inner.nics.infos()
    }

    /// One line for each device or port that cannot be used or was not asked for, with the reason.
    pub fn left_out(&self) -> &[String] {
        &self.inner.left_out
    }

    /// What would be used now of each member of device `device`, and what is thought of every
    /// entry of its GID table.
    ///
    /// # Errors
    /// No such device, or a port that cannot be asked.
    pub fn port_reports(&self, device: usize) -> Result<Vec<PortReport>, Error> {
        let nic = self.inner.nics.get(device)?;
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
        self.inner.nics.merge(devices)
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
        self.inner.events.check_process()?;
        let nic = self.inner.nics.get(device)?;
        Listener::new(Arc::clone(&self.inner), nic, options)
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
        self.inner.events.check_process()?;
        let nic = self.inner.nics.get(device)?;
        let Inner {
            complaints, config, ..
        } = &*self.inner;
        complaints.tell(config, nic.link(), options.traffic_class);
        Connecting::new(Arc::clone(&self.inner), nic, handle, options)
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
