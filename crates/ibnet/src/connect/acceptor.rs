//! The conversation of the end that listens, which will receive, with one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ibnet_verbs::Access;

use crate::connect::control::Channel;
use crate::connect::introduction::introduce;
use crate::connect::peer::{Peer, describe_process};
use crate::connect::plan::{PathDecision, decide};
use crate::connect::setup::{Demand, Ends, Remote, Setup};
use crate::connect::waits::Budget;
use crate::connection::flush::Flusher;
use crate::connection::path::{Depths, INLINE, PathSpec};
use crate::connection::receiver::{
    COMPLETION_RESERVE, CTS_QUEUE_DEPTH, RECEIVE_QUEUE_DEPTH, ReceiverParts, RecvConnection,
};
use crate::connection::{Names, Parts};
use crate::device::nic::Nic;
use crate::error::Error;
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsStaging;
use crate::transport::Inner;
use crate::transport::listener::ListenOptions;
use crate::wire::cts::{self, SIZE_TABLE_BYTES};
use crate::wire::handle::Cookie;
use crate::wire::message::{
    Endpoint, Hello, Invalid, Message, PathPlan, PeerInfo, Plan, QueuePairEnd, RemoteArea,
    printable,
};

/// How long a client may take to show the cookie. Until then it may be anybody.
const STRANGER_LIMIT: Duration = Duration::from_secs(60);

/// Where a client has come to.
pub(crate) struct Listening {
    pub(crate) cookie: Cookie,
    pub(crate) options: ListenOptions,
    pub(crate) nic: Arc<Nic>,
    pub(crate) inner: Arc<Inner>,
}

/// What the conversation has made.
struct Agreed {
    ends: Ends,
    staging: CtsStaging,
    sizes: Area,
    ring: RemoteArea,
    flusher: Flusher,
    own: PeerInfo,
    hello: Hello,
    decisions: Vec<PathDecision>,
}

/// Makes the connection with a client. `is_known` is set once it has shown the cookie; what ends the
/// conversation before is of no interest.
pub(crate) async fn accept(
    channel: Channel,
    listening: Arc<Listening>,
    is_known: Arc<AtomicBool>,
    budget: Budget,
) -> Result<RecvConnection, Error> {
    let doing = format!(
        "accepting {} on {}",
        channel.peer(),
        listening.nic.info().name
    );
    let inner = &listening.inner;
    let limit = inner.config.connect_timeout;
    let stranger_limit = limit.map_or(STRANGER_LIMIT, |limit| limit.min(STRANGER_LIMIT));
    let mut peer = Peer::new(channel, doing, Some(stranger_limit), inner);
    let hello = greeting(&mut peer, &listening.cookie).await?;
    is_known.store(true, Ordering::Relaxed);
    peer.recognise(&hello.info, limit);
    match agree(&mut peer, hello, &listening, budget).await {
        Ok(agreed) => finish(agreed, peer, &listening),
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
    let (nic, inner) = (&listening.nic, &listening.inner);
    let config = &inner.config;
    let own = introduce(nic, config)?;
    let queue_pairs = config.queue_pairs.max(hello.preferences.queue_pairs);
    let decisions = decide(&hello.info, &own.info, usize::from(queue_pairs))?;
    if config.warn_rail_local {
        warn_of_rails(&own.info, &hello.info);
    }

    let domains = || nic.members().iter().map(|device| &device.pd);
    let entry_bytes = cts::entry_bytes(nic.members().len());
    let staging = CtsStaging::new(domains(), entry_bytes)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let sizes = Area::new(domains(), SIZE_TABLE_BYTES, access)?;
    let flusher = Flusher::new(config, domains())?;
    let (specs, demand) = (specs(&decisions), demand(listening, entry_bytes, &flusher));
    let mut setup = Setup::new(nic, &own.locals, specs, demand, inner, budget)?;
    setup.create(&mut peer.waits).await?;

    peer.send(&Message::Plan(Plan {
        paths: paths(&decisions, &setup.queue_pair_ends()),
        entry_bytes: entry_bytes as u8,
        first_entry: config.first_entry,
        size_table: RemoteArea {
            address: sizes.address(),
            rkeys: sizes.rkeys(),
        },
        info: own.info.clone(),
    }))?;

    let endpoint = match peer.receive("the client's queue pairs").await? {
        Message::Endpoint(endpoint) => endpoint,
        other => return Err(peer.unexpected(&other)),
    };
    check(&endpoint, decisions.len(), &hello.info).map_err(|invalid| peer.invalid(invalid))?;
    let remote = Remote {
        offers: &hello.info.devices,
        ends: &endpoint.queue_pairs,
        service: hello.preferences.service.of_cts(config),
    };
    let connected = setup.connect(&remote, &mut peer.waits).await;
    connected.map_err(|error| error.joining(|| describe_process(&hello.info, peer.address())))?;

    peer.send(&Message::Ready)?;
    peer.sent().await?;
    let ends = setup.into_ends();
    Ok(Agreed {
        ends,
        staging,
        sizes,
        ring: endpoint.ring,
        flusher,
        own: own.info,
        hello,
        decisions,
    })
}

/// What of the client's ends can only be checked with the plan known.
fn check(endpoint: &Endpoint, paths: usize, client: &PeerInfo) -> Result<(), Invalid> {
    if endpoint.queue_pairs.len() != paths {
        return Err(Invalid("a number of queue pairs that was not agreed"));
    }
    if endpoint.ring.rkeys.len() != client.devices.len() {
        return Err(Invalid("a number of rkeys that is not that of its devices"));
    }
    Ok(())
}

fn specs(decisions: &[PathDecision]) -> Vec<PathSpec> {
    let spec = |decision: &PathDecision| PathSpec {
        device: decision.listener_device,
        peer_device: decision.connector_device,
        mtu: decision.mtu,
        reorders: decision.reorders,
    };
    decisions.iter().map(spec).collect()
}

fn paths(decisions: &[PathDecision], queue_pairs: &[QueuePairEnd]) -> Vec<PathPlan> {
    let path = |(decision, queue_pair): (&PathDecision, &QueuePairEnd)| PathPlan {
        connector_device: decision.connector_device as u8,
        listener_device: decision.listener_device as u8,
        mtu: decision.mtu,
        reorders: decision.reorders,
        queue_pair: *queue_pair,
    };
    decisions.iter().zip(queue_pairs).map(path).collect()
}

fn demand(listening: &Listening, entry_bytes: usize, flusher: &Flusher) -> Demand {
    let config = &listening.inner.config;
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
        reserve: COMPLETION_RESERVE,
        // They come back with the number of their path.
        receives: Some(0),
        loops: flusher.is_enabled(),
        notify: listening.options.notify,
        offer_ece: config.ece,
    }
}

fn finish(agreed: Agreed, peer: Peer, listening: &Listening) -> Result<RecvConnection, Error> {
    let (hello, decisions) = (agreed.hello, agreed.decisions);
    let inner = &listening.inner;
    let names = Names {
        peer_process: describe_process(&hello.info, peer.address()),
        local: agreed.own.devices,
        peer: hello.info.devices,
        paths: decisions
            .iter()
            .map(|decision| (decision.listener_device, decision.connector_device))
            .collect(),
    };
    tracing::info!(
        "receiving {names}, {}, MTU {}, {}",
        names.count_paths(),
        decisions[0].mtu,
        (hello.preferences.service)
            .of_cts(&inner.config)
            .describe(&listening.nic, &inner.config),
    );
    let (channel, decoder) = peer.into_parts();
    RecvConnection::new(ReceiverParts {
        common: Parts {
            ends: agreed.ends,
            channel,
            decoder,
            names,
            nic: Arc::clone(&listening.nic),
            inner: Arc::clone(inner),
        },
        flusher: agreed.flusher,
        staging: agreed.staging,
        sizes: agreed.sizes,
        ring: agreed.ring,
        first_entry: inner.config.first_entry,
        cts_with_immediate: hello.preferences.notify,
    })
}

/// One line if the devices of the two ends have different names (pitfall 52: names, because indices of two
/// hosts mean nothing to each other).
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
