//! Settings, and the one place that reads the environment.
//!
//! [`Config`] is a plain struct with NCCL's defaults. [`Config::from_env`] reads the `NCCL_IB_*`
//! names with NCCL's meaning and our own `IBNET_*`. Of our own, a value that means nothing is an
//! error that names the variable, the value and what is allowed; of NCCL's, a value that NCCL lives
//! with ([`reading`]) is a warning that says what is used instead. An empty value counts as unset.
//!
//! There is one list of all settings, below: [`settings`]. The struct and its documentation, the
//! defaults, the parser, the table of variables and the page `docs/configuration.md` are made from
//! it. The kinds of settings are in [`kinds`], the table in [`table`], what was found in the
//! environment in [`found`].

mod found;
mod hca_filter;
mod interface_filter;
mod kinds;
mod name_list;
mod reading;
mod table;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ibnet_gid::Wish;
use thiserror::Error;

pub use found::{Effect, Setting, UnknownVariable};
pub use hca_filter::{HcaFilter, Placement};
pub use interface_filter::{Family, InterfaceFilter};
pub use name_list::InvalidList;
pub use table::Variable;

use kinds::{
    Choice, Flag, Grammar, Kind, Milliseconds, OffFlag, Optional, PartOf, Path, Seconds, number,
    range_of, reading_of, rule,
};
use reading::Reading;
use table::Row;

/// Makes everything of the list of settings. Each is a field with its documentation, its type, its
/// default, and the variables that set it: name, kind and, in brackets, how NCCL has it and
/// what it is for, where the documentation of the field does not say that.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $(($attribute:meta))?
        $field:ident: $type:ty = $default:expr $(,
            $variable:literal: $kind:expr, [$in_nccl:literal $(, $meaning:literal)?]
        )*;
    )+) => {
        #[doc = include_str!("../../../../docs/configuration.md")]
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct Config {
            $(
                $(#[doc = $doc])+
                $(#[doc = concat!("\n\nVariable: `", $variable, "`.")])*
                $(#[$attribute])?
                pub $field: $type,
            )+
            pub(crate) set: Vec<Setting>,
            pub(crate) unknown: Vec<UnknownVariable>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $($field: $default,)+
                    set: Vec::new(),
                    unknown: Vec::new(),
                }
            }
        }

        /// The documentation of each field, line by line.
        const FIELDS: &[(&str, &[&str])] = &[$((stringify!($field), &[$($doc),+])),+];

        const VARIABLES: &[Row] = &[$($(
            Row {
                name: $variable,
                field: stringify!($field),
                in_nccl: $in_nccl,
                meaning: &[$($meaning)?],
                range: || range_of::<$type>(&$kind),
                reading: || reading_of::<$type>(&$kind),
                set: |config, text| $kind.set(&mut config.$field, text),
                show: |config| $kind.show(&config.$field),
            },
        )*)+];
    };
}

settings! {
    /// Refuse to start.
    disabled: bool = false,
        "NCCL_IB_DISABLE": Flag, ["the same"];
    /// Load this library of verbs and no other.
    library: Option<PathBuf> = None,
        "NCCL_IBVERBS_LIB": Path { none: "`libibverbs.so`, `libibverbs.so.1`" }, ["the same"];
    /// Which devices and ports to use; see [`HcaFilter`] for the grammar.
    hca: HcaFilter = HcaFilter::default(),
        "NCCL_IB_HCA": Grammar {
            range: "a list like `mlx5_0:1,mlx5_2`, `=mlx5_0` or `^mlx5_3`",
            reading: Reading::Text,
            none: "every device",
            parse: |text| HcaFilter::parse(text).map_err(|InvalidList(expected)| expected),
        }, ["the same"];
    /// Sort the devices by PCI address, so that equal machines count them alike. Otherwise they
    /// are in the order of libibverbs.
    pci_order: bool = true,
        "NCCL_IB_DEVICE_PCI_ORDER": Flag, ["the same"];
    /// Give virtual functions the PCI path of their physical one, so that NCCL knows that they
    /// share its link.
    merge_vfs: bool = true,
        "NCCL_IB_MERGE_VFS": Flag, ["the same"];
    /// Allow virtual devices of more than one device.
    merge_nics: bool = true,
        "NCCL_IB_MERGE_NICS": Flag, ["the same"];
    /// Say so when the two ends of a connection have devices of different names: with a network for
    /// each rail, that is a rank whose devices are in another order.
    warn_rail_local: bool = false,
        "NCCL_IB_WARN_RAIL_LOCAL": Flag, ["the same"];
    /// Ask for a port's speed by `ibv_query_port_speed` where libibverbs has it.
    query_port_speed: bool = true,
        "NCCL_IB_QUERY_PORT_SPEED": Flag, ["the same"];
    /// What to do about mlx5's second path to the GPU: 0: nothing; 1: a device that has it is
    /// listed with it alone; 2: both ways. See [`DataDirect`].
    data_direct: DataDirect = DataDirect::Only,
        "NCCL_IB_DATA_DIRECT": Choice(&[
            ("0", DataDirect::Off),
            ("1", DataDirect::Only),
            ("2", DataDirect::Both),
        ]), ["the same"];
    /// Whether memory is registered with relaxed PCI ordering: 0: never; 1: yes; 2: if libibverbs
    /// is new enough for it. See [`RelaxedOrdering`].
    relaxed_ordering: RelaxedOrdering = RelaxedOrdering::Auto,
        "NCCL_IB_PCI_RELAXED_ORDERING": Choice(&[
            ("0", RelaxedOrdering::Off),
            ("1", RelaxedOrdering::Force),
            ("2", RelaxedOrdering::Auto),
        ]), ["the same"];
    /// Whether fatal events of devices, queue pairs and completion queues end the connections
    /// that they hit. Otherwise they are logged only.
    return_async_events: bool = true,
        "NCCL_IB_RETURN_ASYNC_EVENTS": Flag, ["the same"];
    /// Where sysfs is: `/sys`. For tests, and for containers that have it elsewhere; no variable
    /// sets it.
    sysfs: PathBuf = PathBuf::from("/sys");
    /// Where the device nodes are: `/dev/infiniband`. For tests; no variable sets it.
    device_nodes: PathBuf = PathBuf::from("/dev/infiniband");
    /// The addresses of this network namespace, by which entries of GID tables are known as its
    /// own; none to ask the kernel. For tests; no variable sets it.
    own_addresses: Option<Vec<IpAddr>> = None;
    /// GID indices to use on RoCE ports instead of choosing by kind and address.
    gid_index: ibnet_gid::IndexRules = ibnet_gid::IndexRules::default(),
        "NCCL_IB_GID_INDEX": Grammar {
            range: "-1 to 255, or a list like `mlx5_0:1=3,mlx5_1=5`",
            reading: Reading::NumberOrList,
            none: "-1",
            parse: rule,
        }, ["one number for all ports"];
    /// How GIDs are chosen. Its `index` is ignored: `gid_index` has one for each port. A range or
    /// interface that a variable sets is demanded; a family or version is asked for, as in NCCL.
    gid: ibnet_gid::Policy = ibnet_gid::Policy::default(),
        "NCCL_IB_ADDR_FAMILY": PartOf::<ibnet_gid::Policy> {
            range: "`AF_INET` or `AF_INET6`",
            reading: Reading::Word,
            set: |gid, text| {
                gid.family = Wish::Ask(rule(text)?);
                Ok(())
            },
            show: |gid| match &gid.family {
                Wish::Prefer(family) => format!("{} first", family.c_name()),
                Wish::Ask(family) | Wish::Require(family) => family.c_name().to_owned(),
            },
        }, ["the same", "RoCE: GIDs of this family of addresses; others only on a port that has none, with a warning."],
        "NCCL_IB_ADDR_RANGE": PartOf::<ibnet_gid::Policy> {
            range: "a list like `10.0.0.0/8,fd00::/8`",
            reading: Reading::Text,
            set: |gid, text| {
                gid.ranges = rule(text)?;
                Ok(())
            },
            show: |gid| match gid.ranges.0[..] {
                [] => "any".to_owned(),
                _ => gid.ranges.to_string(),
            },
        }, ["one range", "RoCE: only GIDs whose addresses are in these ranges."],
        "NCCL_IB_ROCE_VERSION_NUM": PartOf::<ibnet_gid::Policy> {
            range: "1 or 2",
            reading: Reading::Number,
            set: |gid, text| {
                gid.roce_version = Wish::Ask(rule(text)?);
                Ok(())
            },
            show: |gid| match &gid.roce_version {
                Wish::Prefer(version) => format!("{version} first"),
                Wish::Ask(version) | Wish::Require(version) => version.to_string(),
            },
        }, ["the same", "RoCE: GIDs of this version of the protocol; others only on a port that has none, with a warning."],
        "NCCL_IB_ROUTABLE_FLID_GID_INDEX": PartOf::<ibnet_gid::Policy> {
            range: "-1 to 255",
            reading: Reading::Number,
            set: |gid, text| {
                gid.flid_index = rule(text)?;
                Ok(())
            },
            show: |gid| gid.flid_index.0.map_or_else(|| "-1".to_owned(), |index| index.to_string()),
        }, ["the same", "InfiniBand: use this GID if it can be routed between subnets; -1 for none."],
        "IBNET_GID_NETDEVS": PartOf::<ibnet_gid::Policy> {
            range: "a list like `eth2.100,bond0`",
            reading: Reading::Text,
            set: |gid, text| {
                gid.netdevs = Some(Wish::Require(rule(text)?));
                Ok(())
            },
            show: |gid| match &gid.netdevs {
                None => "any".to_owned(),
                Some(netdevs) => netdevs.wanted().to_string(),
            },
        }, ["-", "RoCE: only GIDs of these network interfaces, the first wanted most."];
    /// Local ack timeout of the queue pairs: 4.096 µs · 2^n, 0 for none (InfiniBand
    /// specification, volume 1, section 9.7.6.1.3).
    timeout: u8 = 20,
        "NCCL_IB_TIMEOUT": number(0, 31), ["the same"];
    /// How often a queue pair sends again before it gives up. Soft-RoCE takes 7 for "without end"
    /// and therefore gets 6.
    retry_count: u8 = 7,
        "NCCL_IB_RETRY_CNT": number(0, 7), ["the same"];
    /// Which partition the queue pairs are in.
    partition: Partition = Partition::Index(0),
        "NCCL_IB_PKEY": PartOf::<Partition> {
            range: "a number from 0 to 65535",
            reading: Reading::Number,
            set: |partition, text| {
                let mut index = 0;
                number(0, 65_535).set(&mut index, text)?;
                *partition = Partition::Index(index);
                Ok(())
            },
            show: |partition| match partition {
                Partition::Index(index) => index.to_string(),
                Partition::Value(_) => "unset".to_owned(),
            },
        }, ["the same", "The partition of the queue pairs, by its index in the port's table."],
        "NCCL_IB_PKEY_VALUE": PartOf::<Partition> {
            range: "a P_Key from 1 to 0xffff, but not 0x8000",
            reading: Reading::Number,
            set: |partition, text| {
                *partition = Partition::Value(pkey(text)?);
                Ok(())
            },
            show: |partition| match partition {
                Partition::Index(_) => "unset".to_owned(),
                Partition::Value(value) => format!("{value:#06x}"),
            },
        }, ["the same", "The partition by its value, wherever it is in the table of each port; wins over \
             `NCCL_IB_PKEY`."];
    /// Service level, of the sender for both directions; -1 counts as unset.
    service_level: Option<u8> = None,
        "NCCL_IB_SL": Optional {
            number: number(-1, 15),
            none: "on InfiniBand the connection's traffic class if it is 0 to 15, else 0",
        }, ["a traffic class beyond 15 is cut to four bits, and the class is the level on Ethernet, too"];
    /// Traffic class, of the sender for both directions. Wins over the one asked for per connection,
    /// which is the communicator's in NCCL.
    traffic_class: Option<u8> = None,
        "NCCL_IB_TC": Optional {
            number: number(-1, 255),
            none: "the connection's, else 0",
        }, ["the same"];
    /// Traffic class of the receiver's announcements, which travel against the data.
    fifo_traffic_class: Option<u8> = None,
        "NCCL_IB_FIFO_TC": Optional {
            number: number(-1, 255),
            none: "the sender's, as for the data",
        }, ["the same"];
    /// Which network interface carries the handshake; see [`InterfaceFilter`] for the grammar.
    interfaces: InterfaceFilter = InterfaceFilter::default(),
        "NCCL_SOCKET_IFNAME": Grammar {
            range: "a list like `eth0,bond`, `=eth0` or `^docker`",
            reading: Reading::Text,
            none: "any, virtual ones last",
            parse: |text| InterfaceFilter::parse(text).map_err(|InvalidList(expected)| expected),
        }, ["the first that fits, an exact name or not"];
    /// Where the ranks of a communicator find each other. Only its network counts here: an interface in
    /// it carries the handshake, unless `interfaces` says something or there is one that begins with
    /// `ib`.
    comm_id: Option<String> = None,
        "NCCL_COMM_ID": Grammar {
            range: "`HOST:PORT` or `[ADDRESS%INTERFACE]:PORT`",
            reading: Reading::Text,
            none: "none",
            parse: |text| Ok(Some(text.to_owned())),
        }, ["the same"];
    /// Which address family carries the handshake.
    family: Option<Family> = None,
        "NCCL_SOCKET_FAMILY": Choice(&[
            ("AF_INET", Some(Family::V4)),
            ("AF_INET6", Some(Family::V6)),
        ]), ["the same"];
    /// How long each step of a handshake may take. None: as long as the TCP connection lives, because a peer
    /// whose program comes late to `accept` is not a dead one.
    connect_timeout: Option<Duration> = None,
        "IBNET_CONNECT_TIMEOUT": Seconds { number: number(1, 86_400), none: "none" }, ["-"];
    /// How often a listener that cannot be reached is called again.
    socket_retries: u32 = 34,
        "NCCL_SOCKET_RETRY_CNT": number(0, 100_000), ["the same"];
    /// The pause before it is for the first time, on average; each further one is longer by as much.
    socket_retry_pause: Duration = Duration::from_millis(100),
        "NCCL_SOCKET_RETRY_SLEEP_MSEC": Milliseconds(number(1, 600_000)), ["the same", "The pause before a listener that cannot be reached is called again, on average; each further one is longer by as much. With the defaults they are a minute in all."];
    /// Ports for listeners; without, the system chooses.
    ports: Option<RangeInclusive<u16>> = None,
        "IBNET_PORT_RANGE": Grammar {
            range: "a range of ports, for instance 30000-30100",
            reading: Reading::Text,
            none: "any",
            parse: port_range,
        }, ["-"];
    /// Queue pairs for each pair of devices. The larger wish of both ends counts.
    queue_pairs: u8 = 1,
        "NCCL_IB_QPS_PER_CONNECTION": number(1, 128), ["both ends must have the same"];
    /// Cut each message over all queue pairs, not only over the pairs of devices.
    split_data: bool = false,
        "NCCL_IB_SPLIT_DATA_ON_QPS": Flag, ["the same"];
    /// How the sender chooses the paths of a message.
    path_policy: PathPolicy = PathPolicy::RoundRobin,
        "IBNET_PATH_POLICY": Choice(&[
            ("round-robin", PathPolicy::RoundRobin),
            ("least-outstanding", PathPolicy::LeastOutstanding),
        ]), ["-"];
    /// Bytes that a part of a message has at least; see [`Config::least_part`].
    min_part: Option<u32> = None,
        "IBNET_MIN_PART": Optional {
            number: number(128, 1 << 30),
            none: "65536, with `NCCL_IB_SPLIT_DATA_ON_QPS` 4096",
        }, ["-", "Bytes that a part of a message has at least."];
    /// Whether the fabric may reorder packets; by default on InfiniBand only.
    adaptive_routing: Option<bool> = None,
        "NCCL_IB_ADAPTIVE_ROUTING": PartOf::<Option<bool>> {
            range: "a number from -2 to 1",
            reading: Reading::Number,
            set: |reorders, text| {
                let mut number = None;
                Optional { number: kinds::number::<u8>(-2, 1), none: "" }.set(&mut number, text)?;
                *reorders = number.map(|number| number == 1);
                Ok(())
            },
            show: |reorders| reorders.map_or_else(
                || "1 on InfiniBand, else 0".to_owned(),
                |reorders| Flag.show(&reorders),
            ),
        }, ["the same"];
    /// Where packets may be reordered, messages of more bytes send their data and what tells of
    /// it apart.
    adaptive_routing_threshold: u32 = 8192,
        "NCCL_IB_AR_THRESHOLD": number(-2, i32::MAX as i64), ["the same"];
    /// Small writes carry their data in the request, where the device grants room for it.
    inline: bool = true,
        "NCCL_IB_USE_INLINE": Flag, ["default 0"];
    /// Enhanced connection establishment, if both ends want it.
    ece: bool = true,
        "NCCL_IB_ECE_ENABLE": Flag, ["the same"];
    /// Flush what was received into the memory of devices.
    flush: bool = true,
        "NCCL_GDR_FLUSH_DISABLE": OffFlag, ["the same", "1: what was received into the memory of devices is not flushed."];
    /// How often a state change of a queue pair is tried again.
    modify_retries: u32 = 34,
        "NCCL_IB_MQP_RETRY_CNT": number(0, 100_000), ["the same"];
    /// The pause before the first of these; each further one is longer by as much.
    modify_retry_pause: Duration = Duration::from_millis(100),
        "NCCL_IB_MQP_RETRY_SLEEP_MSEC": Milliseconds(number(0, 600_000)), ["the caller sleeps", "The pause before a state change is tried again; each further one is longer by as much."];
    /// Try a state change again after every error, not only after a time-out.
    retry_modify_always: bool = false,
        "NCCL_IB_MQP_RETRY_ALL": Flag, ["the same"];
    /// Id of the first buffer that a receiver announces. Any will do; tests choose one near the end
    /// of the numbers. No variable sets it.
    (doc(hidden))
    first_entry: u64 = 256;
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
    /// Bytes that a part of a message has at least. Unless that is set, 4 KiB for who asks for messages
    /// to be cut, which is about what a fast port sends in the time that the processor needs for a part
    /// more (docs/performance.md); and 64 KiB for who does not.
    pub fn least_part(&self) -> u32 {
        const WANTED: u32 = 4096;
        const OTHERWISE: u32 = 64 * 1024;
        let least = if self.split_data { WANTED } else { OTHERWISE };
        self.min_part.unwrap_or(least)
    }

    /// The defaults, changed by the process's environment.
    ///
    /// A value in whose place another is used ([`Effect::Instead`]) is a warning. What is named like
    /// a setting and is none ([`unknown_variables`](Self::unknown_variables)) is told of, a line for
    /// each: as a warning if it begins with `IBNET_` or is like the name of a setting. Any other
    /// `NCCL_IB_…` may be meant for NCCL's own transport.
    ///
    /// # Errors
    /// The first variable whose value is not allowed and cannot be lived without.
    pub fn from_env() -> Result<Self, ConfigError> {
        let mut config = Self::from_variables(&|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })?;
        for setting in config.set.iter().filter(|setting| setting.is_replaced()) {
            tracing::warn!("{setting}");
        }
        let names = std::env::vars_os().map(|(name, _)| name);
        config.note_unknown(names.filter_map(|name| name.into_string().ok()));
        for unknown in &config.unknown {
            if unknown.is_mistake() {
                tracing::warn!("{unknown}");
            } else {
                tracing::info!("{unknown}");
            }
        }
        Ok(config)
    }

    /// The defaults, changed by what `variable` gives for each name.
    ///
    /// # Errors
    /// The first variable whose value is not allowed and cannot be lived without.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for row in VARIABLES {
            let Some(value) = variable(row.name) else {
                continue;
            };
            let value = value.trim();
            let before = (row.show)(&config);
            let effect = row
                .apply(&mut config, value)
                .map_err(|expected| ConfigError {
                    variable: row.name,
                    value: value.to_owned(),
                    expected,
                })?;
            config.set.push(Setting {
                variable: row.name,
                value: value.to_owned(),
                changes: before != (row.show)(&config),
                default: before,
                effect,
            });
        }
        if let Partition::Value(_) = config.partition
            && let Some(index) = config
                .set
                .iter_mut()
                .find(|it| it.variable == "NCCL_IB_PKEY")
        {
            index.effect = Effect::Overruled("NCCL_IB_PKEY_VALUE");
        }
        Ok(config)
    }

    /// Every variable that is a setting, in the order of the fields.
    pub fn variables() -> Vec<Variable> {
        VARIABLES.iter().map(Row::variable).collect()
    }

    /// The variables that were set, and what each changed.
    pub fn set_variables(&self) -> &[Setting] {
        &self.set
    }

    /// Variables of the environment that are named like settings (`IBNET_…`, `NCCL_IB_…`) and are
    /// none. Only [`from_env`](Self::from_env) looks for them. Those of NCCL may be meant for its
    /// built-in transport.
    pub fn unknown_variables(&self) -> &[UnknownVariable] {
        &self.unknown
    }

    fn note_unknown(&mut self, names: impl Iterator<Item = String>) {
        self.unknown = names
            .filter_map(|name| UnknownVariable::of(&name))
            .collect();
        self.unknown.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

/// A P_Key. Without the membership bit, 0 is no partition (InfiniBand specification, volume 1,
/// section 10.9.1).
fn pkey(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(pkey) if pkey & 0x7fff != 0 => Ok(pkey),
        _ => Err("a P_Key from 1 to 0xffff, but not 0x8000".to_owned()),
    }
}

/// `first-last`, or one port.
fn port_range(text: &str) -> Result<Option<RangeInclusive<u16>>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(Some(first..=last)),
        _ => Err("a range of ports, for instance 30000-30100".to_owned()),
    }
}

#[cfg(test)]
mod tests;
