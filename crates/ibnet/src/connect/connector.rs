//! The conversation of the end that connects, which will send.

use std::io;
use std::sync::Arc;

use ibnet_verbs::Access;

use crate::connect::control::Channel;
use crate::connect::dial::dial;
use crate::connect::established::{Established, NewSender, QueuePairs};
use crate::connect::interface::Route;
use crate::connect::introduction::Introduction;
use crate::connect::names::Names;
use crate::connect::options::ConnectOptions;
use crate::connect::pairing::obstacle;
use crate::connect::peer::{Peer, describe_process};
use crate::connect::queue_pair::{CTS_RECEIVE, Depths, INLINE, cts_receives};
use crate::connect::recipe::Demand;
use crate::connect::service;
use crate::connect::setup::{Remote, Setup};
use crate::connect::shared::Shared;
use crate::connect::waits::{Budget, Waits};
use crate::device::SEND_QUEUE_DEPTH;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsRing;
use crate::wire::cts::{SIZE_BYTES, SIZE_TABLE_BYTES};
use crate::wire::handle::Handle;
use crate::wire::message::{
    Endpoints, Hello, Invalid, Message, PeerInfo, Plan, Preferences, RemoteArea, Side,
};
use crate::wire::service::Service;
use crate::wire::stripe;

/// What is to be connected.
pub(crate) struct Call {
    pub(crate) handle: Handle,
    pub(crate) options: ConnectOptions,
    pub(crate) nic: Arc<Nic>,
    pub(crate) own: Introduction,
    pub(crate) shared: Arc<Shared>,
}

/// What the conversation has made.
struct Agreed {
    queue_pairs: QueuePairs,
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
) -> Result<NewSender, Error> {
    let config = &call.shared.config;
    let mut waits = Waits::new(&call.shared);
    let channel = dial(first, &route, &call.nic.info().name, config, &mut waits).await?;
    let doing = format!(
        "connecting {} to the listener at {}",
        call.nic.info().name,
        call.handle.address()
    );
    let mut peer = Peer::new(channel, doing, config.connect_timeout, &call.shared);
    match agree(&mut peer, &call, budget).await {
        Ok(agreed) => Ok(finish(agreed, peer, call)),
        Err(error) => {
            peer.refuse(&error);
            Err(error)
        }
    }
}

async fn agree(peer: &mut Peer, call: &Call, budget: Budget) -> Result<Agreed, Error> {
    let config = &call.shared.config;
    let own = call.own.renewed(&call.nic, config)?;
    peer.send(&Message::Hello(Hello {
        cookie: *call.handle.cookie(),
        info: own.info.clone(),
        preferences: Preferences {
            queue_pairs: config.queue_pairs,
            service: call.service(),
            notify: call.options.notify,
        },
    }))?;

    let mut plan = match peer
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
    let demand = demand(call, plan.paths.len());
    for path in &mut plan.paths {
        // Each end keeps to its own limit, whatever the plan says.
        let own = &own.info.devices[usize::from(path.connector_device)];
        path.mtu = path.mtu.min(own.mtu);
    }
    let paths = (plan.paths.clone(), Side::Connector);
    let mut setup = Setup::new(&call.nic, &own.locals, paths, demand, &call.shared, budget)?;
    setup.create(&mut peer.waits).await?;
    let sizes = if setup.least_inline() < SIZE_BYTES {
        Some(Area::new(devices(), SIZE_TABLE_BYTES, Access::empty())?)
    } else {
        None
    };
    let remote = Remote {
        offers: &plan.info.devices,
        endpoints: &plan.queue_pairs,
        service: call.service(),
    };
    let connected = setup.connect(&remote, &mut peer.waits).await;
    connected.map_err(|error| error.joining(|| describe_process(&plan.info, peer.address())))?;

    peer.send(&Message::Endpoints(Endpoints {
        queue_pairs: setup.endpoints(),
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
        queue_pairs: setup.into_queue_pairs(),
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
            inline: if call.shared.config.inline { INLINE } else { 0 },
        },
        reserve: 0,
        receives: call.options.notify.then_some(CTS_RECEIVE),
        loops: false,
        notify: call.options.notify,
        offer_ece: false,
    }
}

fn finish(agreed: Agreed, peer: Peer, call: Call) -> NewSender {
    let plan = agreed.plan;
    let names = Names {
        peer_process: describe_process(&plan.info, peer.address()),
        paths: (plan.paths.iter())
            .map(|path| path.devices(Side::Connector))
            .collect(),
        local: agreed.own.devices,
        peer: plan.info.devices,
    };
    tracing::info!(
        "sending {names}, {}, MTU {}, {}",
        names.count_paths(),
        plan.paths[0].mtu,
        service::describe(call.service(), &call.nic, &call.shared.config),
    );
    let max_message = names
        .paths
        .iter()
        .flat_map(|&(local, peer)| [names.local[local].max_message, names.peer[peer].max_message])
        .min()
        .unwrap_or(0);
    let (channel, decoder) = peer.into_parts();
    NewSender {
        common: Established {
            queue_pairs: agreed.queue_pairs,
            channel,
            decoder,
            names,
            nic: call.nic,
            shared: call.shared,
        },
        ring: agreed.ring,
        sizes: agreed.sizes,
        size_table: plan.size_table,
        first_entry: plan.first_entry,
        largest_write: stripe::largest_write(max_message),
    }
}

impl Call {
    /// What the packets of both directions carry.
    fn service(&self) -> Service {
        let wish = self.options.traffic_class;
        service::of_data(&self.shared.config, self.nic.link(), wish)
    }
}
