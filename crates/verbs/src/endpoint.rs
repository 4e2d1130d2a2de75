//! [`Endpoint`]: what the two ends of a connection tell each other, and connecting with it.

use std::fmt;
use std::str::FromStr;

use crate::access::Access;
use crate::address::{AddressVector, Destination, GlobalRoute};
use crate::error::Error;
use crate::gid::Gid;
use crate::operation::Operation;
use crate::port::{LinkLayer, Mtu};
use crate::qp::QueuePair;
use crate::qp_state::QueuePairState;
use crate::qp_step::{InitAttributes, ReadyToReceive, ReadyToSend};

/// Where a queue pair can be reached: what one end of a connection tells the other, by any other
/// means. It can be sent as text: [`Display`](fmt::Display) writes what [`FromStr`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of the queue pair, 24 bits.
    pub qp: u32,
    /// The sequence number of the first packet that it will send, 24 bits.
    pub psn: u32,
    /// The LID of the port; 0 with RoCE.
    pub lid: u16,
    /// The GID to reach it by. None on InfiniBand, for a peer in the same subnet.
    pub gid: Option<Gid>,
    /// The MTU of the port.
    pub mtu: Mtu,
}

/// How a queue pair is to be connected. The default is port 1 without a GID, partition 0, packets
/// numbered from 0, remote writes allowed, one read at once, and to send again seven times if there
/// is no answer within 67 ms each (timeout 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The port of the device, from 1.
    pub port: u8,
    /// The own GID, by its index in the port's table. RoCE needs one; `ibnet_gid` chooses it.
    pub gid_index: Option<u8>,
    /// The partition, as an index into the port's P_Key table.
    pub pkey_index: u16,
    /// What the peer may do.
    pub access: Access,
    /// The sequence number of the first packet to be sent, 24 bits.
    pub psn: u32,
    /// How many RDMA reads are under way at once, in each direction.
    pub max_reads: u8,
    /// See [`ReadyToSend::timeout`].
    pub timeout: u8,
    /// See [`ReadyToSend::retry_count`].
    pub retry_count: u8,
    /// See [`GlobalRoute::traffic_class`].
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            pkey_index: 0,
            access: Access::REMOTE_WRITE,
            psn: 0,
            max_reads: 1,
            timeout: 14,
            retry_count: 7,
            traffic_class: 0,
        }
    }
}

impl ConnectOptions {
    /// The same on this port, from 1.
    #[must_use]
    pub fn port(self, port: u8) -> Self {
        Self { port, ..self }
    }

    /// The same with this own GID, by its index.
    #[must_use]
    pub fn gid_index(self, index: u8) -> Self {
        Self {
            gid_index: Some(index),
            ..self
        }
    }

    /// The same, where the peer may do this.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }
}

impl QueuePair {
    /// What the peer must know to connect to this queue pair.
    ///
    /// # Errors
    ///
    /// The port or its GID cannot be read. A port of RoCE without a GID is refused.
    pub fn endpoint(&self, options: &ConnectOptions) -> Result<Endpoint, Error> {
        let context = self.pd().context();
        let port = context.port(options.port)?;
        let gid = options.gid_index;
        if gid.is_none() && port.link_layer == LinkLayer::Ethernet {
            let operation = Operation::ModifyQp {
                qp: self.number(),
                to: QueuePairState::RTR,
                attributes: format!("port {}", options.port),
            };
            let problem = "RoCE needs gid_index";
            return Err(Error::invalid(operation, context.device_name(), problem));
        }
        Ok(Endpoint {
            qp: self.number(),
            psn: options.psn,
            lid: port.lid,
            gid: gid
                .map(|index| context.gid(options.port, index.into()))
                .transpose()?,
            mtu: port.active_mtu,
        })
    }

    /// Connects to a peer that connects to this queue pair: RESET to RTS. Receives that must not be
    /// missed are posted before the peer sends, so at the latest before it learns that this end is
    /// connected.
    ///
    /// # Errors
    ///
    /// As for [`endpoint`](Self::endpoint), [`to_init`](Self::to_init), [`to_rtr`](Self::to_rtr),
    /// which may take seconds, and [`to_rts`](Self::to_rts).
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        let own = self.endpoint(options)?;
        let route = options.gid_index.zip(peer.gid);
        let route = route.map(|(sgid_index, dgid)| GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: 64,
            traffic_class: options.traffic_class,
            flow_label: 0,
        });
        self.to_init(&InitAttributes {
            port: options.port,
            pkey_index: options.pkey_index,
            access: options.access,
        })?;
        self.to_rtr(&ReadyToReceive {
            mtu: own.mtu.min(peer.mtu),
            remote_qp: peer.qp,
            remote_psn: peer.psn,
            max_dest_rd_atomic: options.max_reads,
            min_rnr_timer: 12,
            address: AddressVector {
                port: options.port,
                service_level: 0,
                destination: Destination {
                    lid: peer.lid,
                    route,
                },
            },
        })?;
        self.to_rts(&ReadyToSend {
            psn: options.psn,
            timeout: options.timeout,
            retry_count: options.retry_count,
            rnr_retry: 7,
            max_rd_atomic: options.max_reads,
        })
    }
}

impl fmt::Display for Endpoint {
    /// `qp=17 psn=0 lid=0 mtu=1024 gid=fe80::1`, the last only if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qp, psn, lid, mtu) = (self.qp, self.psn, self.lid, self.mtu);
        write!(f, "qp={qp} psn={psn} lid={lid} mtu={mtu}")?;
        match self.gid {
            Some(gid) => write!(f, " gid={gid}"),
            None => Ok(()),
        }
    }
}

/// A text that is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no endpoint: expected {1}")]
pub struct InvalidEndpoint(String, &'static str);

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let field = |name: &'static str| {
            let mut fields = text
                .split_whitespace()
                .filter_map(|part| part.split_once('='));
            fields
                .find(|(other, _)| *other == name)
                .map(|(_, value)| value)
        };
        let number = |name, expected| {
            let number = field(name).and_then(|value| value.parse::<u32>().ok());
            number.ok_or_else(|| InvalidEndpoint(text.to_owned(), expected))
        };
        let invalid = |expected| InvalidEndpoint(text.to_owned(), expected);
        let gid = field("gid")
            .map(str::parse::<std::net::Ipv6Addr>)
            .transpose();
        Ok(Self {
            qp: number("qp", "qp=NUMBER")?,
            psn: number("psn", "psn=NUMBER")?,
            lid: number("lid", "lid=NUMBER")?
                .try_into()
                .map_err(|_| invalid("a lid of 16 bits"))?,
            gid: gid.map_err(|_| invalid("gid=ADDRESS"))?.map(Gid::from),
            mtu: Mtu::from_bytes(number("mtu", "mtu=BYTES")?)
                .ok_or_else(|| invalid("an MTU from 256 to 4096"))?,
        })
    }
}
