//! A path: one reliable queue pair between one local and one remote device.

use verbs::{
    Access, AddressVector, CompletionQueue, Destination, GlobalRoute, InitAttributes, QueuePair,
    QueuePairOptions, ReadyToReceive, ReadyToSend,
};

use crate::config::Config;
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::handshake::message::{DeviceOffer, Invalid, Link, QueuePairEnd, mtu};

/// A queue pair, with the count of work requests that its sending queue holds.
pub(crate) struct Path {
    pub(crate) queue_pair: QueuePair,
    /// Requests that the sending queue can hold.
    depth: u32,
    /// Requests that are in it: posted, and not known to be finished.
    in_flight: u32,
    /// Bytes that can be sent inline.
    pub(crate) max_inline: u32,
    psn: u32,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Depths {
    pub(crate) send: u32,
    pub(crate) receive: u32,
    pub(crate) inline: u32,
}

/// Minimum RNR timer code: 0.64 ms (InfiniBand specification, table 45). Receives are always
/// posted in advance, so it hardly ever matters.
const MIN_RNR_TIMER: u8 = 12;
/// Retry for ever when the peer has no receive posted.
const RNR_RETRY: u8 = 7;
/// The most routers that a RoCE packet may pass.
const HOP_LIMIT: u8 = 255;

impl Path {
    /// A queue pair in state INIT that the peer may write through. Everything is clamped to what
    /// the device can do.
    pub(crate) fn create(
        device: &Device,
        cq: &CompletionQueue,
        depths: Depths,
    ) -> Result<Self, Error> {
        let queue_pair = create_queue_pair(device, cq, depths)?;
        queue_pair.to_init(&InitAttributes {
            port: device.info.port,
            pkey_index: device.local_port()?.pkey_index,
            access: Access::REMOTE_WRITE,
        })?;
        let granted = queue_pair.capabilities();
        Ok(Self {
            depth: granted.max_send_wr.min(depths.send),
            in_flight: 0,
            max_inline: granted.max_inline,
            psn: random_psn()?,
            queue_pair,
        })
    }

    /// This end, as the peer must know it.
    pub(crate) fn end(&self) -> QueuePairEnd {
        QueuePairEnd {
            number: self.queue_pair.number(),
            psn: self.psn,
        }
    }

    /// Connects to `remote` on the peer's device `offer`, and makes ready to receive and to send.
    pub(crate) fn join(
        &self,
        device: &Device,
        local: &LocalPort,
        remote: QueuePairEnd,
        offer: &DeviceOffer,
        options: &PathOptions<'_>,
    ) -> Result<(), Error> {
        let path_mtu = mtu(options.mtu).ok_or_else(|| Error::Protocol {
            peer: offer.name.clone(),
            what: Invalid("an MTU that does not exist").to_string(),
        })?;
        let config = options.config;
        let traffic_class = config.traffic_class.or(options.traffic_class).unwrap_or(0);
        // One outstanding RDMA read is more than this protocol uses.
        self.queue_pair.to_rtr(&ReadyToReceive {
            mtu: path_mtu,
            remote_qp: remote.number,
            remote_psn: remote.psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: MIN_RNR_TIMER,
            address: address(device, local, offer, config.service_level, traffic_class),
        })?;
        self.queue_pair.to_rts(&ReadyToSend {
            psn: self.psn,
            timeout: config.timeout,
            retry_count: retry_count(config, device),
            rnr_retry: RNR_RETRY,
            max_rd_atomic: 1,
        })?;
        Ok(())
    }

    /// Requests that can be posted now.
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.in_flight
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn posted(&mut self, requests: u32) {
        self.in_flight += requests;
    }

    /// A completion says that the oldest `requests` are finished.
    pub(crate) fn finished(&mut self, requests: u32) {
        self.in_flight = self.in_flight.saturating_sub(requests);
    }
}

/// How often a queue pair of `device` sends again before it gives up. The kernel's Soft-RoCE takes 7
/// for "for ever", and a dead path would never be an error.
pub(crate) fn retry_count(config: &Config, device: &Device) -> u8 {
    /// What drivers of software devices give for their vendor (`RXE_VENDOR_ID`).
    const NO_VENDOR: u32 = 0xff_ffff;
    let most = if device.attributes.vendor_id == NO_VENDOR {
        6
    } else {
        7
    };
    config.retry_count.min(most)
}

/// What a path must be told besides its two ends.
pub(crate) struct PathOptions<'a> {
    pub(crate) config: &'a Config,
    pub(crate) traffic_class: Option<u8>,
    /// Bytes.
    pub(crate) mtu: u32,
}

/// Creates the queue pair, asking for less inline room as long as the device refuses: there is no
/// attribute that tells how much it can do.
fn create_queue_pair(
    device: &Device,
    cq: &CompletionQueue,
    depths: Depths,
) -> Result<QueuePair, Error> {
    let most = device.attributes.max_qp_wr;
    let mut max_inline = depths.inline;
    loop {
        let created = device.pd.create_qp(&QueuePairOptions {
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: depths.send.min(most),
            max_recv_wr: depths.receive.min(most).max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline,
            signal_all: false,
        });
        match created {
            Err(error) if max_inline > 0 => {
                tracing::debug!(%error, max_inline, "less inline room");
                max_inline /= 2;
            }
            other => return Ok(other?),
        }
    }
}

fn address(
    device: &Device,
    local: &LocalPort,
    offer: &DeviceOffer,
    service_level: u8,
    traffic_class: u8,
) -> AddressVector {
    let crosses_subnets =
        || offer.gid().subnet_prefix() != local.gid.subnet_prefix() && !offer.gid().is_zero();
    let needs_route = local.port.grh_required || crosses_subnets();
    let route = GlobalRoute {
        dgid: offer.gid(),
        sgid_index: local.gid_index,
        hop_limit: HOP_LIMIT,
        traffic_class,
        flow_label: 0,
    };
    AddressVector {
        // The *local* port (pitfall 39).
        port: device.info.port,
        service_level,
        destination: match offer.link {
            Link::Ethernet => Destination::Global(route),
            Link::InfiniBand => Destination::infiniband(offer.lid, needs_route.then_some(route)),
        },
    }
}

/// A random 24-bit packet sequence number, so that packets of an earlier queue pair with the same
/// number are not taken for ours.
fn random_psn() -> Result<u32, Error> {
    Ok(random_u32()? & 0xff_ffff)
}

pub(crate) fn random_u32() -> Result<u32, Error> {
    getrandom::u32().map_err(|error| {
        Error::system(
            "reading random bytes",
            std::io::Error::other(error.to_string()),
        )
    })
}

pub(crate) fn random_cookie() -> Result<[u8; 16], Error> {
    let mut cookie = [0; 16];
    getrandom::fill(&mut cookie).map_err(|error| {
        Error::system(
            "reading random bytes",
            std::io::Error::other(error.to_string()),
        )
    })?;
    Ok(cookie)
}
