//! Settings, and the one place that reads the environment.
//!
//! [`Config`] is a plain struct with NCCL's defaults. [`Config::from_env`] reads the `NCCL_IB_*`
//! names with NCCL's meaning and our own `IBNET_*`, strictly: a value that means nothing is an
//! error that names the variable, the value and what is allowed. An empty value counts as unset.

mod reader;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use gid::Wish;
use thiserror::Error;

use crate::hca::{HcaFilter, InvalidHca};
use crate::interface::{Family, InterfaceFilter};
use reader::{Reader, port_range};

/// The settings of a [`Transport`](crate::Transport).
///
/// | field | variable | default | range |
/// |---|---|---|---|
/// | `disabled` | `NCCL_IB_DISABLE` | 0 | 0, 1 |
/// | `library` | `NCCL_IBVERBS_LIB` | `libibverbs.so`, `libibverbs.so.1` | a path |
/// | `hca` | `NCCL_IB_HCA` | every device | see [`HcaFilter`] |
/// | `pci_order` | `NCCL_IB_DEVICE_PCI_ORDER` | 1 | 0, 1 |
/// | `merge_vfs` | `NCCL_IB_MERGE_VFS` | 1 | 0, 1 |
/// | `merge_nics` | `NCCL_IB_MERGE_NICS` | 1 | 0, 1 |
/// | `query_port_speed` | `NCCL_IB_QUERY_PORT_SPEED` | 1 | 0, 1 |
/// | `data_direct` | `NCCL_IB_DATA_DIRECT` | 1 | 0, 1, 2: see [`DataDirect`] |
/// | `relaxed_ordering` | `NCCL_IB_PCI_RELAXED_ORDERING` | 2 | 0, 1, 2: see [`RelaxedOrdering`] |
/// | `return_async_events` | `NCCL_IB_RETURN_ASYNC_EVENTS` | 1 | 0, 1 |
/// | `gid_index` | `NCCL_IB_GID_INDEX` | -1: chosen by kind | -1..=255, or a list like `mlx5_0:1=3,mlx5_1=5` |
/// | `gid.family` | `NCCL_IB_ADDR_FAMILY` | IPv4 preferred | `AF_INET`, `AF_INET6` |
/// | `gid.ranges` | `NCCL_IB_ADDR_RANGE` | any address | a list like `10.0.0.0/8,fd00::/8` |
/// | `gid.roce_version` | `NCCL_IB_ROCE_VERSION_NUM` | 2 preferred | 1, 2 |
/// | `gid.flid_index` | `NCCL_IB_ROUTABLE_FLID_GID_INDEX` | 1 | -1 (none), 0..=255 |
/// | `gid.netdevs` | `IBNET_GID_NETDEVS` | any | a list of network interfaces |
/// | `timeout` | `NCCL_IB_TIMEOUT` | 20 | 0..=31 |
/// | `retry_count` | `NCCL_IB_RETRY_CNT` | 7 | 0..=7 |
/// | `partition` | `NCCL_IB_PKEY` | index 0 | index, 0..=65535 |
/// | | `NCCL_IB_PKEY_VALUE` | | value, 1..=0xffff but not 0x8000; not with `NCCL_IB_PKEY` |
/// | `service_level` | `NCCL_IB_SL` | 0 | -1 (unset), 0..=15 |
/// | `traffic_class` | `NCCL_IB_TC` | the communicator's, else 0 | -1 (unset), 0..=255 |
/// | `fifo_traffic_class` | `NCCL_IB_FIFO_TC` | as `traffic_class` | -1 (unset), 0..=255 |
/// | `interfaces` | `NCCL_SOCKET_IFNAME` | see [`InterfaceFilter`] | see there |
/// | `family` | `NCCL_SOCKET_FAMILY` | any | `AF_INET`, `AF_INET6` |
/// | `connect_timeout` | `IBNET_CONNECT_TIMEOUT` | 60 s | 1..=86400 s |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Refuse to start (`NCCL_IB_DISABLE`).
    pub disabled: bool,
    /// Load this library and no other (`NCCL_IBVERBS_LIB`).
    pub library: Option<PathBuf>,
    /// Which devices and ports to use (`NCCL_IB_HCA`).
    pub hca: HcaFilter,
    /// Sort the devices by PCI address, so that equal machines count them alike
    /// (`NCCL_IB_DEVICE_PCI_ORDER`). Otherwise they are in the order of libibverbs.
    pub pci_order: bool,
    /// Give virtual functions the PCI path of their physical one (`NCCL_IB_MERGE_VFS`), so that
    /// NCCL knows that they share its link.
    pub merge_vfs: bool,
    /// Allow virtual devices of more than one device (`NCCL_IB_MERGE_NICS`).
    pub merge_nics: bool,
    /// Ask for a port's speed by `ibv_query_port_speed` where libibverbs has it
    /// (`NCCL_IB_QUERY_PORT_SPEED`).
    pub query_port_speed: bool,
    /// What to do about mlx5's second path to the GPU (`NCCL_IB_DATA_DIRECT`).
    pub data_direct: DataDirect,
    /// Whether memory is registered with relaxed PCI ordering (`NCCL_IB_PCI_RELAXED_ORDERING`).
    pub relaxed_ordering: RelaxedOrdering,
    /// Whether fatal events of devices, queue pairs and completion queues end the connections
    /// that they hit (`NCCL_IB_RETURN_ASYNC_EVENTS`). Otherwise they are logged only.
    pub return_async_events: bool,
    /// Where sysfs is: `/sys`. For tests, and for containers that have it elsewhere; no variable
    /// sets it.
    pub sysfs: PathBuf,
    /// GID indices to use on RoCE ports instead of choosing (`NCCL_IB_GID_INDEX`).
    pub gid_index: gid::IndexRules,
    /// How GIDs are chosen. Its `index` is ignored: `gid_index` has one for each port. What a
    /// variable sets is demanded, not only preferred.
    pub gid: gid::Policy,
    /// Local ack timeout of the queue pairs: 4.096 µs · 2^`timeout`, 0 for none
    /// (`NCCL_IB_TIMEOUT`; InfiniBand specification, volume 1, section 9.7.6.1.3).
    pub timeout: u8,
    /// How often a queue pair sends again before it gives up (`NCCL_IB_RETRY_CNT`). Soft-RoCE
    /// takes 7 for "without end" and therefore gets 6.
    pub retry_count: u8,
    /// Which partition the queue pairs are in (`NCCL_IB_PKEY`, `NCCL_IB_PKEY_VALUE`).
    pub partition: Partition,
    /// Service level (`NCCL_IB_SL`).
    pub service_level: u8,
    /// Traffic class (`NCCL_IB_TC`). Wins over the one asked for per connection.
    pub traffic_class: Option<u8>,
    /// Traffic class of the receiver's announcements (`NCCL_IB_FIFO_TC`), which travel against the
    /// data. `None` is that of the data.
    pub fifo_traffic_class: Option<u8>,
    /// Which network interface carries the handshake (`NCCL_SOCKET_IFNAME`).
    pub interfaces: InterfaceFilter,
    /// Which address family carries the handshake (`NCCL_SOCKET_FAMILY`).
    pub family: Option<Family>,
    /// How long each step of a handshake may take (`IBNET_CONNECT_TIMEOUT`).
    pub connect_timeout: Duration,
    /// How often a listener that cannot be reached is called again (`NCCL_SOCKET_RETRY_CNT`).
    pub socket_retries: u32,
    /// The pause before it is, on average (`NCCL_SOCKET_RETRY_SLEEP_MSEC`).
    pub socket_retry_pause: Duration,
    /// Ports for listeners; without, the system chooses (`IBNET_PORT_RANGE`).
    pub ports: Option<RangeInclusive<u16>>,
    /// Queue pairs for each pair of devices (`NCCL_IB_QPS_PER_CONNECTION`). The larger wish of both
    /// ends counts.
    pub queue_pairs: u8,
    /// Cut each message over all queue pairs, not only over the pairs of devices
    /// (`NCCL_IB_SPLIT_DATA_ON_QPS`).
    pub split_data: bool,
    /// How the sender chooses the paths of a message (`IBNET_PATH_POLICY`).
    pub path_policy: PathPolicy,
    /// Bytes that a part of a message has at least (`IBNET_MIN_PART`).
    pub min_part: u32,
    /// Whether the fabric may reorder packets; by default on InfiniBand only
    /// (`NCCL_IB_ADAPTIVE_ROUTING`).
    pub adaptive_routing: Option<bool>,
    /// Where packets may be reordered, messages of more bytes send their data and what tells of
    /// it apart (`NCCL_IB_AR_THRESHOLD`).
    pub adaptive_routing_threshold: u32,
    /// Small writes carry their data in the request, where the device grants room for it
    /// (`NCCL_IB_USE_INLINE`).
    pub inline: bool,
    /// Enhanced connection establishment, if both ends want it (`NCCL_IB_ECE_ENABLE`).
    pub ece: bool,
    /// Flush what was received into the memory of devices (not `NCCL_GDR_FLUSH_DISABLE`).
    pub flush: bool,
    /// How often a state change of a queue pair is tried again (`NCCL_IB_MQP_RETRY_CNT`).
    pub modify_retries: u32,
    /// The pause before the first of these; each further one is longer by as much
    /// (`NCCL_IB_MQP_RETRY_SLEEP_MSEC`).
    pub modify_retry_pause: Duration,
    /// Try again after every error, not only after a time-out (`NCCL_IB_MQP_RETRY_ALL`).
    pub retry_modify_always: bool,
    /// Id of the first buffer that a receiver announces. Any will do; tests choose one near the end
    /// of the numbers. No variable sets it.
    #[doc(hidden)]
    pub first_entry: u64,
}

/// How the sender chooses paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathPolicy {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Those with the fewest requests under way.
    LeastOutstanding,
}

/// Which entry of a port's P_Key table to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The entry at this index, whatever it holds.
    Index(u16),
    /// The entry that holds this P_Key. The highest bit is that of full membership: a full
    /// member's entry is taken whether it is set here or not, a limited member's only without a
    /// better one.
    Value(u16),
}

/// mlx5's Data Direct: a second PCI function, by which the adapter reaches GPU memory past the
/// CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirect {
    /// Not used.
    Off,
    /// A device that has it is listed with it alone, as `NAME_dma`.
    Only,
    /// A device that has it is listed twice: as `NAME`, and with it as `NAME_dma`.
    Both,
}

/// Whether the device may write to memory in any order within a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelaxedOrdering {
    /// Never.
    Off,
    /// Yes; a warning if libibverbs is too old for it (before IBVERBS_1.8).
    Force,
    /// If libibverbs is new enough for it.
    Auto,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            disabled: false,
            library: None,
            hca: HcaFilter::default(),
            pci_order: true,
            merge_vfs: true,
            merge_nics: true,
            query_port_speed: true,
            data_direct: DataDirect::Only,
            relaxed_ordering: RelaxedOrdering::Auto,
            return_async_events: true,
            sysfs: PathBuf::from("/sys"),
            gid_index: gid::IndexRules::default(),
            gid: gid::Policy::default(),
            timeout: 20,
            retry_count: 7,
            partition: Partition::Index(0),
            service_level: 0,
            traffic_class: None,
            fifo_traffic_class: None,
            interfaces: InterfaceFilter::default(),
            family: None,
            connect_timeout: Duration::from_secs(60),
            socket_retries: 34,
            socket_retry_pause: Duration::from_millis(100),
            ports: None,
            queue_pairs: 1,
            split_data: false,
            path_policy: PathPolicy::RoundRobin,
            min_part: 64 * 1024,
            adaptive_routing: None,
            adaptive_routing_threshold: 8192,
            inline: true,
            ece: true,
            flush: true,
            modify_retries: 34,
            modify_retry_pause: Duration::from_millis(100),
            retry_modify_always: false,
            first_entry: crate::ring::ENTRIES,
        }
    }
}

/// A variable whose value means nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable}={value}: expected {expected}")]
pub struct ConfigError {
    /// Name of the variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
    /// What is allowed.
    pub expected: String,
}

impl Config {
    /// The defaults, changed by the process's environment.
    ///
    /// # Errors
    /// The first variable whose value is not allowed.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(&|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// The defaults, changed by what `variable` gives for each name.
    ///
    /// # Errors
    /// The first variable whose value is not allowed.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let reader = Reader { variable };
        let default = Self::default();
        Ok(Self {
            disabled: reader.flag("NCCL_IB_DISABLE", default.disabled)?,
            library: reader.text("NCCL_IBVERBS_LIB").map(PathBuf::from),
            hca: reader.parsed("NCCL_IB_HCA", |text| {
                HcaFilter::parse(text).map_err(|InvalidHca(expected)| expected)
            })?,
            pci_order: reader.flag("NCCL_IB_DEVICE_PCI_ORDER", default.pci_order)?,
            merge_vfs: reader.flag("NCCL_IB_MERGE_VFS", default.merge_vfs)?,
            merge_nics: reader.flag("NCCL_IB_MERGE_NICS", default.merge_nics)?,
            query_port_speed: reader.flag("NCCL_IB_QUERY_PORT_SPEED", default.query_port_speed)?,
            data_direct: match reader.number("NCCL_IB_DATA_DIRECT", 0, 2)? {
                Some(0) => DataDirect::Off,
                Some(1) => DataDirect::Only,
                Some(_) => DataDirect::Both,
                None => default.data_direct,
            },
            relaxed_ordering: match reader.number("NCCL_IB_PCI_RELAXED_ORDERING", 0, 2)? {
                Some(0) => RelaxedOrdering::Off,
                Some(1) => RelaxedOrdering::Force,
                Some(_) => RelaxedOrdering::Auto,
                None => default.relaxed_ordering,
            },
            return_async_events: reader
                .flag("NCCL_IB_RETURN_ASYNC_EVENTS", default.return_async_events)?,
            sysfs: default.sysfs,
            gid_index: reader.rule("NCCL_IB_GID_INDEX")?.unwrap_or_default(),
            gid: gid::Policy {
                index: None,
                family: reader
                    .rule("NCCL_IB_ADDR_FAMILY")?
                    .map_or(default.gid.family, Wish::Require),
                ranges: reader.rule("NCCL_IB_ADDR_RANGE")?.unwrap_or_default(),
                roce_version: reader
                    .rule("NCCL_IB_ROCE_VERSION_NUM")?
                    .map_or(default.gid.roce_version, Wish::Require),
                netdevs: reader.rule("IBNET_GID_NETDEVS")?.map(Wish::Require),
                flid_index: reader
                    .rule("NCCL_IB_ROUTABLE_FLID_GID_INDEX")?
                    .unwrap_or(default.gid.flid_index),
            },
            timeout: reader
                .byte("NCCL_IB_TIMEOUT", 0, 31)?
                .unwrap_or(default.timeout),
            retry_count: reader
                .byte("NCCL_IB_RETRY_CNT", 0, 7)?
                .unwrap_or(default.retry_count),
            partition: reader.partition()?.unwrap_or(default.partition),
            service_level: reader
                .byte("NCCL_IB_SL", -1, 15)?
                .unwrap_or(default.service_level),
            traffic_class: reader.byte("NCCL_IB_TC", -1, 255)?,
            fifo_traffic_class: reader.byte("NCCL_IB_FIFO_TC", -1, 255)?,
            interfaces: reader
                .text("NCCL_SOCKET_IFNAME")
                .map(|text| InterfaceFilter::parse(&text))
                .unwrap_or_default(),
            family: reader.parsed("NCCL_SOCKET_FAMILY", |text| match text {
                "AF_INET" => Ok(Some(Family::V4)),
                "AF_INET6" => Ok(Some(Family::V6)),
                _ => Err("AF_INET or AF_INET6".to_owned()),
            })?,
            connect_timeout: reader
                .number("IBNET_CONNECT_TIMEOUT", 1, 86_400)?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(default.connect_timeout, Duration::from_secs),
            socket_retries: reader
                .count("NCCL_SOCKET_RETRY_CNT", 0, 100_000)?
                .unwrap_or(default.socket_retries),
            socket_retry_pause: reader
                .milliseconds("NCCL_SOCKET_RETRY_SLEEP_MSEC", 1)?
                .unwrap_or(default.socket_retry_pause),
            ports: reader.parsed("IBNET_PORT_RANGE", port_range)?,
            queue_pairs: reader
                .byte("NCCL_IB_QPS_PER_CONNECTION", 1, 128)?
                .unwrap_or(default.queue_pairs),
            split_data: reader.flag("NCCL_IB_SPLIT_DATA_ON_QPS", default.split_data)?,
            path_policy: reader.parsed("IBNET_PATH_POLICY", |text| match text {
                "round-robin" => Ok(PathPolicy::RoundRobin),
                "least-outstanding" => Ok(PathPolicy::LeastOutstanding),
                _ => Err("round-robin or least-outstanding".to_owned()),
            })?,
            min_part: reader
                .count("IBNET_MIN_PART", 128, 1 << 30)?
                .unwrap_or(default.min_part),
            adaptive_routing: match reader.number("NCCL_IB_ADAPTIVE_ROUTING", -2, 1)? {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            adaptive_routing_threshold: reader
                .count("NCCL_IB_AR_THRESHOLD", -2, i64::from(i32::MAX))?
                .unwrap_or(default.adaptive_routing_threshold),
            inline: reader.flag("NCCL_IB_USE_INLINE", default.inline)?,
            ece: reader.flag("NCCL_IB_ECE_ENABLE", default.ece)?,
            flush: !reader.flag("NCCL_GDR_FLUSH_DISABLE", !default.flush)?,
            modify_retries: reader
                .count("NCCL_IB_MQP_RETRY_CNT", 0, 100_000)?
                .unwrap_or(default.modify_retries),
            modify_retry_pause: reader
                .milliseconds("NCCL_IB_MQP_RETRY_SLEEP_MSEC", 0)?
                .unwrap_or(default.modify_retry_pause),
            retry_modify_always: reader
                .flag("NCCL_IB_MQP_RETRY_ALL", default.retry_modify_always)?,
            first_entry: default.first_entry,
        })
    }
}

#[cfg(test)]
mod tests;
