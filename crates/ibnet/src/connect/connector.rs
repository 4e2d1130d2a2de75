//! The conversation of the end that connects, which will send.

use std::io;
use std::sync::Arc;

use ibnet_verbs::Access;

use crate::connect::control::Channel;
use crate::connect::dial::dial;
use crate::connect::interface::Route;
use crate::connect::introduction::{Introduction, introduce};
use crate::connect::pairing::obstacle;
use crate::connect::peer::{Peer, describe_process};
use crate::connect::service::Service;
use crate::connect::setup::{Demand, Ends, Remote, Setup};
use crate::connect::waits::{Budget, Waits};
use crate::connection::path::{Depths, INLINE, PathSpec};
use crate::connection::sender::{CTS_RECEIVE, SendConnection, SenderParts, cts_receives};
use crate::connection::{Names, Parts};
use crate::device::SEND_QUEUE_DEPTH;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsRing;
use crate::transport::{ConnectOptions, Inner};
use crate::wire::cts::{SIZE_BYTES, SIZE_TABLE_BYTES};
use crate::wire::handle::Handle;
use crate::wire::message::{
    Endpoint, Hello, Invalid, Message, PeerInfo, Plan, Preferences, QueuePairEnd, RemoteArea,
};
use crate::wire::stripe;

/// What is to be connected.
pub(crate) struct Call {
    pub(crate) handle: Handle,
    pub(crate) options: ConnectOptions,
    pub(crate) nic: Arc<Nic>,
    pub(crate) inner: Arc<Inner>,
}

/// What the conversation has made.
struct Agreed {
    ends: Ends,
    ring: CtsRing,
    /// What size records are sent from, unless every path has room for one in the request.
    sizes: Option<Area>,
    plan: Plan,
    own: PeerInfo,
}

/// Makes the connection to a listener that `first` is the first attempt to reach by `route`.
pub(crate) async fn connect(
    first: io::Result<Channel>,
    route: Route,
    call: Call,
    budget: Budget,
) -> Result<SendConnection, Error> {
    let config = &call.inner.config;
    let mut waits = Waits::new(&call.inner);
    let channel = dial(first, &route, &call.nic.info().name, config, &mut waits).await?;
    let doing = format!(
        "connecting {} to the listener at {}",
        call.nic.info().name,
        call.handle.address()
    );
    let mut peer = Peer::new(channel, doing, config.connect_timeout, &call.inner);
    match agree(&mut peer, &call, budget).await {
        Ok(agreed) => finish(agreed, peer, call),
        Err(error) => {
            peer.refuse(&error);
            Err(error)
        }
    }
}

async fn agree(peer: &mut Peer, call: &Call, budget: Budget) -> Result<Agreed, Error> {
    let config = &call.inner.config;
    let own = introduce(&call.nic, config)?;
    peer.send(&Message::Hello(Hello {
        cookie: *call.handle.cookie(),
        info: own.info.clone(),
        preferences: Preferences {
            queue_pairs: config.queue_pairs,
            service: call.service(),
            notify: call.options.notify,
        },
    }))?;

    let plan = match peer
        .receive("the listener's plan, which comes once its program accepts")
        .await?
    {
        Message::Plan(plan) => plan,
        other => return Err(peer.unexpected(&other)),
    };
    check(&plan, &own.info).map_err(|invalid| peer.invalid(invalid))?;
    peer.recognise(&plan.info, config.connect_timeout);

    let devices = || call.nic.members().iter().map(|device| &device.pd);
    let ring = CtsRing::new(devices(), usize::from(plan.entry_bytes), plan.first_entry)?;
    let (specs, demand) = (specs(&plan, &own), demand(call, plan.paths.len()));
    let mut setup = Setup::new(&call.nic, &own.locals, specs, demand, &call.inner, budget)?;
    setup.create(&mut peer.waits).await?;
    let sizes = if setup.least_inline() < SIZE_BYTES {
        Some(Area::new(devices(), SIZE_TABLE_BYTES, Access::empty())?)
    } else {
        None
    };
    let remote_ends: Vec<QueuePairEnd> = plan.paths.iter().map(|path| path.queue_pair).collect();
    let remote = Remote {
        offers: &plan.info.devices,
        ends: &remote_ends,
        service: call.service(),
    };
    let connected = setup.connect(&remote, &mut peer.waits).await;
    connected.map_err(|error| error.joining(|| describe_process(&plan.info, peer.address())))?;

    peer.send(&Message::Endpoint(Endpoint {
        queue_pairs: setup.queue_pair_ends(),
        ring: RemoteArea {
            address: ring.area().address(),
            rkeys: ring.area().rkeys(),
        },
    }))?;
    match peer
        .receive("the listener's queue pairs to be ready")
        .await?
    {
        Message::Ready => {}
        other => return Err(peer.unexpected(&other)),
    }
    Ok(Agreed {
        ends: setup.into_ends(),
        ring,
        sizes,
        plan,
        own: own.info,
    })
}

/// What of a plan can only be checked with the own side known.
fn check(plan: &Plan, own: &PeerInfo) -> Result<(), Invalid> {
    for path in &plan.paths {
        let Some(ours) = own.devices.get(usize::from(path.connector_device)) else {
            return Err(Invalid("a path over a device that was not offered"));
        };
        // The plan has the device: that was checked when it arrived.
        let theirs = &plan.info.devices[usize::from(path.listener_device)];
        if obstacle(ours, theirs).is_some() {
            return Err(Invalid(
                "a path between ports that cannot talk to each other",
            ));
        }
    }
    Ok(())
}

fn specs(plan: &Plan, own: &Introduction) -> Vec<PathSpec> {
    let spec = |path: &crate::wire::message::PathPlan| {
        let device = usize::from(path.connector_device);
        PathSpec {
            device,
            peer_device: usize::from(path.listener_device),
            mtu: path.mtu.min(own.info.devices[device].mtu),
            reorders: path.reorders,
        }
    };
    plan.paths.iter().map(spec).collect()
}

fn demand(call: &Call, paths: usize) -> Demand {
    Demand {
        depths: Depths {
            send: SEND_QUEUE_DEPTH,
            receive: if call.options.notify {
                cts_receives(paths)
            } else {
                // The smallest that every driver takes; nothing is ever received by it.
                1
            },
            inline: if call.inner.config.inline { INLINE } else { 0 },
        },
        reserve: 0,
        receives: call.options.notify.then_some(CTS_RECEIVE),
        loops: false,
        notify: call.options.notify,
        offer_ece: false,
    }
}

fn finish(agreed: Agreed, peer: Peer, call: Call) -> Result<SendConnection, Error> {
    let plan = agreed.plan;
    let names = Names {
        peer_process: describe_process(&plan.info, peer.address()),
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
        local: agreed.own.devices,
        peer: plan.info.devices,
    };
    tracing::info!(
        "sending {names}, {}, MTU {}, {}",
        names.count_paths(),
        plan.paths[0].mtu,
        call.service().describe(&call.nic, &call.inner.config),
    );
    let max_message = names
        .paths
        .iter()
        .flat_map(|&(local, peer)| [names.local[local].max_message, names.peer[peer].max_message])
        .min()
        .unwrap_or(0);
    let (channel, decoder) = peer.into_parts();
    SendConnection::new(SenderParts {
        common: Parts {
            ends: agreed.ends,
            channel,
            decoder,
            names,
            nic: call.nic,
            inner: call.inner,
        },
        ring: agreed.ring,
        sizes: agreed.sizes,
        size_table: plan.size_table,
        first_entry: plan.first_entry,
        largest_write: stripe::largest_write(max_message),
    })
}

impl Call {
    /// What the packets of both directions carry.
    fn service(&self) -> Service {
        let wish = self.options.traffic_class;
        Service::of_data(&self.inner.config, self.nic.link(), wish)
    }
}
