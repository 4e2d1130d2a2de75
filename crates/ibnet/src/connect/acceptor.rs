//! The conversation of the end that listens, which will receive, with one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ibnet_verbs::Access;

use crate::connect::control::Channel;
use crate::connect::established::{Established, NewReceiver, QueuePairs};
use crate::connect::introduction::introduce;
use crate::connect::names::Names;
use crate::connect::options::ListenOptions;
use crate::connect::peer::{Peer, describe_process};
use crate::connect::plan::decide;
use crate::connect::queue_pair::{
    CTS_QUEUE_DEPTH, Depths, FLUSH_DEPTH, INLINE, RECEIVE_QUEUE_DEPTH,
};
use crate::connect::recipe::Demand;
use crate::connect::service;
use crate::connect::setup::{Remote, Setup};
use crate::connect::shared::Shared;
use crate::connect::waits::Budget;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsStaging;
use crate::wire::cts::{self, SIZE_TABLE_BYTES};
use crate::wire::handle::Cookie;
use crate::wire::message::{
    Endpoints, Hello, Invalid, Message, PathPlan, PeerInfo, Plan, RemoteArea, Side, printable,
};

/// How long a client may take to show the cookie. Until then it may be anybody.
const STRANGER_LIMIT: Duration = Duration::from_secs(60);

/// Where a client has come to.
pub(crate) struct Listening {
    pub(crate) cookie: Cookie,
    pub(crate) options: ListenOptions,
    pub(crate) nic: Arc<Nic>,
    pub(crate) shared: Arc<Shared>,
}

/// What the conversation has made.
struct Agreed {
    queue_pairs: QueuePairs,
    staging: CtsStaging,
    sizes: Area,
    ring: RemoteArea,
    own: PeerInfo,
    hello: Hello,
    paths: Vec<PathPlan>,
}

/// Makes the connection with a client. `is_known` is set once it has shown the cookie; what ends the
/// conversation before is of no interest.
pub(crate) async fn accept(
    channel: Channel,
    listening: Arc<Listening>,
    is_known: Arc<AtomicBool>,
    budget: Budget,
) -> Result<NewReceiver, Error> {
    let doing = format!(
        "accepting {} on {}",
        channel.peer(),
        listening.nic.info().name
    );
    let shared = &listening.shared;
    let limit = shared.config.connect_timeout;
    let stranger_limit = limit.map_or(STRANGER_LIMIT, |limit| limit.min(STRANGER_LIMIT));
    let mut peer = Peer::new(channel, doing, Some(stranger_limit), shared);
    let hello = greeting(&mut peer, &listening.cookie).await?;
    is_known.store(true, Ordering::Relaxed);
    peer.recognise(&hello.info, limit);
    match agree(&mut peer, hello, &listening, budget).await {
        Ok(agreed) => Ok(finish(agreed, peer, &listening)),
        Err(error) => {
            peer.refuse(&error);
            Err(error)
        }
    }
}

/// Who does not know the cookie learns nothing.
async fn greeting(peer: &mut Peer, cookie: &Cookie) -> Result<Hello, Error> {
    match peer.receive("the client's greeting").await? {
        Message::Hello(hello) if same(&hello.cookie, cookie) => Ok(hello),
        Message::Hello(_) => Err(peer.invalid(Invalid("a wrong cookie"))),
        _ => Err(peer.invalid(Invalid("a message out of turn"))),
    }
}

async fn agree(
    peer: &mut Peer,
    hello: Hello,
    listening: &Listening,
    budget: Budget,
) -> Result<Agreed, Error> {
    let (nic, shared) = (&listening.nic, &listening.shared);
    let config = &shared.config;
    let own = introduce(nic, config)?;
    let queue_pairs = config.queue_pairs.max(hello.preferences.queue_pairs);
    let paths = decide(&hello.info, &own.info, usize::from(queue_pairs))?;
    if config.warn_rail_local {
        warn_of_rails(&own.info, &hello.info);
    }

    let domains = || nic.members().iter().map(|device| &device.pd);
    let entry_bytes = cts::entry_bytes(nic.members().len());
    let staging = CtsStaging::new(domains(), entry_bytes)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let sizes = Area::new(domains(), SIZE_TABLE_BYTES, access)?;
    let demand = demand(listening, entry_bytes);
    let agreed = (paths.clone(), Side::Listener);
    let mut setup = Setup::new(nic, &own.locals, agreed, demand, shared, budget)?;
    setup.create(&mut peer.waits).await?;

    peer.send(&Message::Plan(Plan {
        paths: paths.clone(),
        queue_pairs: setup.endpoints(),
        entry_bytes: entry_bytes as u8,
        first_entry: config.first_entry,
        size_table: RemoteArea {
            address: sizes.address(),
            rkeys: sizes.rkeys(),
        },
        info: own.info.clone(),
    }))?;

    let endpoint = match peer.receive("the client's queue pairs").await? {
        Message::Endpoints(endpoint) => endpoint,
        other => return Err(peer.unexpected(&other)),
    };
    check(&endpoint, paths.len(), &hello.info).map_err(|invalid| peer.invalid(invalid))?;
    let remote = Remote {
        offers: &hello.info.devices,
        endpoints: &endpoint.queue_pairs,
        service: service::of_cts(hello.preferences.service, config),
    };
    let connected = setup.connect(&remote, &mut peer.waits).await;
    connected.map_err(|error| error.joining(|| describe_process(&hello.info, peer.address())))?;

    peer.send(&Message::Ready)?;
    peer.sent().await?;
    let queue_pairs = setup.into_queue_pairs();
    Ok(Agreed {
        queue_pairs,
        staging,
        sizes,
        ring: endpoint.ring,
        own: own.info,
        hello,
        paths,
    })
}

/// What of the client's ends can only be checked with the plan known.
fn check(endpoint: &Endpoints, paths: usize, client: &PeerInfo) -> Result<(), Invalid> {
    if endpoint.queue_pairs.len() != paths {
        return Err(Invalid("a number of queue pairs that was not agreed"));
    }
    if endpoint.ring.rkeys.len() != client.devices.len() {
        return Err(Invalid("a number of rkeys that is not that of its devices"));
    }
    Ok(())
}

fn demand(listening: &Listening, entry_bytes: usize) -> Demand {
    let config = &listening.shared.config;
    Demand {
        depths: Depths {
            send: CTS_QUEUE_DEPTH,
            receive: RECEIVE_QUEUE_DEPTH,
            inline: if config.inline {
                // One buffer's; groups are fetched by the device.
                INLINE.max(entry_bytes as u32)
            } else {
                0
            },
        },
        reserve: FLUSH_DEPTH,
        // They come back with the number of their path.
        receives: Some(0),
        loops: config.flush,
        notify: listening.options.notify,
        offer_ece: config.ece,
    }
}

fn finish(agreed: Agreed, peer: Peer, listening: &Listening) -> NewReceiver {
    let (hello, paths) = (agreed.hello, agreed.paths);
    let shared = &listening.shared;
    let names = Names {
        peer_process: describe_process(&hello.info, peer.address()),
        local: agreed.own.devices,
        peer: hello.info.devices,
        paths: (paths.iter())
            .map(|path| path.devices(Side::Listener))
            .collect(),
    };
    tracing::info!(
        "receiving {names}, {}, MTU {}, {}",
        names.count_paths(),
        paths[0].mtu,
        service::describe(
            service::of_cts(hello.preferences.service, &shared.config),
            &listening.nic,
            &shared.config
        ),
    );
    let (channel, decoder) = peer.into_parts();
    NewReceiver {
        common: Established {
            queue_pairs: agreed.queue_pairs,
            channel,
            decoder,
            names,
            nic: Arc::clone(&listening.nic),
            shared: Arc::clone(shared),
        },
        staging: agreed.staging,
        sizes: agreed.sizes,
        ring: agreed.ring,
        first_entry: shared.config.first_entry,
        cts_with_immediate: hello.preferences.notify,
    }
}

/// One line if the devices of the two ends have different names: indices of two
/// hosts mean nothing to each other.
fn warn_of_rails(own: &PeerInfo, theirs: &PeerInfo) {
    let names = |info: &PeerInfo| -> Vec<String> {
        let devices = info.devices.iter();
        devices
            .map(|device| format!("{}:{}", printable(&device.name), device.port))
            .collect()
    };
    let (own, others) = (names(own), names(theirs));
    if own != others {
        tracing::warn!(
            "the peer on {} has other devices than this end: {} and {} (`warn_rail_local`)",
            printable(&theirs.host),
            others.join(", "),
            own.join(", ")
        );
    }
}

/// Compares without telling by the time it takes how much is right.
fn same(one: &Cookie, other: &Cookie) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |difference, (a, b)| difference | (a ^ b))
        == 0
}
