//! What the two ends say to each other, and what of it is believed.
//!
//! Every message that arrives passes [`Message::check`], which bounds every count, index, size and
//! text before anything uses it.

use std::fmt;

use ibnet_verbs::{Gid, LinkLayer, Mtu};
use serde::{Deserialize, Serialize};

use crate::wire::cts;
use crate::wire::handle::Cookie;
use crate::wire::service::{MAX_LEVEL, Service};

/// Version of the protocol. Both ends must have the same.
pub(crate) const PROTOCOL: u16 = 6;

/// The most devices of one end of a connection.
pub(crate) const MAX_DEVICES: usize = 8;

/// The most paths of a connection.
pub(crate) const MAX_PATHS: usize = 128;

pub(crate) const MAX_NAME: usize = 64;
const MAX_REASON: usize = 512;

/// Everything that travels on the TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    Hello(Hello),
    Plan(Plan),
    Endpoints(Endpoints),
    Ready,
    Reject(Reject),
    Close(Close),
    Path(PathNews),
}

/// What an end of a connection tells of one of its paths, from when that has failed until it is live again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathNews {
    pub(crate) path: u8,
    /// Which of the queue pairs that the path has had one after another, from 0.
    pub(crate) epoch: u32,
    pub(crate) event: PathEvent,
}

/// What has become of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PathEvent {
    /// Its queue pair is in state ERR.
    Down,
    /// All work requests have come back: nothing can land through it any more.
    Drained {
        /// Parts that a receiver has taken from the path since the beginning.
        taken: u64,
    },
    /// The queue pair of this epoch, and the state of its port.
    Offer {
        device: DeviceOffer,
        endpoint: Endpoint,
    },
    /// It is connected to the queue pair that was offered.
    Ready,
}

/// The connector introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) cookie: Cookie,
    pub(crate) info: PeerInfo,
    pub(crate) preferences: Preferences,
}

/// What the connector would like, for the listener to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preferences {
    /// Queue pairs for each pair of devices: 1..=[`MAX_PATHS`].
    pub(crate) queue_pairs: u8,
    /// What the packets of both directions carry.
    pub(crate) service: Service,
    /// It does not poll all the time: each announcement comes with an immediate, for which it has
    /// receives posted. The listener does as it is told.
    pub(crate) notify: bool,
}

/// Who one end is and what it can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) devices: Vec<DeviceOffer>,
}

/// One device port of one end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DeviceOffer {
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) link: Link,
    pub(crate) lid: u16,
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u8,
    /// Length in bits of the network's prefix in the IP address that the GID holds, if known:
    /// at most 32 for IPv4, at most 128 for IPv6. Only on Ethernet.
    pub(crate) prefix_length: Option<u8>,
    /// 1 or 2, if known. Only on Ethernet.
    pub(crate) roce_version: Option<u8>,
    /// The rail that the user put the device on, if at all.
    pub(crate) rail: Option<u8>,
    /// Bytes: 256 to 4096.
    pub(crate) mtu: u32,
    /// Bytes.
    pub(crate) max_message: u32,
    /// Whether the fabric may reorder packets (`adaptive_routing`).
    pub(crate) reorders: bool,
}

/// The link layer, as far as the protocol goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Link {
    InfiniBand,
    Ethernet,
}

/// The listener's decision, with its own ends of the paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) info: PeerInfo,
    pub(crate) paths: Vec<PathPlan>,
    /// The listener's, in the order of the paths.
    pub(crate) queue_pairs: Vec<Endpoint>,
    /// Bytes from one entry of the announcement ring to the next.
    pub(crate) entry_bytes: u8,
    /// Id of the first entry that will be announced.
    pub(crate) first_entry: u64,
    /// Where the sender writes sizes that the immediate cannot tell.
    pub(crate) size_table: RemoteArea,
}

/// One path: which device talks to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathPlan {
    pub(crate) connector_device: u8,
    pub(crate) listener_device: u8,
    /// Bytes: the smaller of the two devices'.
    pub(crate) mtu: u32,
    /// Whether packets may be reordered on the way: what either end says.
    pub(crate) reorders: bool,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Connector,
    Listener,
}

impl PathPlan {
    /// The own and the peer's device of this path, for the end that is `side`.
    pub(crate) fn devices(&self, side: Side) -> (usize, usize) {
        let (connector, listener) = (self.connector_device.into(), self.listener_device.into());
        match side {
            Side::Connector => (connector, listener),
            Side::Listener => (listener, connector),
        }
    }
}

/// A queue pair as the other end must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) number: u32,
    pub(crate) psn: u32,
    /// Options of enhanced connection establishment: from the listener what it can do, from the
    /// connector what both can. `None` if this end does not want any.
    pub(crate) ece: Option<EceOptions>,
}

/// `struct ibv_ece`: the meaning of the bits is the vendor's, whose drivers check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EceOptions {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
}

/// Registered memory that the other end may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteArea {
    pub(crate) address: u64,
    /// One for each device of the end that owns the memory.
    pub(crate) rkeys: Vec<u32>,
}

/// The connector's ends of the paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// In the order of the plan's paths.
    pub(crate) queue_pairs: Vec<Endpoint>,
    /// The announcement ring.
    pub(crate) ring: RemoteArea,
}

/// "No", and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reject {
    pub(crate) reason: String,
}

/// The connection ends in an orderly way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Close {
    /// From the receiver: for each path, how many parts it has taken since the beginning. The
    /// sender can tell from this which of its requests arrived, although their acknowledgements
    /// may be lost with the queue pair.
    pub(crate) parts_taken: Vec<u64>,
}

/// What is wrong with bytes from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) &'static str);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn ensure(condition: bool, what: &'static str) -> Result<(), Invalid> {
    if condition {
        Ok(())
    } else {
        Err(Invalid(what))
    }
}

impl Message {
    /// A refusal with a reason of acceptable length.
    pub(crate) fn reject(reason: &impl ToString) -> Self {
        let mut reason = reason.to_string();
        let mut end = reason.len().min(MAX_REASON);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        reason.truncate(end);
        Self::Reject(Reject { reason })
    }

    /// Everything that can be checked without knowing the own side.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Hello(hello) => hello.check(),
            Self::Plan(plan) => plan.check(),
            Self::Endpoints(endpoint) => endpoint.check(),
            Self::Ready => Ok(()),
            Self::Reject(reject) => ensure(
                reject.reason.len() <= MAX_REASON,
                "a refusal that is too long",
            ),
            Self::Path(news) => news.check(),
            Self::Close(closing) => ensure(
                closing.parts_taken.len() <= MAX_PATHS,
                "counts of too many paths",
            ),
        }
    }
}

impl PathNews {
    fn check(&self) -> Result<(), Invalid> {
        ensure(
            usize::from(self.path) < MAX_PATHS,
            "a path that cannot exist",
        )?;
        match &self.event {
            PathEvent::Offer { device, endpoint } => {
                device.check()?;
                endpoint.check()
            }
            _ => Ok(()),
        }
    }
}

impl Hello {
    fn check(&self) -> Result<(), Invalid> {
        ensure(
            (1..=MAX_PATHS).contains(&usize::from(self.preferences.queue_pairs)),
            "a number of queue pairs out of range",
        )?;
        ensure(
            self.preferences.service.level <= MAX_LEVEL,
            "a service level that does not exist",
        )?;
        self.info.check()
    }
}

impl PeerInfo {
    fn check(&self) -> Result<(), Invalid> {
        ensure(self.host.len() <= MAX_NAME, "a host name that is too long")?;
        ensure(
            (1..=MAX_DEVICES).contains(&self.devices.len()),
            "a number of devices out of range",
        )?;
        self.devices.iter().try_for_each(DeviceOffer::check)
    }
}

impl DeviceOffer {
    fn check(&self) -> Result<(), Invalid> {
        ensure(
            (1..=MAX_NAME).contains(&self.name.len()),
            "a device name of unusable length",
        )?;
        ensure(self.port != 0, "port 0")?;
        ensure(mtu(self.mtu).is_some(), "an MTU that does not exist")?;
        ensure(
            self.max_message >= crate::wire::stripe::GRANULE,
            "a maximum message size too small",
        )?;
        match self.link {
            Link::Ethernet => {
                ensure(!self.gid().is_zero(), "an Ethernet port without a GID")?;
                let is_ipv4 = self.gid().to_ipv6().to_ipv4_mapped().is_some();
                let longest = if is_ipv4 { 32 } else { 128 };
                ensure(
                    self.prefix_length.is_none_or(|length| length <= longest),
                    "a prefix longer than its address",
                )?;
                ensure(
                    matches!(self.roce_version, None | Some(1 | 2)),
                    "a RoCE version that does not exist",
                )
            }
            Link::InfiniBand => {
                ensure(
                    self.prefix_length.is_none() && self.roce_version.is_none(),
                    "an InfiniBand port with an Ethernet's address",
                )?;
                ensure(self.lid != 0 || !self.gid().is_zero(), "no LID, no GID")
            }
        }
    }

    pub(crate) fn gid(&self) -> Gid {
        Gid(self.gid)
    }
}

impl Plan {
    fn check(&self) -> Result<(), Invalid> {
        self.info.check()?;
        ensure(
            (1..=MAX_PATHS).contains(&self.paths.len()),
            "a number of paths out of range",
        )?;
        for path in &self.paths {
            ensure(
                usize::from(path.listener_device) < self.info.devices.len(),
                "a path over a device that it does not have",
            )?;
            ensure(
                usize::from(path.connector_device) < MAX_DEVICES,
                "a path over a device that cannot exist",
            )?;
            ensure(mtu(path.mtu).is_some(), "an MTU that does not exist")?;
        }
        ensure(
            self.queue_pairs.len() == self.paths.len(),
            "a number of queue pairs that is not that of its paths",
        )?;
        self.queue_pairs.iter().try_for_each(Endpoint::check)?;
        ensure(
            usize::from(self.entry_bytes) == cts::entry_bytes(self.info.devices.len()),
            "a ring entry of impossible size",
        )?;
        self.size_table
            .check(cts::SIZE_TABLE_BYTES, self.info.devices.len())
    }
}

impl Endpoint {
    fn check(&self) -> Result<(), Invalid> {
        const LARGEST: u32 = 0xff_ffff;
        // 0 and 1 are the management queue pairs (InfiniBand specification, 3.5.3).
        ensure(
            (2..=LARGEST).contains(&self.number),
            "a queue pair number out of range",
        )?;
        ensure(self.psn <= LARGEST, "a packet sequence number out of range")
    }
}

impl RemoteArea {
    fn check(&self, length: usize, devices: usize) -> Result<(), Invalid> {
        ensure(
            self.rkeys.len() == devices,
            "a number of rkeys that is not that of its devices",
        )?;
        ensure(
            self.address != 0
                && self.address.is_multiple_of(cts::AREA_ALIGNMENT as u64)
                && self.address.checked_add(length as u64).is_some(),
            "a memory area at an impossible address",
        )
    }
}

impl Endpoints {
    fn check(&self) -> Result<(), Invalid> {
        ensure(
            (1..=MAX_PATHS).contains(&self.queue_pairs.len()),
            "a number of paths out of range",
        )?;
        self.queue_pairs.iter().try_for_each(Endpoint::check)?;
        ensure(
            (1..=MAX_DEVICES).contains(&self.ring.rkeys.len()),
            "a number of rkeys out of range",
        )?;
        self.ring
            .check(cts::LARGEST_RING_BYTES, self.ring.rkeys.len())
    }
}

impl From<LinkLayer> for Link {
    /// What is not InfiniBand is treated as Ethernet: it is addressed by GID.
    fn from(layer: LinkLayer) -> Self {
        if layer == LinkLayer::InfiniBand {
            Self::InfiniBand
        } else {
            Self::Ethernet
        }
    }
}

/// The path MTU of `bytes`, if there is such a one.
pub(crate) fn mtu(bytes: u32) -> Option<Mtu> {
    Mtu::from_bytes(bytes)
}

/// Text from the peer, made fit for a log line: nothing that moves the cursor or turns the text
/// round, and not too long.
pub(crate) fn printable(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_graphic() || *c == ' ' || c.is_alphanumeric();
    text.chars().filter(is_plain).take(MAX_REASON).collect()
}
