//! One client of a listener, in the middle of its handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::Access;

use crate::assembly::{Assembly, Budget, Demand, Remote};
use crate::channel::Channel;
use crate::connection::{Names, Parts};
use crate::conversation::Conversation;
use crate::device::LocalPort;
use crate::error::Error;
use crate::flush::Flusher;
use crate::handle::Cookie;
use crate::handshake::acceptor::{Acceptor, Step};
use crate::handshake::message::{Endpoint, Hello, Party, PathPlan, Plan, RemoteArea, printable};
use crate::handshake::plan::{PathDecision, decide};
use crate::introduction::{Introduction, introduce};
use crate::listener::ListenOptions;
use crate::memory::Area;
use crate::monitor::Attention;
use crate::need::Need;
use crate::nic::Nic;
use crate::path::{Depths, INLINE, PathSpec};
use crate::receiver::{
    ANNOUNCE_QUEUE_DEPTH, COMPLETION_RESERVE, RECEIVE_QUEUE_DEPTH, ReceiverParts, RecvConnection,
};
use crate::ring::{self, SIZE_TABLE_BYTES, Staging};
use crate::transport::Inner;

/// A client that has connected to the listener's socket.
pub(crate) struct Client {
    // Dropped before the devices it was made on.
    work: Option<Work>,
    task: Task,
    conversation: Conversation<Acceptor>,
    options: ListenOptions,
    nic: Arc<Nic>,
    inner: Arc<Inner>,
}

/// What is being done for a client.
enum Task {
    /// Bytes are exchanged.
    Talk,
    /// The own queue pairs are created.
    Create,
    /// They are connected to these.
    Join(Box<Endpoint>),
}

/// The own ends of the paths to one client, and what was agreed on.
struct Work {
    assembly: Assembly,
    flusher: Flusher,
    staging: Staging,
    sizes: Area,
    /// Set when the client has told its ends.
    ring: Option<RemoteArea>,
    own: Introduction,
    hello: Hello,
    decisions: Vec<PathDecision>,
}

/// Where a client stands after it was driven.
pub(crate) enum Progress {
    Pending,
    Connected,
    /// A stranger, or somebody who never got as far as the cookie.
    Nobody(String),
    Failed(Error),
}

impl Client {
    pub(crate) fn new(
        channel: Channel,
        cookie: Cookie,
        options: ListenOptions,
        nic: &Arc<Nic>,
        inner: &Arc<Inner>,
    ) -> Self {
        let now = Instant::now();
        let machine = Acceptor::new(cookie, now, inner.config.connect_timeout);
        let doing = format!("accepting {} on {}", channel.peer(), nic.info().name);
        Self {
            work: None,
            task: Task::Talk,
            conversation: Conversation::new(machine, channel, doing, now),
            options,
            nic: Arc::clone(nic),
            inner: Arc::clone(inner),
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.conversation.peer()
    }

    /// Whether it has shown the cookie. Until then it may be anybody.
    pub(crate) fn is_known(&self) -> bool {
        self.conversation.machine.is_known()
    }

    /// How long it has been here.
    pub(crate) fn age(&self) -> Duration {
        self.conversation.age()
    }

    /// What it waits for.
    pub(crate) fn need(&mut self) -> Need {
        match (&self.task, &self.work) {
            (Task::Create | Task::Join(_), Some(work)) => {
                self.conversation.need_of_work(&work.assembly)
            }
            _ => self.conversation.need(),
        }
    }

    /// Has `attention` woken when its socket is ready for what it needs.
    pub(crate) fn listen(&mut self, attention: &Arc<Attention>) -> Result<(), Error> {
        self.conversation.listen(&self.inner.monitor, attention)
    }

    pub(crate) fn drive(&mut self, budget: &mut Budget, now: Instant) -> Progress {
        match self.advance(budget, now) {
            Ok(true) => Progress::Connected,
            Ok(false) => Progress::Pending,
            Err(error) if self.is_known() => Progress::Failed(error),
            Err(error) => Progress::Nobody(error.to_string()),
        }
    }

    /// Advances without waiting; true when the connection stands.
    fn advance(&mut self, budget: &mut Budget, now: Instant) -> Result<bool, Error> {
        let devices = self.nic.members();
        loop {
            let is_waiting = match (&mut self.task, &mut self.work) {
                (Task::Create, Some(work)) => {
                    let is_done = work
                        .assembly
                        .create(devices, &work.own.locals, budget, now)?;
                    if is_done {
                        let devices = work.hello.party.devices.len();
                        let plan = work.plan(self.inner.config.first_entry);
                        self.conversation.machine.planned(plan, devices, now);
                        self.task = Task::Talk;
                    }
                    !is_done
                }
                (Task::Join(endpoint), Some(work)) => {
                    let is_done = work
                        .join(endpoint, devices, &self.inner, budget, now)
                        .map_err(|error| {
                            let peer = self.conversation.peer();
                            error.joining(|| describe_process(&work.hello.party, peer))
                        })?;
                    if is_done {
                        work.ring = Some(endpoint.ring.clone());
                        self.conversation.machine.joined(now);
                        self.task = Task::Talk;
                    }
                    !is_done
                }
                _ => match self.conversation.advance(now)? {
                    None => return Ok(false),
                    Some(Step::Plan(hello)) => {
                        self.work = Some(Work::begin(
                            *hello,
                            &self.nic,
                            &self.inner,
                            self.options.notify,
                        )?);
                        self.task = Task::Create;
                        false
                    }
                    Some(Step::Join(endpoint)) => {
                        self.task = Task::Join(endpoint);
                        false
                    }
                    Some(Step::Done) => {
                        if self.conversation.flush()? {
                            return Ok(true);
                        }
                        true
                    }
                },
            };
            if is_waiting {
                let work = self.work.as_ref();
                let refused = work.and_then(|work| work.assembly.last_refusal());
                return self
                    .conversation
                    .check_deadline_of_work(now, refused)
                    .map(|()| false);
            }
        }
    }

    /// The connection. Only after [`Progress::Connected`].
    pub(crate) fn finish(self) -> Result<RecvConnection, Error> {
        let peer = self.peer();
        let Some(Work {
            assembly,
            flusher,
            staging,
            sizes,
            ring: Some(ring),
            own,
            hello,
            decisions,
        }) = self.work
        else {
            // The machine is only done after both steps.
            return Err(Error::InvalidArgument(
                "a handshake without queue pairs".to_owned(),
            ));
        };
        let names = Names {
            peer_process: describe_process(&hello.party, peer),
            local: own.party.devices,
            peer: hello.party.devices,
            paths: decisions
                .iter()
                .map(|decision| (decision.listener_device, decision.connector_device))
                .collect(),
        };
        tracing::info!(
            "receiving {names}, {}, MTU {}, {}",
            names.count_paths(),
            decisions[0].mtu,
            (hello.wishes.service)
                .of_announcements(&self.inner.config)
                .describe(&self.nic, &self.inner.config),
        );
        let first_entry = self.inner.config.first_entry;
        let (machine, channel) = self.conversation.into_parts();
        RecvConnection::new(ReceiverParts {
            common: Parts {
                ends: assembly.into_ends(),
                channel,
                decoder: machine.into_session().into_decoder(),
                names,
                nic: self.nic,
                inner: self.inner,
            },
            flusher,
            staging,
            sizes,
            ring,
            first_entry,
            announce_loudly: hello.wishes.notify,
        })
    }

    /// Tells the client, if it can be told.
    pub(crate) fn give_up(self, error: &Error) {
        self.conversation.give_up(error);
    }
}

impl Work {
    /// Decides the plan with a client that has shown the cookie.
    fn begin(hello: Hello, nic: &Nic, inner: &Inner, notify: bool) -> Result<Self, Error> {
        let config = &inner.config;
        let own = introduce(nic, config)?;
        let queue_pairs = config.queue_pairs.max(hello.wishes.queue_pairs);
        let decisions = decide(&hello.party, &own.party, usize::from(queue_pairs))?;
        if config.warn_rail_local {
            warn_of_rails(&own.party, &hello.party);
        }
        let entry_bytes = ring::entry_bytes(nic.members().len());
        let specs = decisions
            .iter()
            .map(|decision| PathSpec {
                device: decision.listener_device,
                peer_device: decision.connector_device,
                mtu: decision.mtu,
                reorders: decision.reorders,
            })
            .collect();
        let domains = || nic.members().iter().map(|device| &device.pd);
        let flusher = Flusher::new(config, domains())?;
        let demand = Demand {
            depths: Depths {
                send: ANNOUNCE_QUEUE_DEPTH,
                receive: RECEIVE_QUEUE_DEPTH,
                inline: if config.inline {
                    // One buffer's; groups are fetched by the device.
                    INLINE.max(entry_bytes as u32)
                } else {
                    0
                },
            },
            reserve: COMPLETION_RESERVE,
            // They come back with the number of their path.
            receives: Some(0),
            loops: flusher.is_enabled(),
            notify,
            offer_ece: config.ece,
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            assembly: Assembly::new(nic.members(), specs, demand, inner)?,
            flusher,
            staging: Staging::new(domains(), entry_bytes)?,
            sizes: Area::new(domains(), SIZE_TABLE_BYTES, access)?,
            ring: None,
            own,
            hello,
            decisions,
        })
    }

    /// What both ends will keep to; the ids of announcements begin with `first_entry`.
    fn plan(&self, first_entry: u64) -> Plan {
        let paths = self
            .decisions
            .iter()
            .zip(self.assembly.queue_pair_ends())
            .map(|(decision, queue_pair)| PathPlan {
                connector_device: decision.connector_device as u8,
                listener_device: decision.listener_device as u8,
                mtu: decision.mtu,
                reorders: decision.reorders,
                queue_pair,
            })
            .collect();
        Plan {
            paths,
            entry_bytes: self.staging.entry_bytes() as u8,
            first_entry,
            size_table: RemoteArea {
                address: self.sizes.address(),
                rkeys: self.sizes.rkeys(),
            },
            party: self.own.party.clone(),
        }
    }

    /// Connects some of the own ends to the client's; true when all are.
    fn join(
        &mut self,
        endpoint: &Endpoint,
        devices: &[Arc<crate::device::Device>],
        inner: &Inner,
        budget: &mut Budget,
        now: Instant,
    ) -> Result<bool, Error> {
        let locals: &[LocalPort] = &self.own.locals;
        let remote = Remote {
            offers: &self.hello.party.devices,
            ends: &endpoint.queue_pairs,
            service: self.hello.wishes.service.of_announcements(&inner.config),
        };
        self.assembly
            .join(devices, locals, &remote, &inner.config, budget, now)
    }
}

/// One line if the devices of the two ends have different names (pitfall 52: names, because indices of two
/// hosts mean nothing to each other).
fn warn_of_rails(own: &Party, theirs: &Party) {
    let names = |party: &Party| -> Vec<String> {
        let devices = party.devices.iter();
        devices
            .map(|device| format!("{}:{}", printable(&device.name), device.port))
            .collect()
    };
    let (own, others) = (names(own), names(theirs));
    if own != others {
        tracing::warn!(
            "the peer on {} has other devices than this end: {} and {} (NCCL_IB_WARN_RAIL_LOCAL)",
            printable(&theirs.host),
            others.join(", "),
            own.join(", ")
        );
    }
}

/// Who is at the other end, in words.
pub(crate) fn describe_process(party: &Party, address: SocketAddr) -> String {
    format!(
        "{}, process {}, {address}",
        printable(&party.host),
        party.process
    )
}
