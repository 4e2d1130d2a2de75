//! Connecting: drives the handshake of the sending end over a socket and its devices.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use verbs::Access;

use crate::assembly::{Assembly, Budget, Demand, Receives, Remote};
use crate::client::describe_process;
use crate::connection::{Names, Parts};
use crate::conversation::Conversation;
use crate::device::SEND_QUEUE_DEPTH;
use crate::dial::Dial;
use crate::error::Error;
use crate::handle::Handle;
use crate::handshake::connector::{Connector, Step};
use crate::handshake::message::{Endpoint, MAX_PATHS, Plan, QueuePairEnd, RemoteArea, Wishes};
use crate::introduction::{Introduction, introduce};
use crate::memory::Area;
use crate::need::{Need, Waiter};
use crate::nic::Nic;
use crate::owned::{block_on, block_until, later};
use crate::path::{Depths, INLINE, PathSpec};
use crate::ring::{Announced, SIZE_BYTES, SIZE_TABLE_BYTES};
use crate::sender::{ANNOUNCEMENT_RECEIVES, SendConnection, SenderParts};
use crate::stripe;
use crate::transport::{ConnectOptions, Inner};

/// A connection in the making. Poll it until it gives the connection, wait for it or await it;
/// drop it to give up.
pub struct Connecting {
    state: Option<State>,
    /// If somebody waits rather than polls.
    waiter: Option<Waiter>,
}

enum State {
    /// The listener is called over TCP.
    Dialing(Box<(Dial, Call)>),
    Talking(Box<Talk>),
}

/// What is to be connected.
struct Call {
    handle: Handle,
    options: ConnectOptions,
    began: Instant,
    nic: Arc<Nic>,
    inner: Arc<Inner>,
}

/// The handshake once the listener is reached.
struct Talk {
    // Dropped before the devices it was made on.
    work: Option<Work>,
    is_building: bool,
    conversation: Conversation<Connector>,
    own: Introduction,
    call: Call,
}

/// The own ends of the paths, and the plan that they follow.
struct Work {
    assembly: Assembly,
    ring: Announced,
    /// What size records are sent from, unless every path has room for one in the request.
    sizes: Option<Area>,
    are_created: bool,
    plan: Plan,
    remote_ends: Vec<QueuePairEnd>,
}

impl Connecting {
    pub(crate) fn new(
        inner: Arc<Inner>,
        nic: Arc<Nic>,
        handle: &Handle,
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        // A port that cannot be used is an error at once, and none for the listener.
        introduce(&nic, &inner.config)?;
        let dial = Dial::new(handle.address(), &inner.config)?;
        let call = Call {
            handle: *handle,
            options,
            began: Instant::now(),
            nic,
            inner,
        };
        Ok(Self {
            state: Some(State::Dialing(Box::new((dial, call)))),
            waiter: None,
        })
    }

    /// Advances the handshake as far as possible without waiting. Gives the connection when both
    /// ends are ready, `None` before.
    ///
    /// # Errors
    /// Why there will be no connection. Everything has been undone by then, and every later call
    /// is an error, too.
    pub fn poll(&mut self) -> Result<Option<SendConnection>, Error> {
        let Some(state) = self.state.take() else {
            return Err(Error::InvalidArgument(
                "this connection attempt has ended already".to_owned(),
            ));
        };
        let call = match &state {
            State::Dialing(dialing) => &dialing.1,
            State::Talking(talk) => &talk.call,
        };
        call.inner.monitor.check_process()?;
        let now = Instant::now();
        let mut talk = match state {
            State::Talking(talk) => talk,
            State::Dialing(mut dialing) => match dialing.0.poll(now)? {
                Some(channel) => Box::new(Talk::begin(channel, dialing.1, now)?),
                None => {
                    dialing.1.check_deadline(now)?;
                    self.state = Some(State::Dialing(dialing));
                    return Ok(None);
                }
            },
        };
        match talk.advance(now) {
            Ok(true) => talk.finish().map(Some),
            Ok(false) => {
                self.state = Some(State::Talking(talk));
                Ok(None)
            }
            Err(error) => {
                talk.conversation.give_up(&error);
                Err(error)
            }
        }
    }

    /// Waits until there is a connection, or an error. Costs no processor time meanwhile.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<SendConnection, Error> {
        block_on(|context| Pin::new(&mut self).poll(context))
    }

    /// As [`wait`](Self::wait), but gives the attempt back when `deadline` comes first: it can be
    /// gone on with. Beside that each step of it has the time limit of
    /// [`Config::connect_timeout`](crate::Config::connect_timeout).
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait_until(mut self, deadline: Instant) -> Result<Result<SendConnection, Self>, Error> {
        let waited = block_until(deadline, |context| Pin::new(&mut self).poll(context));
        Ok(waited.transpose()?.ok_or(self))
    }

    /// As [`wait_until`](Self::wait_until), `time` from now.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait_timeout(self, time: Duration) -> Result<Result<SendConnection, Self>, Error> {
        self.wait_until(later(Instant::now(), time))
    }

    /// Has the waker of `context` woken when it is worth another poll.
    fn listen(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(state) = &mut self.state else {
            return Ok(());
        };
        let call = match state {
            State::Dialing(dialing) => &dialing.1,
            State::Talking(talk) => &talk.call,
        };
        let inner = Arc::clone(&call.inner);
        let monitor = &inner.monitor;
        let waiter = self.waiter.get_or_insert_with(|| Waiter::new(monitor));
        let attention = waiter.begin(context.waker());
        let until = match state {
            State::Dialing(dialing) => {
                let (dial, call) = &mut **dialing;
                dial.listen(monitor, attention)?;
                let deadline = call.deadline();
                dial.due().map_or(deadline, |due| due.min(deadline))
            }
            State::Talking(talk) => {
                let need = talk.need();
                if need.socket {
                    talk.conversation.listen(monitor, attention)?;
                }
                need.until
            }
        };
        waiter.until(until, context.waker())
    }
}

/// Gives the connection, or why there is none. Needs no runtime: the waker is woken by the events
/// thread of the transport. To be polled again after its end is an error.
impl Future for Connecting {
    type Output = Result<SendConnection, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(connection) = Self::poll(this)? {
            return Poll::Ready(Ok(connection));
        }
        this.listen(context)?;
        Poll::Pending
    }
}

impl Call {
    fn doing(&self) -> String {
        format!(
            "connecting {} to {}",
            self.nic.info().name,
            self.handle.address()
        )
    }

    fn deadline(&self) -> Instant {
        later(self.began, self.inner.config.connect_timeout)
    }

    fn check_deadline(&self, now: Instant) -> Result<(), Error> {
        if now < self.deadline() {
            return Ok(());
        }
        Err(Error::Timeout {
            doing: format!("{}, waiting for a TCP connection", self.doing()),
            seconds: self.inner.config.connect_timeout.as_secs(),
        })
    }
}

impl Talk {
    /// The listener is reached: greets it.
    fn begin(channel: crate::channel::Channel, call: Call, now: Instant) -> Result<Self, Error> {
        let config = &call.inner.config;
        let own = introduce(&call.nic, config)?;
        let wishes = Wishes {
            // What a program sets is not checked as a variable is.
            queue_pairs: config.queue_pairs.clamp(1, MAX_PATHS as u8),
            traffic_class: call.traffic_class(),
            notify: call.options.notify,
        };
        let machine = Connector::new(
            *call.handle.cookie(),
            own.party.clone(),
            wishes,
            now,
            config.connect_timeout,
        );
        Ok(Self {
            work: None,
            is_building: false,
            conversation: Conversation::new(machine, channel, call.doing(), now),
            own,
            call,
        })
    }

    /// Advances without waiting; true when the connection stands.
    fn advance(&mut self, now: Instant) -> Result<bool, Error> {
        let mut budget = Budget::of_a_poll();
        loop {
            if self.is_building
                && let Some(work) = &mut self.work
            {
                match work.advance(&self.own, &self.call, &mut budget, now)? {
                    Some(endpoint) => {
                        self.conversation.machine.built(endpoint, now);
                        self.is_building = false;
                    }
                    None => {
                        let refused = work.assembly.last_refusal();
                        return self
                            .conversation
                            .check_deadline_of_work(now, refused)
                            .map(|()| false);
                    }
                }
            }
            match self.conversation.advance(now)? {
                None => return Ok(false),
                Some(Step::Done) => return Ok(true),
                Some(Step::Build(plan)) => {
                    self.work = Some(Work::begin(*plan, &self.own, &self.call)?);
                    self.is_building = true;
                }
            }
        }
    }

    /// What it waits for.
    fn need(&mut self) -> Need {
        match &self.work {
            Some(work) if self.is_building => self.conversation.need_of_work(&work.assembly),
            _ => self.conversation.need(),
        }
    }

    fn finish(self) -> Result<SendConnection, Error> {
        let Some(work) = self.work else {
            // The machine is only done after it was told of the built ends.
            return Err(Error::InvalidArgument(
                "a handshake without queue pairs".to_owned(),
            ));
        };
        let plan = work.plan;
        let names = Names {
            peer_process: describe_process(&plan.party, self.conversation.peer()),
            paths: plan
                .paths
                .iter()
                .map(|path| {
                    (
                        usize::from(path.connector_device),
                        usize::from(path.listener_device),
                    )
                })
                .collect(),
            local: self.own.party.devices,
            peer: plan.party.devices,
        };
        tracing::info!(
            "sending {names}, {}, MTU {}, traffic class {}",
            names.count_paths(),
            plan.paths[0].mtu,
            self.call.traffic_class().unwrap_or(0),
        );
        let max_message = names
            .paths
            .iter()
            .flat_map(|&(local, peer)| {
                [names.local[local].max_message, names.peer[peer].max_message]
            })
            .min()
            .unwrap_or(0);
        let (machine, channel) = self.conversation.into_parts();
        SendConnection::new(SenderParts {
            common: Parts {
                ends: work.assembly.into_ends(),
                channel,
                decoder: machine.into_session().into_decoder(),
                names,
                nic: self.call.nic,
                inner: self.call.inner,
            },
            ring: work.ring,
            sizes: work.sizes,
            size_table: plan.size_table,
            first_entry: plan.first_entry,
            largest_write: stripe::largest_write(max_message),
        })
    }
}

impl Call {
    /// The environment's setting wins over the application's (pitfall 43: of the class alone, the
    /// service level is something else).
    fn traffic_class(&self) -> Option<u8> {
        let config = &self.inner.config;
        config.traffic_class.or(self.options.traffic_class)
    }
}

impl Work {
    /// Follows the plan, which was checked when it arrived.
    fn begin(plan: Plan, own: &Introduction, call: &Call) -> Result<Self, Error> {
        let config = &call.inner.config;
        let specs = plan
            .paths
            .iter()
            .map(|path| {
                let device = usize::from(path.connector_device);
                PathSpec {
                    device,
                    peer_device: usize::from(path.listener_device),
                    mtu: path.mtu.min(own.party.devices[device].mtu),
                    reorders: path.reorders,
                }
            })
            .collect();
        let demand = Demand {
            depths: Depths {
                send: SEND_QUEUE_DEPTH,
                // The smallest that every driver takes; nothing is ever received by it.
                receive: 1,
                inline: if config.inline { INLINE } else { 0 },
            },
            reserve: 0,
            receives: if call.options.notify {
                Receives::Announcements(ANNOUNCEMENT_RECEIVES)
            } else {
                Receives::None
            },
            notify: call.options.notify,
            offer_ece: false,
        };
        let domains = || call.nic.members().iter().map(|device| &device.pd);
        Ok(Self {
            assembly: Assembly::new(call.nic.members(), specs, demand, &call.inner)?,
            ring: Announced::new(domains(), usize::from(plan.entry_bytes), plan.first_entry)?,
            sizes: None,
            are_created: false,
            remote_ends: plan.paths.iter().map(|path| path.queue_pair).collect(),
            plan,
        })
    }

    /// Makes some more of the own ends and connects them to the listener's. When all are, gives
    /// what the listener must know.
    fn advance(
        &mut self,
        own: &Introduction,
        call: &Call,
        budget: &mut Budget,
        now: Instant,
    ) -> Result<Option<Endpoint>, Error> {
        let config = &call.inner.config;
        let devices = call.nic.members();
        if !self.are_created {
            self.are_created = self.assembly.create(devices, &own.locals, budget, now)?;
            if !self.are_created {
                return Ok(None);
            }
            if self.assembly.least_inline() < SIZE_BYTES {
                let domains = devices.iter().map(|device| &device.pd);
                self.sizes = Some(Area::new(domains, SIZE_TABLE_BYTES, Access::empty())?);
            }
        }
        let remote = Remote {
            offers: &self.plan.party.devices,
            ends: &self.remote_ends,
            traffic_class: call.traffic_class().unwrap_or(0),
        };
        let is_joined = self
            .assembly
            .join(devices, &own.locals, &remote, config, budget, now)
            .map_err(|error| {
                error.joining(|| describe_process(&self.plan.party, call.handle.address()))
            })?;
        Ok(is_joined.then(|| Endpoint {
            queue_pairs: self.assembly.queue_pair_ends(),
            ring: RemoteArea {
                address: self.ring.area().address(),
                rkeys: self.ring.area().rkeys(),
            },
        }))
    }
}
