//! The queue pair of a path in the making: created, and moved to RTS towards the peer's.

use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Destination, Ece, Gid, GlobalRoute, InitAttributes,
    QueuePair, QueuePairOptions, ReadyToReceive, ReadyToSend, RecvRequest,
};

use crate::config::Config;
use crate::connect::random;
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::wire::cts::ENTRIES;
use crate::wire::message::{DeviceOffer, EceOptions, Endpoint, Invalid, Link, PathPlan, Side, mtu};
use crate::wire::service::Service;

/// The queue pair of a path until the path is live.
pub(crate) struct NewQueuePair {
    pub(crate) queue_pair: QueuePair,
    /// Which of the own devices it is on.
    pub(crate) device: usize,
    /// Which of the peer's devices it leads to.
    pub(crate) peer_device: usize,
    /// Bytes.
    mtu: u32,
    /// Packets may overtake each other on the way.
    pub(crate) reorders: bool,
    /// Requests that the sending queue can hold.
    pub(crate) depth: u32,
    /// Bytes that can be sent inline.
    pub(crate) max_inline: u32,
    psn: u32,
    ece: Option<EceOptions>,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) send: u32,
    pub(crate) receive: u32,
    pub(crate) inline: u32,
}

/// Bytes that a queue pair should be able to take inline: small messages, size records and the
/// announcement of one buffer then need no second fetch by the device.
///
/// No more than that, because drivers reserve it for each request of the queue: with 48 bytes a
/// request has 256 bytes on Soft-RoCE (of which 208 are its own) and 128 on mlx5, and with a few more
/// it has twice as many.
pub(crate) const INLINE: u32 = 48;

/// Receives that are posted with one call, and replaced with one.
pub(crate) const RECEIVE_CHAIN: usize = 32;

/// Receives that a receiver posts on every path: one for each part that can be in flight, and those
/// that wait to be replaced.
pub(crate) const RECEIVE_QUEUE_DEPTH: u32 = ENTRIES as u32 + RECEIVE_CHAIN as u32;

/// CTS writes that the sending queue of a receiver can hold: they are acknowledged within a round trip.
pub(crate) const CTS_QUEUE_DEPTH: u32 = 63;

/// The ids of receives that CTS writes with immediate use up begin here: no work request has one of them.
pub(crate) const CTS_RECEIVE: u64 = u64::MAX << 40;

/// Receives that a sender which waits rather than polls has posted for CTS writes on each of `paths`
/// paths, which take turns: all that there can be at a time may have come, and as many again whose
/// messages are sent and not yet known to have arrived. With too few, CTS writes wait, no more.
pub(crate) fn cts_receives(paths: usize) -> u32 {
    (2 * ENTRIES as u32).div_ceil(paths as u32) + RECEIVE_CHAIN as u32
}

/// Flushes that can be in flight on a device.
pub(crate) const FLUSH_DEPTH: u32 = 32;

/// Minimum RNR timer code: 0.64 ms (InfiniBand specification, table 45). Receives are always
/// posted in advance, so it hardly ever matters.
const MIN_RNR_TIMER: u8 = 12;
/// Retry for ever when the peer has no receive posted.
const RNR_RETRY: u8 = 7;
/// The most routers that a RoCE packet may pass.
const HOP_LIMIT: u8 = 255;

impl NewQueuePair {
    /// A queue pair in state RESET. The depths have been made to fit the device.
    pub(crate) fn create(
        device: &Device,
        cq: &CompletionQueue,
        plan: &PathPlan,
        side: Side,
        depths: Depths,
    ) -> Result<Self, Error> {
        let queue_pair = create_queue_pair(device, cq, depths)?;
        let granted = queue_pair.capabilities();
        let (own, peer_device) = plan.devices(side);
        Ok(Self {
            device: own,
            peer_device,
            mtu: plan.mtu,
            depth: granted.max_send_wr.min(depths.send),
            // What is granted beyond the wish is used, too, unless none was wished for.
            max_inline: if depths.inline == 0 {
                0
            } else {
                granted.max_inline
            },
            reorders: plan.reorders,
            psn: random_psn()?,
            ece: None,
            queue_pair,
        })
    }

    /// Moves the queue pair to INIT, where receives can be posted. The other end will be able to do through it
    /// what `access` says.
    pub(crate) fn to_init(
        &self,
        device: &Device,
        pkey_index: u16,
        access: Access,
    ) -> Result<(), Error> {
        self.queue_pair.to_init(&InitAttributes {
            port: device.info.port,
            pkey_index,
            access,
        })?;
        Ok(())
    }

    /// Asks the driver which options of enhanced connection establishment it has, for the peer.
    pub(crate) fn offer_ece(&mut self) {
        self.ece = self.query_ece();
    }

    /// Takes the options that the peer has told, if this driver accepts them; without, the
    /// connection works just as well. Before the move to RTR.
    pub(crate) fn take_ece(&mut self, options: Option<EceOptions>) {
        self.ece = options.filter(|options| {
            let set = self.queue_pair.set_ece(&Ece {
                vendor_id: options.vendor_id,
                options: options.options,
                comp_mask: 0,
            });
            if let Err(error) = &set {
                tracing::debug!(%error, "without enhanced connection establishment");
            }
            set.is_ok()
        });
    }

    /// After the move to RTS: what of the options remained, for the peer.
    pub(crate) fn settle_ece(&mut self) {
        if self.ece.is_some() {
            self.ece = self.query_ece();
        }
    }

    pub(crate) fn has_ece(&self) -> bool {
        self.ece.is_some()
    }

    fn query_ece(&self) -> Option<EceOptions> {
        match self.queue_pair.ece() {
            Ok(options) => options.map(|options| EceOptions {
                vendor_id: options.vendor_id,
                options: options.options,
            }),
            Err(error) => {
                tracing::debug!(%error, "without enhanced connection establishment");
                None
            }
        }
    }

    /// This end, as the peer must know it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            number: self.queue_pair.number(),
            psn: self.psn,
            ece: self.ece,
        }
    }

    /// Connects to the peer: ready to receive.
    pub(crate) fn to_rtr(&self, join: &Join<'_>) -> Result<(), Error> {
        let Join {
            device,
            local,
            offer,
            remote,
            ..
        } = join;
        let path_mtu = mtu(self.mtu).ok_or_else(|| Error::Protocol {
            peer: offer.name.clone(),
            what: Invalid("an MTU that does not exist").to_string(),
        })?;
        // One outstanding RDMA read is more than this protocol uses.
        self.queue_pair.to_rtr(&ReadyToReceive {
            mtu: path_mtu,
            remote_qp: remote.number,
            remote_psn: remote.psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: MIN_RNR_TIMER,
            address: address(device, local, offer, join.service),
        })?;
        Ok(())
    }

    /// Ready to send, too.
    pub(crate) fn to_rts(&self, join: &Join<'_>) -> Result<(), Error> {
        self.queue_pair.to_rts(&ReadyToSend {
            psn: self.psn,
            timeout: join.config.ack_exponent(),
            retry_count: retry_count(join.config, join.device),
            rnr_retry: RNR_RETRY,
            max_rd_atomic: 1,
        })?;
        Ok(())
    }
}

/// Posts `count` receives without buffers, which come back with `id`; possible from state INIT on.
pub(crate) fn post_receives(
    queue_pair: &QueuePair,
    id: u64,
    count: u32,
) -> Result<(), ibnet_verbs::PostError> {
    let mut chain = [RecvRequest::new(id); RECEIVE_CHAIN];
    let mut left = count as usize;
    while left > 0 {
        let count = left.min(RECEIVE_CHAIN);
        // SAFETY: these receives name no memory.
        unsafe { queue_pair.post_recv(&mut chain[..count]) }?;
        left -= count;
    }
    Ok(())
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

/// What a path must be told to connect to the other end.
pub(crate) struct Join<'a> {
    pub(crate) config: &'a Config,
    pub(crate) device: &'a Device,
    pub(crate) local: &'a LocalPort,
    pub(crate) offer: &'a DeviceOffer,
    pub(crate) remote: Endpoint,
    pub(crate) service: Service,
}

/// Creates the queue pair, asking for less inline room as long as the device refuses: there is no
/// attribute that tells how much it can do.
fn create_queue_pair(
    device: &Device,
    cq: &CompletionQueue,
    depths: Depths,
) -> Result<QueuePair, Error> {
    let mut max_inline = depths.inline;
    loop {
        let created = device.pd.create_qp(&QueuePairOptions {
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: depths.send,
            max_recv_wr: depths.receive,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline,
            signal_all: false,
        });
        match created {
            Err(error) if max_inline > 0 => {
                tracing::debug!(%error, max_inline, "less inline room");
                // Devices have powers of two: 48, 32, 16, … 1, 0.
                max_inline = (max_inline - 1).checked_ilog2().map_or(0, |log2| 1 << log2);
            }
            other => return Ok(other?),
        }
    }
}

fn address(
    device: &Device,
    local: &LocalPort,
    offer: &DeviceOffer,
    service: Service,
) -> AddressVector {
    // The whole prefix counts. NCCL compares 16 bits of it, which takes subnets that
    // differ further left for one; a needless global route costs 40 bytes, a missing one the
    // connection.
    let crosses_subnets =
        || offer.gid().subnet_prefix() != local.gid.subnet_prefix() && !offer.gid().is_zero();
    let needs_route = local.port.grh_required || crosses_subnets();
    let route = GlobalRoute {
        dgid: offer.gid(),
        sgid_index: local.gid_index,
        hop_limit: HOP_LIMIT,
        traffic_class: service.traffic_class,
        flow_label: 0,
    };
    AddressVector {
        // The *local* port.
        port: device.info.port,
        service_level: service.level,
        destination: match offer.link {
            Link::Ethernet => Destination::global(route),
            Link::InfiniBand => Destination::infiniband(
                destination_lid(&local.gid, offer),
                needs_route.then_some(route),
            ),
        },
    }
}

/// The LID that packets to `offer` carry. A LID means something within a subnet only: a port of
/// another one is reached by the LID of the router to it, which a routable GID carries (its FLID).
///
/// Here the subnets are told apart by the last 16 bits of their prefixes, as by NCCL: the bits
/// before them are the FLID itself, and differ within a subnet.
fn destination_lid(local: &Gid, offer: &DeviceOffer) -> u16 {
    let gid = offer.gid();
    let subnet = |gid: &Gid| gid.subnet_prefix() as u16;
    if gid.is_zero() || subnet(&gid) == subnet(local) {
        return offer.lid;
    }
    match ibnet_gid::flid(&gid) {
        0 => {
            tracing::warn!(
                "{} is in another subnet, and its GID {gid} names no router (FLID 0): its LID {} \
                 hardly leads there; see `gid.flid_index`",
                offer.name,
                offer.lid
            );
            offer.lid
        }
        router => router,
    }
}

/// A random 24-bit packet sequence number, so that packets of an earlier queue pair with the same
/// number are not taken for ours.
fn random_psn() -> Result<u32, Error> {
    Ok(random::u32()? & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(flid: u16, subnet: u16) -> Gid {
        let prefix = 0xfec0_0000_0000_0000 | u64::from(flid) << 16 | u64::from(subnet);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&prefix.to_be_bytes());
        bytes[15] = 7;
        Gid(bytes)
    }

    #[test]
    fn a_port_of_another_subnet_is_reached_by_its_router() {
        // The last 16 bits of the prefix tell the subnet, the 16 before are the FLID.
        let lid = |local: Gid, remote: Gid| {
            let offer = DeviceOffer {
                name: "mlx5_0".to_owned(),
                port: 1,
                link: Link::InfiniBand,
                lid: 5,
                gid: remote.0,
                gid_index: 1,
                prefix_length: None,
                roce_version: None,
                rail: None,
                mtu: 4096,
                max_message: 1 << 30,
                reorders: false,
            };
            destination_lid(&local, &offer)
        };
        assert_eq!(lid(gid(0, 1), gid(0, 1)), 5, "the same subnet");
        assert_eq!(
            lid(gid(0x11, 1), gid(0x22, 1)),
            5,
            "the same, behind two routers"
        );
        assert_eq!(lid(gid(0x11, 1), gid(0x22, 2)), 0x22);
        assert_eq!(lid(gid(0x11, 1), gid(0, 2)), 5, "no router is known");
        assert_eq!(lid(gid(0x11, 1), Gid([0; 16])), 5, "no GID is known");
    }
}
