//! Listening: drives the handshakes of all pending clients over sockets and a device.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use verbs::Access;

use crate::channel::{self, Channel, Input, READ_SIZE};
use crate::connection::{Names, Parts, describe};
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::handle::{Cookie, Handle};
use crate::handshake::acceptor::{Acceptor, Step};
use crate::handshake::connector::Failure;
use crate::handshake::message::{Endpoint, Party, PathPlan, Plan, RemoteArea, printable};
use crate::handshake::plan::{PathDecision, decide};
use crate::interface;
use crate::memory::Area;
use crate::owned::Pause;
use crate::path::{Depths, Path, PathOptions, random_cookie};
use crate::receiver::{
    ANNOUNCE_QUEUE_DEPTH, RECEIVE_QUEUE_DEPTH, ReceiverParts, RecvConnection, post_all_receives,
};
use crate::ring::{self, ENTRIES, MAX_GROUP, SIZE_TABLE_BYTES, Staging};
use crate::transport::{Inner, party};

/// Clients that may be in the middle of a handshake. Beyond it, those that have not shown the
/// cookie make room.
const MAX_PENDING: usize = 256;

/// Waits for peers that want to send to one device. Can be used for any number of connections.
///
/// Strangers, wrong cookies and clients that stall cost it nothing but their own attempt.
pub struct Listener {
    pending: VecDeque<Client>,
    socket: TcpListener,
    handle: Handle,
    cookie: Cookie,
    device: Arc<Device>,
    inner: Arc<Inner>,
}

/// A client in the middle of its handshake.
struct Client {
    built: Option<Built>,
    machine: Acceptor,
    channel: Channel,
    device: Arc<Device>,
    inner: Arc<Inner>,
}

/// The own ends of the paths to one client.
struct Built {
    paths: Vec<Path>,
    cq: verbs::CompletionQueue,
    staging: Staging,
    sizes: Area,
    /// Set when the client has told its ends.
    ring: Option<RemoteArea>,
    client: Party,
    local: LocalPort,
    decisions: Vec<PathDecision>,
}

/// Where a client stands after it was driven.
enum Progress {
    Pending,
    Connected,
    /// A stranger, or somebody who never got as far as the cookie.
    Nobody(String),
    Failed(Error),
}

impl Listener {
    pub(crate) fn new(inner: Arc<Inner>, device: Arc<Device>) -> Result<Self, Error> {
        let config = &inner.config;
        let addresses = interface::local_addresses()?;
        let chosen = interface::choose(&addresses, &config.interfaces, config.family)?;
        let socket = channel::listen(chosen.address)?;
        let address = socket
            .local_addr()
            .map_err(|error| Error::socket("asking for the listener's own address", error))?;
        let cookie = random_cookie()?;
        tracing::debug!(
            "{} listens on {} {address}",
            device.label(),
            chosen.interface
        );
        let handle = Handle::new(address, cookie);
        Ok(Self {
            pending: VecDeque::new(),
            socket,
            handle,
            cookie,
            device,
            inner,
        })
    }

    /// What a peer needs to connect.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Advances all pending clients as far as possible without waiting. Gives a connection when
    /// one is ready.
    ///
    /// # Errors
    /// A peer that knew the cookie and then failed, or no descriptor or memory for another client;
    /// the listener remains usable. Strangers are dropped without an error.
    pub fn poll_accept(&mut self) -> Result<Option<RecvConnection>, Error> {
        self.admit()?;
        let now = Instant::now();
        for _ in 0..self.pending.len() {
            let Some(mut client) = self.pending.pop_front() else {
                break;
            };
            match client.drive(now) {
                Progress::Pending => self.pending.push_back(client),
                Progress::Connected => return client.finish().map(Some),
                Progress::Nobody(why) => {
                    tracing::debug!("{} dropped: {why}", client.channel.peer());
                }
                Progress::Failed(error) => {
                    client.give_up(&error);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Polls until there is a connection, or an error.
    ///
    /// # Errors
    /// As for [`poll_accept`](Self::poll_accept).
    pub fn accept(&mut self) -> Result<RecvConnection, Error> {
        let mut pause = Pause::default();
        loop {
            if let Some(connection) = self.poll_accept()? {
                return Ok(connection);
            }
            pause.once();
        }
    }

    /// Takes in everybody who has connected since the last call.
    fn admit(&mut self) -> Result<(), Error> {
        use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
        for _ in 0..MAX_PENDING {
            match self.socket.accept() {
                Ok((stream, peer)) => self.admit_one(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let doing = format!("accepting on {}", self.handle.address());
                    if let Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) = error.raw_os_error() {
                        return Err(Error::socket(doing, error));
                    }
                    // The client is gone already: others may be waiting.
                    tracing::debug!(%error, "{doing}");
                }
            }
        }
        Ok(())
    }

    fn admit_one(&mut self, stream: std::net::TcpStream, peer: SocketAddr) {
        if self.pending.len() >= MAX_PENDING {
            let stranger = self
                .pending
                .iter()
                .position(|client| !client.machine.is_known());
            match stranger {
                Some(index) => drop(self.pending.remove(index)),
                None => return,
            }
        }
        let channel = match Channel::accepted(stream, peer) {
            Ok(channel) => channel,
            Err(error) => {
                tracing::debug!(%error, "{peer} dropped");
                return;
            }
        };
        self.pending.push_back(Client {
            built: None,
            machine: Acceptor::new(
                self.cookie,
                Instant::now(),
                self.inner.config.connect_timeout,
            ),
            channel,
            device: Arc::clone(&self.device),
            inner: Arc::clone(&self.inner),
        });
    }
}

impl Client {
    fn drive(&mut self, now: Instant) -> Progress {
        match self.advance(now) {
            Ok(true) => Progress::Connected,
            Ok(false) => Progress::Pending,
            Err(error) if self.machine.is_known() => Progress::Failed(error),
            Err(error) => Progress::Nobody(error.to_string()),
        }
    }

    /// Advances without waiting; true when the connection stands.
    fn advance(&mut self, now: Instant) -> Result<bool, Error> {
        let mut buffer = [0; READ_SIZE];
        loop {
            self.channel.queue(self.machine.take_output());
            let is_sent = self
                .channel
                .flush()
                .map_err(|error| self.socket_error(error))?;
            match self
                .machine
                .step(now)
                .map_err(|failure| self.explain(failure))?
            {
                Step::Done if is_sent => return Ok(true),
                Step::Done => return self.check_deadline(now).map(|()| false),
                Step::Plan(client) => {
                    let devices = client.devices.len();
                    let plan = self.build(*client)?;
                    self.machine.planned(plan, devices, now);
                    continue;
                }
                Step::Join(endpoint) => {
                    self.join(*endpoint)?;
                    self.machine.joined();
                    continue;
                }
                Step::Wait => {}
            }
            match self
                .channel
                .read(&mut buffer)
                .map_err(|error| self.socket_error(error))?
            {
                Input::Bytes(count) => self.machine.handle_bytes(&buffer[..count]),
                Input::Nothing => return self.check_deadline(now).map(|()| false),
                Input::End => {
                    return Err(Error::PeerLost {
                        connection: self.doing(),
                        why: "it closed the handshake before the end".to_owned(),
                    });
                }
            }
        }
    }

    fn doing(&self) -> String {
        format!(
            "accepting {} on {}",
            self.channel.peer(),
            self.device.label()
        )
    }

    fn socket_error(&self, error: std::io::Error) -> Error {
        Error::socket(self.doing(), error)
    }

    fn check_deadline(&self, now: Instant) -> Result<(), Error> {
        if now < self.machine.deadline() {
            return Ok(());
        }
        let seconds = self.inner.config.connect_timeout.as_secs();
        Err(Error::Timeout {
            doing: self.doing(),
            seconds,
        })
    }

    fn explain(&self, failure: Failure) -> Error {
        let peer = self.channel.peer().to_string();
        match failure {
            Failure::Refused(reason) => Error::Refused { peer, reason },
            Failure::Invalid(invalid) => Error::Protocol {
                peer,
                what: invalid.to_string(),
            },
        }
    }

    /// Decides the plan with a client that has shown the cookie, and makes the own ends.
    fn build(&mut self, client: Party) -> Result<Plan, Error> {
        let device = &self.device;
        let local = device.local_port()?;
        let ours = party(device.offer(&local));
        let decisions = decide(&client, &ours).map_err(|invalid| Error::Protocol {
            peer: self.channel.peer().to_string(),
            what: invalid.to_string(),
        })?;

        let count = decisions.len() as u32;
        let cq = device
            .pd
            .context()
            .create_cq(count * (RECEIVE_QUEUE_DEPTH + ANNOUNCE_QUEUE_DEPTH))?;
        let entry_bytes = ring::entry_bytes(ours.devices.len());
        let staging = Staging::new(&device.pd, entry_bytes)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let sizes = Area::new(&device.pd, SIZE_TABLE_BYTES, access)?;
        let depths = Depths {
            send: ANNOUNCE_QUEUE_DEPTH,
            receive: RECEIVE_QUEUE_DEPTH,
            inline: (MAX_GROUP * entry_bytes) as u32,
        };
        let mut paths = Vec::new();
        for _ in &decisions {
            let path = Path::create(device, &cq, depths)?;
            post_all_receives(&path)?;
            paths.push(path);
        }
        let plan = Plan {
            paths: decisions
                .iter()
                .zip(&paths)
                .map(|(decision, path)| PathPlan {
                    connector_device: decision.connector_device as u8,
                    listener_device: decision.listener_device as u8,
                    mtu: decision.mtu,
                    queue_pair: path.end(),
                })
                .collect(),
            party: ours,
            entry_bytes: entry_bytes as u8,
            first_entry: ENTRIES,
            size_table: RemoteArea {
                address: sizes.address(),
                rkeys: vec![sizes.rkey()],
            },
        };
        self.built = Some(Built {
            paths,
            cq,
            staging,
            sizes,
            ring: None,
            client,
            local,
            decisions,
        });
        Ok(plan)
    }

    /// Connects the own ends to the client's.
    fn join(&mut self, endpoint: Endpoint) -> Result<(), Error> {
        let config = &self.inner.config;
        let Some(built) = &mut self.built else {
            // The machine asks for this only after the plan was made.
            return Err(Error::InvalidArgument(
                "a handshake without queue pairs".to_owned(),
            ));
        };
        for ((path, decision), remote) in built
            .paths
            .iter()
            .zip(&built.decisions)
            .zip(&endpoint.queue_pairs)
        {
            let offer = &built.client.devices[decision.connector_device];
            let options = PathOptions {
                config,
                traffic_class: None,
                mtu: decision.mtu,
            };
            path.join(&self.device, &built.local, *remote, offer, &options)?;
        }
        built.ring = Some(endpoint.ring);
        Ok(())
    }

    fn finish(self) -> Result<RecvConnection, Error> {
        let Self {
            built,
            machine,
            channel,
            device,
            inner,
        } = self;
        let Some(Built {
            paths,
            cq,
            staging,
            sizes,
            ring: Some(ring),
            client,
            local,
            decisions,
        }) = built
        else {
            // The machine is only done after both steps.
            return Err(Error::InvalidArgument(
                "a handshake without queue pairs".to_owned(),
            ));
        };
        let names = Names {
            local: describe(&device.offer(&local)),
            peer: format!(
                "{} ({}, process {}, {})",
                describe(&client.devices[decisions[0].connector_device]),
                printable(&client.host),
                client.process,
                channel.peer()
            ),
        };
        tracing::info!(
            "receiving {names}, {} path(s), MTU {}",
            paths.len(),
            decisions[0].mtu
        );
        RecvConnection::new(ReceiverParts {
            common: Parts {
                paths,
                cq,
                channel,
                decoder: machine.into_decoder(),
                names,
                device,
                inner,
            },
            staging,
            sizes,
            ring,
            first_entry: ENTRIES,
        })
    }

    /// Tells the client, if it can be told.
    fn give_up(mut self, error: &Error) {
        if !matches!(
            error,
            Error::Refused { .. } | Error::Socket { .. } | Error::PeerLost { .. }
        ) {
            self.machine.refuse(error);
            self.channel.queue(self.machine.take_output());
            let _ = self.channel.flush();
        }
    }
}
