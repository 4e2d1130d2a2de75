//! What is accepted, and how what is not is named.
#![allow(clippy::unwrap_used)]
use super::*;

fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::from_variables(&|name| {
        variables
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn nothing_set_gives_the_defaults() {
    let parsed = config(&[]).unwrap();
    assert_eq!(format!("{parsed:?}"), format!("{:?}", Config::default()));
    for variable in Config::variables() {
        let mut empty = config(&[(variable.name, " ")]).unwrap();
        let said = empty.set.remove(0).to_string();
        let expected = format!(
            "{}=: {} is used instead; an empty value counts as unset",
            variable.name, variable.default
        );
        assert_eq!(said, expected);
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
    assert_eq!((parsed.timeout, parsed.retry_count), (22, 5));
    assert_eq!(parsed.partition, Partition::Index(65_535));
    assert_eq!(parsed.service_level, Some(15));
    assert_eq!(parsed.traffic_class, Some(106));
    assert_eq!(parsed.fifo_traffic_class, Some(192));
    assert!(!parsed.pci_order && !parsed.merge_vfs && !parsed.merge_nics);
    assert!(!parsed.query_port_speed && !parsed.return_async_events);
    assert_eq!(parsed.data_direct, DataDirect::Both);
    assert_eq!(parsed.relaxed_ordering, RelaxedOrdering::Force);
    assert_eq!(parsed.family, Some(Family::V6));
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
    assert_eq!(parsed.gid.flid_index, ibnet_gid::FlidIndex(Some(2)));
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
    let both = config(&[("NCCL_IB_PKEY", "5"), ("NCCL_IB_PKEY_VALUE", "0x8001")]).unwrap();
    assert_eq!(both.partition, Partition::Value(0x8001));
    let lines: Vec<_> = both
        .set_variables()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        [
            "NCCL_IB_PKEY=5 is not used: NCCL_IB_PKEY_VALUE is set and wins",
            "NCCL_IB_PKEY_VALUE=0x8001 (default unset)",
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
    let config = config(&[(variable, value)]).unwrap();
    let setting = &config.set_variables()[0];
    assert!(setting.is_replaced(), "{setting}");
    setting.to_string()
}

#[test]
fn a_value_that_nccl_lives_with_is_replaced_and_named() {
    // Pitfall 21: nothing is truncated into its field.
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
            "1 is used instead; expected a GID index",
        ),
        (
            "NCCL_IB_DATA_DIRECT",
            "3",
            "1 is used instead; expected 0, 1 or 2",
        ),
        (
            "NCCL_IB_PCI_RELAXED_ORDERING",
            "-2",
            "2 is used instead; expected 0, 1 or 2",
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
    assert_eq!((parsed.timeout, parsed.traffic_class), (20, Some(70)));
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
    for row in VARIABLES {
        if matches!(row.reading(), Reading::Word | Reading::Text) {
            continue;
        }
        numbers += 1;
        for (text, plain) in number(row.name) {
            let said = |text| {
                let config = config(&[(row.name, text)]).unwrap();
                assert!(
                    !config.set_variables()[0].is_replaced(),
                    "{}={text}",
                    row.name
                );
                (row.show)(&config)
            };
            assert_eq!(said(text), said(plain), "{}={text}", row.name);
        }
    }
    assert!(numbers > 25, "{numbers}");
}

/// The second table of `docs/configuration.md` is true of every variable that it names.
#[test]
fn each_variable_is_read_as_its_documentation_says() {
    for row in VARIABLES {
        let outcome = |text| config(&[(row.name, text)]);
        let is_replaced = |text| outcome(text).is_ok_and(|it| it.set[0].is_replaced());
        match row.reading() {
            Reading::Number | Reading::Switch => {
                assert!(is_replaced("x") && is_replaced("1 s"), "{}", row.name);
            }
            Reading::NumberOrList => {
                assert!(is_replaced("x") && is_replaced("1 s"), "{}", row.name);
                assert!(outcome("mlx5_0=x").is_err(), "{}", row.name);
            }
            Reading::Word => assert!(is_replaced("x"), "{}", row.name),
            Reading::Text => {
                let is_strict = outcome("^^a b").is_err();
                // Everything is a path, and an address that says nothing here is NCCL's business.
                let takes_all = ["NCCL_IBVERBS_LIB", "NCCL_COMM_ID"].contains(&row.name);
                assert_eq!(is_strict, !takes_all, "{}", row.name);
            }
        }
        if row.name.starts_with("IBNET_") {
            assert_eq!(row.reading(), Reading::Text, "{} is strict", row.name);
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
    let config = config(&[
        ("NCCL_IB_TIMEOUT", " 14 "),
        ("NCCL_IB_RETRY_CNT", "7"),
        ("NCCL_IB_HCA", "mlx5_0"),
        ("NCCL_IB_SL", ""),
        ("NCCL_IB_TC", "-1"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    let lines: Vec<_> = config
        .set_variables()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
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
    for variable in Config::variables() {
        let mut text = value(variable.name);
        if variable.default == text {
            text = "1";
        }
        let allowed = |text| {
            config(&[(variable.name, text)])
                .ok()
                .filter(|config| !config.set_variables()[0].is_replaced())
        };
        let changed = allowed(text).unwrap_or_else(|| allowed("3").unwrap());
        let setting = &changed.set_variables()[0];
        assert!(setting.changes, "{setting}");
        assert_eq!(setting.default, variable.default);
        for row in VARIABLES.iter().filter(|row| row.field != variable.field) {
            let unchanged = (row.show)(&changed) == (row.show)(&Config::default());
            assert!(unchanged, "{} changes {}", variable.name, row.field);
        }
    }
}

#[test]
fn unknown_names_are_noted_in_order() {
    let mut config = Config::default();
    let names = ["IBNET_Z", "PATH", "NCCL_IB_TIMEOUT", "IBNET_MIN_PARTS"];
    config.note_unknown(names.into_iter().map(str::to_owned));
    let names: Vec<_> = config
        .unknown_variables()
        .iter()
        .map(|unknown| unknown.name.as_str())
        .collect();
    assert_eq!(names, ["IBNET_MIN_PARTS", "IBNET_Z"]);
    assert_eq!(
        config.unknown_variables()[0].nearest,
        Some("IBNET_MIN_PART")
    );
}
