//! What is accepted, and how what is not is named.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Duration;

use ibnet_gid::Wish;

use super::environment::{Line, read};
use super::settings::VARIABLES;
use super::variable::Reading;
use super::*;

fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    set(variables).map(|(config, _)| config)
}

/// The settings, and what is said of each variable.
fn set(variables: &[(&str, &str)]) -> Result<(Config, Vec<Line>), ConfigError> {
    read(&|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// What the log says of the variables.
fn lines(variables: &[(&str, &str)]) -> Vec<String> {
    let (_, sets) = set(variables).unwrap();
    sets.into_iter().map(|line| line.text).collect()
}

fn is_replaced(variable: &str, value: &str) -> bool {
    set(&[(variable, value)]).is_ok_and(|(_, sets)| sets[0].is_warning)
}

#[test]
fn nothing_set_gives_the_defaults() {
    let parsed = config(&[]).unwrap();
    assert_eq!(format!("{parsed:?}"), format!("{:?}", Config::default()));
    for variable in VARIABLES.iter() {
        let (empty, sets) = set(&[(variable.name, " ")]).unwrap();
        let expected = format!(
            "{}=: {} is used instead; an empty value counts as unset",
            variable.name,
            variable.show(&Config::default())
        );
        assert_eq!(sets[0].text, expected);
        assert_eq!(format!("{empty:?}"), format!("{:?}", Config::default()));
    }
}

#[test]
fn values_arrive_in_their_fields() {
    let parsed = config(&[
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_IB_RETRY_CNT", "5"),
        ("NCCL_IB_PKEY", "65535"),
        ("NCCL_IB_SL", "15"),
        ("NCCL_IB_TC", "106"),
        ("NCCL_IB_FIFO_TC", "192"),
        ("NCCL_IB_DEVICE_PCI_ORDER", "0"),
        ("NCCL_IB_MERGE_VFS", "0"),
        ("NCCL_IB_MERGE_NICS", "0"),
        ("NCCL_IB_QUERY_PORT_SPEED", "0"),
        ("NCCL_IB_DATA_DIRECT", "2"),
        ("NCCL_IB_PCI_RELAXED_ORDERING", "1"),
        ("NCCL_IB_RETURN_ASYNC_EVENTS", "0"),
        ("NCCL_SOCKET_FAMILY", "AF_INET6"),
        ("NCCL_IBVERBS_LIB", "/opt/libibverbs.so.1"),
        ("IBNET_CONNECT_TIMEOUT", "5"),
    ])
    .unwrap();
    assert!(parsed.disabled);
    assert_eq!(parsed.gid_index.for_port("mlx5_0", 1), Some(3));
    assert_eq!((parsed.ack_exponent(), parsed.retry_count), (22, 5));
    assert_eq!(parsed.partition, Partition::Index(65_535));
    assert_eq!(parsed.service_level, Some(15));
    assert_eq!(parsed.traffic_class, Some(106));
    assert_eq!(parsed.fifo_traffic_class, Some(192));
    assert!(!parsed.pci_order && !parsed.merge_vfs && !parsed.merge_nics);
    assert!(!parsed.query_port_speed && !parsed.return_async_events);
    assert_eq!(parsed.data_direct, DataDirect::Both);
    assert_eq!(parsed.relaxed_ordering, RelaxedOrdering::Force);
    assert_eq!(parsed.socket_family, Some(Family::V6));
    assert_eq!(parsed.library, Some(PathBuf::from("/opt/libibverbs.so.1")));
    assert_eq!(parsed.connect_timeout, Some(Duration::from_secs(5)));
    assert_eq!(Config::default().connect_timeout, None);
}

#[test]
fn what_is_set_about_gids_weighs_more_than_the_order() {
    let parsed = config(&[
        ("NCCL_IB_GID_INDEX", "mlx5_0:1=3,mlx5_1=5"),
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_ADDR_RANGE", "fd00::/8,10.0.0.0/8"),
        ("NCCL_IB_ROCE_VERSION_NUM", "1"),
        ("NCCL_IB_ROUTABLE_FLID_GID_INDEX", "2"),
        ("IBNET_GID_NETDEVS", "eth2.100"),
    ])
    .unwrap();
    assert_eq!(parsed.gid_index.for_port("mlx5_0", 1), Some(3));
    assert_eq!(parsed.gid_index.for_port("mlx5_0", 2), None);
    assert_eq!(parsed.gid.family, Wish::Ask(ibnet_gid::Family::Ipv6));
    assert_eq!(parsed.gid.ranges.0.len(), 2);
    assert_eq!(
        parsed.gid.roce_version,
        Wish::Ask(ibnet_gid::RoceVersion::V1)
    );
    assert_eq!(parsed.gid.flid_index, Some(2));
    assert!(matches!(parsed.gid.netdevs, Some(Wish::Require(_))));
    // Nothing set demands nothing.
    assert_eq!(config(&[]).unwrap().gid, ibnet_gid::Policy::default());
}

#[test]
fn a_partition_is_named_by_its_index_or_by_its_value() {
    for (value, pkey) in [
        ("0x8001", 0x8001),
        ("1", 1),
        ("65535", 0xffff),
        ("0x7fff", 0x7fff),
    ] {
        let parsed = config(&[("NCCL_IB_PKEY_VALUE", value)]).unwrap();
        assert_eq!(parsed.partition, Partition::Value(pkey), "{value}");
    }
    let both = [("NCCL_IB_PKEY", "5"), ("NCCL_IB_PKEY_VALUE", "0x8001")];
    assert_eq!(config(&both).unwrap().partition, Partition::Value(0x8001));
    assert_eq!(
        lines(&both),
        [
            "NCCL_IB_PKEY_VALUE=0x8001 (default unset)",
            "NCCL_IB_PKEY=5 is not used: NCCL_IB_PKEY_VALUE is set and wins",
        ]
    );
    // What names no partition does not win.
    let both = config(&[("NCCL_IB_PKEY", "5"), ("NCCL_IB_PKEY_VALUE", "0")]).unwrap();
    assert_eq!(both.partition, Partition::Index(5));
}

#[test]
fn minus_one_means_unset_where_nccl_says_so() {
    let parsed = config(&[
        ("NCCL_IB_GID_INDEX", "-1"),
        ("NCCL_IB_SL", "-1"),
        ("NCCL_IB_TC", "-1"),
        ("NCCL_IB_FIFO_TC", "-1"),
    ])
    .unwrap();
    assert_eq!(parsed.gid_index.for_port("mlx5_0", 1), None);
    assert_eq!(parsed.service_level, None);
    assert_eq!(parsed.traffic_class, None);
    assert_eq!(parsed.fifo_traffic_class, None);
}

/// What is said of a value in whose place another is used. Nothing that is not said is changed.
fn instead(variable: &str, value: &str) -> String {
    let (_, sets) = set(&[(variable, value)]).unwrap();
    assert!(sets[0].is_warning, "{}", sets[0].text);
    sets[0].text.clone()
}

#[test]
fn a_value_that_nccl_lives_with_is_replaced_and_named() {
    // Nothing is truncated into its field.
    for (variable, value, said) in [
        (
            "NCCL_IB_TIMEOUT",
            "200",
            "20 is used instead; expected a number from 0 to 31",
        ),
        (
            "NCCL_IB_TIMEOUT",
            "-1",
            "20 is used instead; expected a number from 0 to 31",
        ),
        (
            "NCCL_IB_TIMEOUT",
            "0x20",
            "20 is used instead; expected a number from 0 to 31",
        ),
        (
            "NCCL_IB_TIMEOUT",
            "long",
            "20 is used instead; expected a number from 0 to 31",
        ),
        (
            "NCCL_IB_RETRY_CNT",
            "9",
            "7 is used instead; expected a number from 0 to 7",
        ),
        (
            "NCCL_IB_SL",
            "16",
            "0 is used instead; expected a number from -1 to 15",
        ),
        (
            "NCCL_IB_TC",
            "256",
            "0 is used instead; expected a number from -1 to 255",
        ),
        (
            "NCCL_IB_PKEY",
            "-1",
            "0 is used instead; expected a number from 0 to 65535",
        ),
        (
            "NCCL_IB_PKEY_VALUE",
            "0x8000",
            "unset is used instead; expected a P_Key",
        ),
        (
            "NCCL_IB_PKEY_VALUE",
            "0x10000",
            "unset is used instead; expected a P_Key",
        ),
        (
            "NCCL_IB_GID_INDEX",
            "256",
            "-1 is used instead; expected a GID index from 0 to 255",
        ),
        (
            "NCCL_IB_ADDR_FAMILY",
            "inet",
            "AF_INET first is used instead; expected AF_INET or",
        ),
        (
            "NCCL_SOCKET_FAMILY",
            "inet",
            "any is used instead; expected AF_INET or AF_INET6",
        ),
        (
            "NCCL_IB_ROCE_VERSION_NUM",
            "3",
            "2 first is used instead; expected 1 or 2",
        ),
        (
            "NCCL_IB_ROUTABLE_FLID_GID_INDEX",
            "-2",
            "1 is used instead; expected a number from -1 to 255",
        ),
        (
            "NCCL_IB_DATA_DIRECT",
            "3",
            "1 is used instead; expected a number from 0 to 2",
        ),
        (
            "NCCL_IB_PCI_RELAXED_ORDERING",
            "-2",
            "2 is used instead; expected a number from 0 to 2",
        ),
        (
            "NCCL_IB_MERGE_NICS",
            "on",
            "1 is used instead; expected a number from 0 to 1",
        ),
        (
            "NCCL_IB_MERGE_NICS",
            "-2",
            "1 is used instead; any number but 0 means 1, as in NCCL",
        ),
        (
            "NCCL_IB_QPS_PER_CONNECTION",
            "129",
            "1 is used instead; expected a number from 1 to",
        ),
        (
            "NCCL_IB_TC",
            "0106",
            "70 is used instead; a leading 0 makes a number octal, as in NCCL",
        ),
        (
            "NCCL_IB_TC",
            "08",
            "0 is used instead; what follows the number is not read, as in NCCL",
        ),
        (
            "NCCL_IB_TIMEOUT",
            "22 # s",
            "22 is used instead; what follows the number is not read",
        ),
        (
            "NCCL_IB_TC",
            "9223372036854775808",
            "is used instead; expected a number from -1",
        ),
    ] {
        let text = instead(variable, value);
        assert!(text.starts_with(&format!("{variable}={value}: ")), "{text}");
        assert!(text.contains(said), "{text}");
    }
    let parsed = config(&[("NCCL_IB_TIMEOUT", "200"), ("NCCL_IB_TC", "0106")]).unwrap();
    assert_eq!(
        (parsed.ack_exponent(), parsed.traffic_class),
        (20, Some(70))
    );
    let parsed = config(&[("NCCL_IB_DISABLE", "2"), ("NCCL_GDR_FLUSH_DISABLE", "-1")]).unwrap();
    assert!(parsed.disabled && !parsed.flush);
}

#[test]
fn every_variable_takes_numbers_as_nccl_does() {
    let number = |name| match name {
        "NCCL_IB_ROCE_VERSION_NUM" => [("0x2", "2"), ("02", "2")],
        _ => [("0x1", "1"), ("01", "1")],
    };
    let mut numbers = 0;
    for variable in VARIABLES.iter() {
        if matches!(variable.reading(), Reading::Word | Reading::Text) {
            continue;
        }
        numbers += 1;
        for (text, plain) in number(variable.name) {
            let said = |text| {
                let (config, sets) = set(&[(variable.name, text)]).unwrap();
                assert!(!sets[0].is_warning, "{}", sets[0].text);
                variable.show(&config)
            };
            assert_eq!(said(text), said(plain), "{}={text}", variable.name);
        }
    }
    assert!(numbers > 25, "{numbers}");
}

/// The second table of `docs/configuration.md` is true of every variable that it names.
#[test]
fn each_variable_is_read_as_its_documentation_says() {
    for variable in VARIABLES.iter() {
        let outcome = |text| config(&[(variable.name, text)]);
        let is_replaced = |text| is_replaced(variable.name, text);
        match variable.reading() {
            Reading::Number | Reading::Switch => {
                assert!(is_replaced("x") && is_replaced("1 s"), "{}", variable.name);
            }
            Reading::NumberOrList => {
                assert!(is_replaced("x") && is_replaced("1 s"), "{}", variable.name);
                assert!(outcome("mlx5_0=x").is_err(), "{}", variable.name);
            }
            Reading::Word => assert!(is_replaced("x"), "{}", variable.name),
            Reading::Text => {
                let is_strict = outcome("^^a b").is_err();
                // Everything is a path, and an address that says nothing here is NCCL's business.
                let takes_all = ["NCCL_IBVERBS_LIB", "NCCL_COMM_ID"].contains(&variable.name);
                assert_eq!(is_strict, !takes_all, "{}", variable.name);
            }
        }
        if variable.name.starts_with("IBNET_") {
            assert_eq!(
                variable.reading(),
                Reading::Text,
                "{} is strict",
                variable.name
            );
        }
    }
}

#[test]
fn what_cannot_be_lived_without_is_an_error() {
    for (variable, value, expected) in [
        ("NCCL_IB_GID_INDEX", "mlx5_0:1=3,mlx5_1:x=4", "mlx5_1:x=4"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0.0/33", "10.0.0.0/33"),
        ("NCCL_IB_HCA", "mlx5_0:999", "port"),
        ("NCCL_IB_HCA", "^=a,^=b", "^=a,b"),
        ("NCCL_SOCKET_IFNAME", "^=a,^=b", "^=a,b"),
        ("IBNET_GID_NETDEVS", "a/b", "network interface"),
        ("IBNET_CONNECT_TIMEOUT", "0", "1 to 86400"),
        ("IBNET_CONNECT_TIMEOUT", "7 s", "1 to 86400"),
        ("IBNET_MIN_PART", "127", "128 to"),
        ("IBNET_PATH_POLICY", "best", "round-robin"),
    ] {
        let text = config(&[(variable, value)]).unwrap_err().to_string();
        assert!(
            text.contains(variable) && text.contains(value) && text.contains(expected),
            "{text}"
        );
    }
}

#[test]
fn a_value_is_said_once() {
    let refused = |name, value| config(&[(name, value)]).unwrap_err().to_string();
    assert_eq!(
        refused("IBNET_PATH_POLICY", "best"),
        "IBNET_PATH_POLICY=best: expected round-robin or least-outstanding"
    );
    // Of a list, the part is named.
    let text = refused("NCCL_IB_GID_INDEX", "mlx5_0:1=3,mlx5_1:x=4");
    assert!(text.ends_with("in place of \"mlx5_1:x=4\""), "{text}");
}

#[test]
fn what_is_set_is_recorded_with_what_it_changes() {
    let variables = [
        ("NCCL_IB_TIMEOUT", " 14 "),
        ("NCCL_IB_RETRY_CNT", "7"),
        ("NCCL_IB_HCA", "mlx5_0"),
        ("NCCL_IB_SL", ""),
        ("NCCL_IB_TC", "-1"),
        ("PATH", "/bin"),
    ];
    assert_eq!(
        lines(&variables),
        [
            "NCCL_IB_HCA=mlx5_0 (default every device)",
            "NCCL_IB_TIMEOUT=14 (default 20)",
            "NCCL_IB_RETRY_CNT=7 (the default)",
            "NCCL_IB_SL=: on InfiniBand the connection's traffic class if it is 0 to 15, else 0 is used \
             instead; an empty value counts as unset",
            "NCCL_IB_TC=-1 (the default)",
        ]
    );
}

#[test]
fn every_variable_changes_its_field_and_nothing_else() {
    // A value for each that is not its default.
    let value = |name: &str| match name {
        "NCCL_IBVERBS_LIB" => "/lib/x.so",
        "NCCL_IB_HCA" => "mlx5_7",
        "NCCL_IB_DATA_DIRECT" | "NCCL_IB_PCI_RELAXED_ORDERING" | "NCCL_IB_DISABLE" => "0",
        "NCCL_IB_GID_INDEX" => "5",
        "NCCL_IB_ADDR_FAMILY" | "NCCL_SOCKET_FAMILY" => "AF_INET6",
        "NCCL_IB_ADDR_RANGE" => "10.0.0.0/8",
        "NCCL_IB_ROCE_VERSION_NUM" => "1",
        "IBNET_GID_NETDEVS" | "NCCL_SOCKET_IFNAME" => "eth5",
        "NCCL_IB_PKEY_VALUE" => "0x8003",
        "IBNET_PORT_RANGE" => "4000-4001",
        "IBNET_PATH_POLICY" => "least-outstanding",
        "IBNET_MIN_PART" => "4096",
        _ => "0",
    };
    let unset = Config::default();
    for variable in VARIABLES.iter() {
        let mut text = value(variable.name);
        if variable.show(&unset) == text {
            text = "1";
        }
        let allowed = |text| {
            let (config, sets) = set(&[(variable.name, text)]).ok()?;
            (!sets[0].is_warning).then_some(config)
        };
        let changed = allowed(text).unwrap_or_else(|| allowed("3").unwrap());
        assert_ne!(
            variable.show(&changed),
            variable.show(&unset),
            "{}",
            variable.name
        );
        for other in VARIABLES
            .iter()
            .filter(|other| other.field != variable.field)
        {
            let is_unchanged = other.show(&changed) == other.show(&unset);
            assert!(is_unchanged, "{} changes {}", variable.name, other.field);
        }
        changed.check().unwrap();
    }
}

/// What a program sets is held to the same as the environment, and named by its field.
#[test]
fn a_field_is_checked_as_its_variable_is() {
    Config::default().check().unwrap();
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 2..=1;
    for (config, says) in [
        (
            Config::default().retry_count(99),
            "retry_count=99: expected a number from 0 to 7",
        ),
        (
            Config::default().queue_pairs(0),
            "queue_pairs=0: expected a number from 1 to 128",
        ),
        (
            Config::default().service_level(Some(16)),
            "service_level=Some(16): expected a number from -1 to 15",
        ),
        (
            Config::default().partition(Partition::Value(0x8000)),
            "partition=Value(32768): expected a P_Key from 1",
        ),
        (
            Config::default().connect_timeout(Some(Duration::ZERO)),
            "connect_timeout=Some(0ns): expected a number from 1 to 86400 seconds",
        ),
        (
            Config::default().connect_timeout(Some(Duration::MAX)),
            "connect_timeout=Some(18446744073709551615.999999999s): expected",
        ),
        (
            Config::default().socket_retries(100_001),
            "socket_retries=100001: expected a number from 0",
        ),
        (
            Config::default().socket_retry_pause(Duration::from_secs(601)),
            "socket_retry_pause=601s: expected a number from 1 to 600000 milliseconds",
        ),
        (
            Config::default().ports(Some(0..=5)),
            "ports=Some(0..=5): expected a range",
        ),
        (
            Config::default().ports(Some(reversed)),
            "ports=Some(2..=1): expected a range",
        ),
        (
            Config::default().min_part(Some(127)),
            "min_part=Some(127): expected a number from 128",
        ),
        (
            Config::default().adaptive_routing_threshold(u32::MAX),
            "adaptive_routing_threshold=4294967295: expected",
        ),
        (
            Config::default().modify_retries(100_001),
            "modify_retries=100001: expected",
        ),
        (
            Config::default().modify_retry_pause(Duration::MAX),
            "modify_retry_pause=18446744073709551615.999999999s: expected",
        ),
    ] {
        let said = config.check().unwrap_err().to_string();
        assert!(said.starts_with(says), "{said}");
    }
}

#[test]
fn an_ack_timeout_is_at_least_what_was_asked_for() {
    let exponent = |timeout| Config::default().ack_timeout(timeout).ack_exponent();
    for (microseconds, expected) in [
        (0, 1),
        (8, 1),
        (9, 2),
        (4_294_967, 20),
        (4_294_968, 21),
        (8_796_093_022, 31),
        (u64::MAX, 31),
    ] {
        let timeout = Duration::from_micros(microseconds);
        assert_eq!(exponent(Some(timeout)), expected, "{timeout:?}");
    }
    assert_eq!(exponent(None), 0);
    assert_eq!(Config::default().ack_exponent(), 20);
}
