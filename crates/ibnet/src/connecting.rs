//! Connecting: drives the handshake of the sending end over a socket and a device.

use std::sync::Arc;
use std::time::Instant;

use verbs::Access;

use crate::channel::{Channel, Input, READ_SIZE};
use crate::connection::{Names, Parts, describe};
use crate::device::{Device, LocalPort, SEND_QUEUE_DEPTH};
use crate::error::Error;
use crate::handle::Handle;
use crate::handshake::connector::{Connector, Failure, Step};
use crate::handshake::message::{Endpoint, Plan, RemoteArea, printable};
use crate::memory::Area;
use crate::owned::Pause;
use crate::path::{Depths, Path, PathOptions};
use crate::ring::{Announced, SIZE_TABLE_BYTES};
use crate::sender::{SendConnection, SenderParts};
use crate::stripe;
use crate::transport::{ConnectOptions, Inner, party};

/// Bytes that a sending queue pair should be able to take inline: small messages and size records
/// then need no second fetch by the device.
const INLINE: u32 = 64;

/// A connection in the making. Poll it until it gives the connection; drop it to give up.
pub struct Connecting {
    state: Option<State>,
}

struct State {
    // Dropped before the device it was made on.
    built: Option<Built>,
    machine: Connector,
    channel: Channel,
    local: LocalPort,
    options: ConnectOptions,
    device: Arc<Device>,
    inner: Arc<Inner>,
}

/// The own ends of the paths.
struct Built {
    paths: Vec<Path>,
    cq: verbs::CompletionQueue,
    ring: Announced,
    sizes: Area,
    plan: Plan,
    largest_write: u32,
    names: Names,
}

impl Connecting {
    pub(crate) fn new(
        inner: Arc<Inner>,
        device: Arc<Device>,
        handle: &Handle,
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        let local = device.local_port()?;
        let channel = Channel::connect(handle.address())?;
        let machine = Connector::new(
            *handle.cookie(),
            party(device.offer(&local)),
            Instant::now(),
            inner.config.connect_timeout,
        );
        let state = State {
            built: None,
            machine,
            channel,
            local,
            options,
            device,
            inner,
        };
        Ok(Self { state: Some(state) })
    }

    /// Advances the handshake as far as possible without waiting. Gives the connection when both
    /// ends are ready, `None` before.
    ///
    /// # Errors
    /// Why there will be no connection. Everything has been undone by then, and every later call
    /// is an error, too.
    pub fn poll(&mut self) -> Result<Option<SendConnection>, Error> {
        let Some(mut state) = self.state.take() else {
            return Err(Error::InvalidArgument(
                "this connection attempt has ended already".to_owned(),
            ));
        };
        match state.advance() {
            Ok(true) => state.finish().map(Some),
            Ok(false) => {
                self.state = Some(state);
                Ok(None)
            }
            Err(error) => {
                state.give_up(&error);
                Err(error)
            }
        }
    }

    /// Polls until there is a connection, or an error.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<SendConnection, Error> {
        let mut pause = Pause::default();
        loop {
            if let Some(connection) = self.poll()? {
                return Ok(connection);
            }
            pause.once();
        }
    }
}

impl State {
    /// Advances without waiting; true when the connection stands.
    fn advance(&mut self) -> Result<bool, Error> {
        let now = Instant::now();
        if !self.channel.is_connected()? {
            return self.check_deadline(now, "a TCP connection").map(|()| false);
        }
        let mut buffer = [0; READ_SIZE];
        loop {
            self.channel.queue(self.machine.take_output());
            self.flush()?;
            match self
                .machine
                .step(now)
                .map_err(|failure| self.explain(failure))?
            {
                Step::Done => return Ok(true),
                Step::Build(plan) => {
                    let endpoint = self.build(*plan)?;
                    self.machine.built(endpoint, now);
                    continue;
                }
                Step::Wait => {}
            }
            let input = self.channel.read(&mut buffer).map_err(|error| {
                Error::socket(format!("handshake with {}", self.channel.peer()), error)
            })?;
            match input {
                Input::Bytes(count) => self.machine.handle_bytes(&buffer[..count]),
                Input::Nothing => {
                    return self
                        .check_deadline(now, self.machine.waiting_for())
                        .map(|()| false);
                }
                Input::End => {
                    return Err(Error::PeerLost {
                        connection: format!(
                            "connecting {} to {}",
                            self.device.label(),
                            self.channel.peer()
                        ),
                        why: format!(
                            "it closed the handshake before {}; the listener may be closed, or \
                             the handle is not of this listener",
                            self.machine.waiting_for()
                        ),
                    });
                }
            }
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let peer = self.channel.peer();
        self.channel
            .flush()
            .map(drop)
            .map_err(|error| Error::socket(format!("handshake with {peer}"), error))
    }

    fn check_deadline(&self, now: Instant, waiting_for: &str) -> Result<(), Error> {
        if now < self.machine.deadline() {
            return Ok(());
        }
        Err(Error::Timeout {
            doing: format!(
                "connecting {} to {}, waiting for {waiting_for}",
                self.device.label(),
                self.channel.peer()
            ),
            seconds: self.inner.config.connect_timeout.as_secs(),
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

    /// Makes the own ends of the paths that the plan names, connected to the listener's.
    fn build(&mut self, plan: Plan) -> Result<Endpoint, Error> {
        let (device, config) = (&self.device, &self.inner.config);
        let depth = SEND_QUEUE_DEPTH.min(device.attributes.max_qp_wr);
        let paths = plan.paths.len() as u32;
        // Every request may complete with an error, and the receive queue has one place.
        let cq = device.pd.context().create_cq(paths * (depth + 1))?;
        let ring = Announced::new(&device.pd, usize::from(plan.entry_bytes), plan.first_entry)?;
        let sizes = Area::new(&device.pd, SIZE_TABLE_BYTES, Access::empty())?;
        let mut built = Vec::new();
        let mut max_message = self.local.port.max_message_size;
        for path_plan in &plan.paths {
            let depths = Depths {
                send: depth,
                receive: 1,
                inline: INLINE,
            };
            let path = Path::create(device, &cq, depths)?;
            // Checked when the plan arrived.
            let offer = &plan.party.devices[usize::from(path_plan.listener_device)];
            let options = PathOptions {
                config,
                traffic_class: self.options.traffic_class,
                mtu: path_plan
                    .mtu
                    .min(self.local.port.active_mtu.bytes().unwrap_or(256)),
            };
            path.join(device, &self.local, path_plan.queue_pair, offer, &options)?;
            max_message = max_message.min(offer.max_message);
            built.push(path);
        }
        let endpoint = Endpoint {
            queue_pairs: built.iter().map(Path::end).collect(),
            ring: RemoteArea {
                address: ring.area().address(),
                rkeys: vec![ring.area().rkey()],
            },
        };
        let peer = &plan.party;
        let names = Names {
            local: describe(&device.offer(&self.local)),
            peer: format!(
                "{} ({}, process {}, {})",
                describe(&peer.devices[usize::from(plan.paths[0].listener_device)]),
                printable(&peer.host),
                peer.process,
                self.channel.peer()
            ),
        };
        self.built = Some(Built {
            paths: built,
            cq,
            ring,
            sizes,
            largest_write: stripe::largest_write(max_message),
            names,
            plan,
        });
        Ok(endpoint)
    }

    fn finish(self) -> Result<SendConnection, Error> {
        let Self {
            built,
            machine,
            channel,
            device,
            inner,
            ..
        } = self;
        let Some(built) = built else {
            // The machine is only done after it was told of the built ends.
            return Err(Error::InvalidArgument(
                "a handshake without queue pairs".to_owned(),
            ));
        };
        tracing::info!(
            "sending {}, {} path(s), MTU {}",
            built.names,
            built.paths.len(),
            built.plan.paths[0].mtu
        );
        SendConnection::new(SenderParts {
            common: Parts {
                paths: built.paths,
                cq: built.cq,
                channel,
                decoder: machine.into_decoder(),
                names: built.names,
                device,
                inner,
            },
            ring: built.ring,
            sizes: built.sizes,
            size_table: built.plan.size_table,
            first_entry: built.plan.first_entry,
            largest_write: built.largest_write,
        })
    }

    /// Tells the peer, if it can be told, and forgets everything.
    fn give_up(mut self, error: &Error) {
        tracing::debug!("no connection: {error}");
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
