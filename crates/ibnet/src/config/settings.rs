//! [`Config`], and the one list of all settings, from which it, the table of variables and the page
//! `docs/configuration.md` are made.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ibnet_gid::{InvalidRule, Wish};
use thiserror::Error;

use super::hca_filter::HcaFilter;
use super::interface_filter::InterfaceFilter;
use super::name_list::InvalidList;
use super::values::{DataDirect, Family, Partition, PathPolicy, RelaxedOrdering};
use super::variable::{
    Form::{Number, Switch, Text},
    Reading, Variable,
};

/// Makes everything of the list of settings. Each is a field with its documentation, its type, its
/// default, and the variables that set it or a part of it: name and form, how NCCL's differs, and
/// what it means, where the documentation of the field does not say that.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $(($attribute:meta))?
        $field:ident: $type:ty = $default:expr $(,
            $variable:literal $(sets $part:ident)?: $form:expr
            $(, unset $unset:literal)? $(, differs $differs:literal)? $(, means $meaning:literal)?
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
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// Each field's setter, to be called one after the other.
        impl Config {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                $(#[$attribute])?
                #[must_use]
                pub fn $field(mut self, value: $type) -> Self {
                    self.$field = value;
                    self
                }
            )+
        }

        /// The documentation of each field.
        #[cfg(test)]
        pub(super) const FIELDS: &[(&str, &str)] = &[$((stringify!($field), concat!($($doc),+))),+];

        /// The table of variables.
        pub(super) static VARIABLES: &[Variable<Config>] = &[$($(
            Variable {
                name: $variable,
                field: concat!(stringify!($field) $(, ".", stringify!($part))?),
                form: $form,
                unset: concat!($($unset)?),
                debug: |config| format!("{:?}", config.$field$(.$part)?),
                #[cfg(test)]
                differs: concat!($($differs)?),
                #[cfg(test)]
                meaning: concat!($($meaning)?),
            },
        )*)+];
    };
}

settings! {
    /// Leave this network alone: for programs that have another one, such as NCCL with the plugin, which
    /// fails to start then. [`Transport::open`](crate::Transport::open) does not look at it.
    disabled: bool = false,
        "NCCL_IB_DISABLE": Switch(|c| c.disabled, |c, on| c.disabled = on);
    /// Load this library of verbs and no other.
    library: Option<PathBuf> = None,
        "NCCL_IBVERBS_LIB": Text(Reading::Text, "a path", |c, text| {
            put(&mut c.library, Ok(Some(text.into())))
        }), unset "`libibverbs.so`, `libibverbs.so.1`";
    /// Which devices and ports to use; see [`HcaFilter`] for the grammar.
    hca: HcaFilter = HcaFilter::default(),
        "NCCL_IB_HCA": Text(Reading::Text, "a list like `mlx5_0:1,mlx5_2`, `=mlx5_0` or `^mlx5_3`", |c, text| {
            put(&mut c.hca, text.parse().map_err(|InvalidList(expected)| expected))
        }), unset "every device";
    /// Sort the devices by PCI address, so that equal machines count them alike. Otherwise they
    /// are in the order of libibverbs.
    pci_order: bool = true,
        "NCCL_IB_DEVICE_PCI_ORDER": Switch(|c| c.pci_order, |c, on| c.pci_order = on);
    /// Give virtual functions the PCI path of their physical one, so that NCCL knows that they
    /// share its link.
    merge_vfs: bool = true,
        "NCCL_IB_MERGE_VFS": Switch(|c| c.merge_vfs, |c, on| c.merge_vfs = on);
    /// Allow virtual devices of more than one device.
    merge_nics: bool = true,
        "NCCL_IB_MERGE_NICS": Switch(|c| c.merge_nics, |c, on| c.merge_nics = on);
    /// Say so when the two ends of a connection have devices of different names: with a network for
    /// each rail, that is a rank whose devices are in another order.
    warn_rail_local: bool = false,
        "NCCL_IB_WARN_RAIL_LOCAL": Switch(|c| c.warn_rail_local, |c, on| c.warn_rail_local = on);
    /// Ask for a port's speed by `ibv_query_port_speed` where libibverbs has it.
    query_port_speed: bool = true,
        "NCCL_IB_QUERY_PORT_SPEED": Switch(|c| c.query_port_speed, |c, on| c.query_port_speed = on);
    /// What to do about mlx5's second path to the GPU: 0: nothing; 1: a device that has it is
    /// listed with it alone; 2: both ways. See [`DataDirect`].
    data_direct: DataDirect = DataDirect::Only,
        "NCCL_IB_DATA_DIRECT": Number(0..=2, "", |c| Some(c.data_direct as i64), |c, number| {
            c.data_direct = match number {
                0 => DataDirect::Off,
                1 => DataDirect::Only,
                _ => DataDirect::Both,
            };
        });
    /// Whether memory is registered with relaxed PCI ordering: 0: never; 1: yes; 2: if libibverbs
    /// is new enough for it. See [`RelaxedOrdering`].
    relaxed_ordering: RelaxedOrdering = RelaxedOrdering::Auto,
        "NCCL_IB_PCI_RELAXED_ORDERING": Number(0..=2, "", |c| Some(c.relaxed_ordering as i64), |c, number| {
            c.relaxed_ordering = match number {
                0 => RelaxedOrdering::Off,
                1 => RelaxedOrdering::Force,
                _ => RelaxedOrdering::Auto,
            };
        });
    /// Whether fatal events of devices, queue pairs and completion queues end the connections
    /// that they hit. Otherwise they are logged only.
    return_async_events: bool = true,
        "NCCL_IB_RETURN_ASYNC_EVENTS": Switch(|c| c.return_async_events, |c, on| c.return_async_events = on);
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
        "NCCL_IB_GID_INDEX": Text(Reading::NumberOrList, "-1 to 255, or a list like `mlx5_0:1=3,mlx5_1=5`", |c, text| {
            put(&mut c.gid_index, rule(text))
        }), unset "-1", differs "one number for all ports";
    /// How GIDs are chosen. Its `index` is ignored: `gid_index` has one for each port. A range or
    /// interface that a variable sets is demanded; a family or version is asked for, as in NCCL.
    gid: ibnet_gid::Policy = ibnet_gid::Policy::default(),
        "NCCL_IB_ADDR_FAMILY" sets family: Text(Reading::Word, "`AF_INET` or `AF_INET6`", |c, text| {
            put(&mut c.gid.family, rule(text).map(Wish::Ask))
        }), unset "AF_INET first", means "RoCE: GIDs of this family of addresses; others only on a port that has none, with a warning.",
        "NCCL_IB_ADDR_RANGE" sets ranges: Text(Reading::Text, "a list like `10.0.0.0/8,fd00::/8`", |c, text| {
            put(&mut c.gid.ranges, rule(text))
        }), unset "any",
            differs "one range", means "RoCE: only GIDs whose addresses are in these ranges.",
        "NCCL_IB_ROCE_VERSION_NUM" sets roce_version: Text(Reading::Number, "1 or 2", |c, text| {
            put(&mut c.gid.roce_version, rule(text).map(Wish::Ask))
        }), unset "2 first",
            means "RoCE: GIDs of this version of the protocol; others only on a port that has none, with a warning.",
        "NCCL_IB_ROUTABLE_FLID_GID_INDEX" sets flid_index: Number(-1..=255, "", |c| or_minus_one(c.gid.flid_index), |c, number| {
            c.gid.flid_index = u8::try_from(number).ok();
        }),
            means "InfiniBand: use this GID if it can be routed between subnets; -1 for none.",
        "IBNET_GID_NETDEVS" sets netdevs: Text(Reading::Text, "a list like `eth2.100,bond0`", |c, text| {
            put(&mut c.gid.netdevs, rule(text).map(Wish::Require).map(Some))
        }), unset "any",
            means "RoCE: only GIDs of these network interfaces, the first wanted most.";
    /// Local ack timeout of the queue pairs: how long one waits for an acknowledgement before it sends
    /// again; none for ever. It becomes the next longer 4.096 µs · 2^n, with n = 31, 2.4 hours, at most
    /// (InfiniBand specification, volume 1, section 9.7.6.1.3).
    ack_timeout: Option<Duration> = ack_timeout(20),
        "NCCL_IB_TIMEOUT": Number(0..=31, "", |c| Some(c.ack_exponent().into()), |c, n| c.ack_timeout = ack_timeout(n as u8)),
            means "Local ack timeout of the queue pairs: 4.096 µs · 2^n, 0 for none (InfiniBand \
                   specification, volume 1, section 9.7.6.1.3).";
    /// How often a queue pair sends again before it gives up. Soft-RoCE takes 7 for "without end"
    /// and therefore gets 6.
    retry_count: u8 = 7,
        "NCCL_IB_RETRY_CNT": Number(0..=7, "", |c| Some(c.retry_count.into()), |c, n| c.retry_count = n as u8);
    /// Which partition the queue pairs are in.
    partition: Partition = Partition::Index(0),
        "NCCL_IB_PKEY_VALUE": Text(Reading::Number, PKEY, |c, text| {
            let pkey = text.parse().ok().filter(|pkey| is_pkey(*pkey));
            put(&mut c.partition, pkey.map(Partition::Value).ok_or_else(|| PKEY.to_owned()))
        }), unset "unset", means "The partition by its value, wherever it is in the table \
             of each port; wins over `NCCL_IB_PKEY`.",
        "NCCL_IB_PKEY": Number(0..=u16::MAX as i64, "", |c| match c.partition {
                Partition::Index(index) => Some(index.into()),
                Partition::Value(_) => None,
            },
            |c, index| c.partition = Partition::Index(index as u16),
        ), means "The partition of the queue pairs, by its index in the port's table.";
    /// Service level, of the sender for both directions; -1 counts as unset.
    service_level: Option<u8> = None,
        "NCCL_IB_SL": Number(-1..=15, "", |c| or_minus_one(c.service_level), |c, number| {
            c.service_level = u8::try_from(number).ok();
        }), unset "on InfiniBand the connection's traffic class if it is 0 to 15, else 0",
            differs "a traffic class beyond 15 is cut to four bits, and the class is the level on Ethernet, too";
    /// Traffic class, of the sender for both directions. Wins over the one asked for per connection,
    /// which is the communicator's in NCCL.
    traffic_class: Option<u8> = None,
        "NCCL_IB_TC": Number(-1..=255, "", |c| or_minus_one(c.traffic_class), |c, number| {
            c.traffic_class = u8::try_from(number).ok();
        }), unset "the connection's, else 0";
    /// Traffic class of the receiver's announcements, which travel against the data.
    fifo_traffic_class: Option<u8> = None,
        "NCCL_IB_FIFO_TC": Number(-1..=255, "", |c| or_minus_one(c.fifo_traffic_class), |c, number| {
            c.fifo_traffic_class = u8::try_from(number).ok();
        }), unset "the sender's, as for the data";
    /// Which network interface carries the handshake; see [`InterfaceFilter`] for the grammar.
    interfaces: InterfaceFilter = InterfaceFilter::default(),
        "NCCL_SOCKET_IFNAME": Text(Reading::Text, "a list like `eth0,bond`, `=eth0` or `^docker`", |c, text| {
            put(&mut c.interfaces, text.parse().map_err(|InvalidList(expected)| expected))
        }), unset "any, virtual ones last", differs "the first that fits, an exact name or not";
    /// Where the ranks of a communicator find each other. Only its network counts here: an interface in
    /// it carries the handshake, unless `interfaces` says something or there is one that begins with
    /// `ib`.
    comm_id: Option<String> = None,
        "NCCL_COMM_ID": Text(Reading::Text, "`HOST:PORT` or `[ADDRESS%INTERFACE]:PORT`", |c, text| {
            put(&mut c.comm_id, Ok(Some(text.to_owned())))
        }), unset "none";
    /// Which address family carries the handshake.
    socket_family: Option<Family> = None,
        "NCCL_SOCKET_FAMILY": Text(Reading::Word, "AF_INET or AF_INET6", |c, text| {
            let words = [("AF_INET", Family::V4), ("AF_INET6", Family::V6)];
            put(&mut c.socket_family, word(text, words).map(Some))
        }), unset "any";
    /// How long each step of a handshake may take. None: as long as the TCP connection lives, because a peer
    /// whose program comes late to `accept` is not a dead one.
    connect_timeout: Option<Duration> = None,
        "IBNET_CONNECT_TIMEOUT": Number(1..=86_400, "seconds", |c| c.connect_timeout.map(seconds), |c, number| {
            c.connect_timeout = Some(Duration::from_secs(number as u64));
        }), unset "none";
    /// How long a connection may be without a path that works before it fails: until then queue pairs are made anew
    /// and what did not arrive is sent again. 0: it fails at once, as NCCL's own network does.
    recovery_timeout: Duration = Duration::ZERO,
        "IBNET_RECOVERY_TIMEOUT": Number(0..=86_400, "seconds", |c| Some(seconds(c.recovery_timeout)), |c, number| {
            c.recovery_timeout = Duration::from_secs(number as u64);
        });
    /// How often a listener that cannot be reached is called again.
    socket_retries: u32 = 34,
        "NCCL_SOCKET_RETRY_CNT": Number(0..=100_000, "", |c| Some(c.socket_retries.into()), |c, n| c.socket_retries = n as u32);
    /// The pause before it is for the first time, on average; each further one is longer by as much.
    socket_retry_pause: Duration = Duration::from_millis(100),
        "NCCL_SOCKET_RETRY_SLEEP_MSEC": Number(1..=600_000, "milliseconds", |c| Some(milliseconds(c.socket_retry_pause)), |c, number| {
            c.socket_retry_pause = Duration::from_millis(number as u64);
        }),
            means "The pause before a listener that cannot be reached is called again, on average; each further \
                   one is longer by as much. With the defaults they are a minute in all.";
    /// Ports for listeners; without, the system chooses.
    ports: Option<RangeInclusive<u16>> = None,
        "IBNET_PORT_RANGE": Text(Reading::Text, PORTS, |c, text| put(&mut c.ports, ports(text).map(Some))), unset "any";
    /// Queue pairs for each pair of devices. The larger wish of both ends counts.
    queue_pairs: u8 = 1,
        "NCCL_IB_QPS_PER_CONNECTION": Number(1..=128, "", |c| Some(c.queue_pairs.into()), |c, n| c.queue_pairs = n as u8), differs "both ends must have the same";
    /// Cut each message over all queue pairs, not only over the pairs of devices.
    split_data: bool = false,
        "NCCL_IB_SPLIT_DATA_ON_QPS": Switch(|c| c.split_data, |c, on| c.split_data = on);
    /// How the sender chooses the paths of a message.
    path_policy: PathPolicy = PathPolicy::RoundRobin,
        "IBNET_PATH_POLICY": Text(Reading::Word, "round-robin or least-outstanding", |c, text| {
            let words = [("round-robin", PathPolicy::RoundRobin), ("least-outstanding", PathPolicy::LeastOutstanding)];
            put(&mut c.path_policy, word(text, words))
        }), unset "round-robin";
    /// Bytes that a part of a message has at least; see [`Config::least_part`].
    min_part: Option<u32> = None,
        "IBNET_MIN_PART": Number(128..=1 << 30, "", |c| c.min_part.map(i64::from), |c, n| c.min_part = Some(n as u32)),
            unset "65536, with `NCCL_IB_SPLIT_DATA_ON_QPS` 4096",
            means "Bytes that a part of a message has at least.";
    /// Whether the fabric may reorder packets; by default on InfiniBand only.
    adaptive_routing: Option<bool> = None,
        "NCCL_IB_ADAPTIVE_ROUTING": Number(-2..=1, "", |c| Some(c.adaptive_routing.map_or(-2, i64::from)), |c, number| {
            c.adaptive_routing = (number >= 0).then_some(number == 1);
        }), unset "1 on InfiniBand, else 0";
    /// Where packets may be reordered, messages of more bytes send their data and what tells of
    /// it apart.
    adaptive_routing_threshold: u32 = ADAPTIVE_ROUTING_THRESHOLD,
        "NCCL_IB_AR_THRESHOLD": Number(-2..=i32::MAX as i64, "", |c| Some(c.adaptive_routing_threshold.into()), |c, number| {
            c.adaptive_routing_threshold = u32::try_from(number).unwrap_or(ADAPTIVE_ROUTING_THRESHOLD);
        });
    /// Small writes carry their data in the request, where the device grants room for it.
    inline: bool = true,
        "NCCL_IB_USE_INLINE": Switch(|c| c.inline, |c, on| c.inline = on), differs "default 0";
    /// Enhanced connection establishment, if both ends want it.
    ece: bool = true,
        "NCCL_IB_ECE_ENABLE": Switch(|c| c.ece, |c, on| c.ece = on);
    /// Flush what was received into the memory of devices.
    flush: bool = true,
        "NCCL_GDR_FLUSH_DISABLE": Switch(|c| !c.flush, |c, off| c.flush = !off),
            means "1: what was received into the memory of devices is not flushed.";
    /// How often a state change of a queue pair is tried again.
    modify_retries: u32 = 34,
        "NCCL_IB_MQP_RETRY_CNT": Number(0..=100_000, "", |c| Some(c.modify_retries.into()), |c, n| c.modify_retries = n as u32);
    /// The pause before the first of these; each further one is longer by as much.
    modify_retry_pause: Duration = Duration::from_millis(100),
        "NCCL_IB_MQP_RETRY_SLEEP_MSEC": Number(0..=600_000, "milliseconds", |c| Some(milliseconds(c.modify_retry_pause)), |c, number| {
            c.modify_retry_pause = Duration::from_millis(number as u64);
        }), differs "the caller sleeps",
            means "The pause before a state change is tried again; each further one is longer by as much.";
    /// Try a state change again after every error, not only after a time-out.
    retry_modify_always: bool = false,
        "NCCL_IB_MQP_RETRY_ALL": Switch(|c| c.retry_modify_always, |c, on| c.retry_modify_always = on);
    /// Id of the first buffer that a receiver announces. Any will do: with this one, rings start in
    /// their second round. Tests choose one near the end of the numbers; no variable sets it.
    (doc(hidden))
    first_entry: u64 = 256;
}

const ADAPTIVE_ROUTING_THRESHOLD: u32 = 8192;

/// A setting whose value means nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{setting}={value}: expected {expected}")]
pub struct ConfigError {
    /// The name of the variable, or of the field of [`Config`] where a program has set it.
    pub setting: &'static str,
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

    /// The local ack timeout as queue pairs have it: n of 4.096 µs · 2^n, 0 for none.
    pub(crate) fn ack_exponent(&self) -> u8 {
        ack_exponent(self.ack_timeout)
    }

    /// Every variable, and the field that it sets: `retry_count`, or `gid.ranges` for a part of one.
    pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
        VARIABLES
            .iter()
            .map(|variable| (variable.name, variable.field))
    }

    /// Checks every field against what its variable may say.
    ///
    /// # Errors
    /// The first field whose value is not allowed.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_refused = |variable: &&Variable<Self>| match variable.name {
            "NCCL_IB_PKEY_VALUE" => {
                matches!(self.partition, Partition::Value(pkey) if !is_pkey(pkey))
            }
            "IBNET_PORT_RANGE" => self.ports.as_ref().is_some_and(|ports| !is_ports(ports)),
            _ => variable.is_out_of_range(self),
        };
        match VARIABLES.iter().find(is_refused) {
            None => Ok(()),
            Some(variable) => Err(ConfigError {
                setting: variable.field,
                value: (variable.debug)(self),
                expected: variable.allowed(),
            }),
        }
    }
}

/// 4.096 µs · 2^n, none for 0.
fn ack_timeout(exponent: u8) -> Option<Duration> {
    (exponent > 0).then(|| Duration::from_nanos(4096 << exponent))
}

/// The smallest n for which 4.096 µs · 2^n is as long; 31 where none is.
fn ack_exponent(timeout: Option<Duration>) -> u8 {
    let is_enough = |exponent: &u8| timeout <= ack_timeout(*exponent);
    (0..31).find(is_enough).unwrap_or(31)
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn or_minus_one(number: Option<u8>) -> Option<i64> {
    Some(number.map_or(-1, i64::from))
}

/// Sets a field, if there is a value for it.
fn put<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

/// The value of one of two words.
fn word<T>(text: &str, words: [(&str, T); 2]) -> Result<T, String> {
    let expected = format!("{} or {}", words[0].0, words[1].0);
    let mut found = words.into_iter().filter(|(word, _)| *word == text);
    found.next().map(|(_, value)| value).ok_or(expected)
}

const PKEY: &str = "a P_Key from 1 to 0xffff, but not 0x8000";

/// Without the membership bit, 0 is no partition (InfiniBand specification, volume 1, section 10.9.1).
fn is_pkey(pkey: u16) -> bool {
    pkey & 0x7fff != 0
}

const PORTS: &str = "a range of ports, for instance 30000-30100";

/// `first-last`, or one port.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Some(first..=last).filter(is_ports),
        _ => None,
    }
    .ok_or_else(|| PORTS.to_owned())
}

fn is_ports(ports: &RangeInclusive<u16>) -> bool {
    *ports.start() > 0 && !ports.is_empty()
}

/// A rule for choosing GIDs. Of a list, the part that means nothing is named; a whole value is known.
fn rule<T: FromStr<Err = InvalidRule>>(text: &str) -> Result<T, String> {
    text.parse().map_err(
        |InvalidRule { token, expected }| match token.trim() == text.trim() {
            true => expected,
            false => format!("{expected} in place of {token:?}"),
        },
    )
}
