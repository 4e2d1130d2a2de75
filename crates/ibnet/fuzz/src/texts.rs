//! What people and their launchers write: handles and settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::config::Config;
use crate::config::{HcaFilter, Placement};
use crate::connect::interface::{Address, Interface, State, Wanted, choose};
use crate::wire::handle::Handle;

/// Any bytes as a handle.
pub fn handle(data: &[u8]) {
    let Ok(handle) = Handle::from_bytes(data) else {
        return;
    };
    // Every handle has one form, and leads to an address.
    assert_eq!(handle.to_bytes()[..], data[..Handle::SIZE]);
    let address = handle.address();
    assert!(address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast());
}

/// Lines of the form `NAME=value` as the environment.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let variables: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let value_of = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    match Config::from_variables(&value_of) {
        Ok(config) => {
            config.check().expect("the environment is held to the same");
            within_bounds(&config);
        }
        Err(error) => {
            let given = value_of(error.setting).expect("it names a variable that was set");
            assert!(!error.expected.is_empty());
            assert_eq!(given.trim(), error.value);
        }
    }
    if let Some(text) = variables.get("NCCL_IB_HCA") {
        filter(text);
    }
}

/// Every number that is accepted can be used as it is.
fn within_bounds(config: &Config) {
    assert!(
        config.ack_exponent() <= 31
            && config.retry_count <= 7
            && config.service_level.is_none_or(|level| level <= 15)
    );
    assert!((1..=128).contains(&config.queue_pairs));
    assert!(config.least_part() >= 128);
    assert!(
        config
            .connect_timeout
            .is_none_or(|limit| limit >= Duration::from_secs(1))
    );
    if let Some(ports) = &config.ports {
        assert!(*ports.start() > 0 && ports.start() <= ports.end());
    }
    let interfaces = ["lo", "eth0", "docker0"].map(|name| Interface {
        name: name.to_owned(),
        state: State::Running,
        addresses: vec![Address {
            address: SocketAddr::from(([10, 0, 0, 1], 0)),
            prefix: Some(24),
        }],
    });
    let wanted = Wanted {
        filter: &config.interfaces,
        family: config.socket_family,
        near: None,
    };
    if let Ok(choice) = choose(&interfaces, &wanted) {
        let name = choice.best.interface;
        assert!(interfaces.iter().any(|interface| interface.name == name));
    }
}

/// A filter of devices and its opposite.
fn filter(text: &str) {
    let Ok(filter) = text.parse::<HcaFilter>() else {
        return;
    };
    let text = text.trim();
    let (is_exclusion, list) = text
        .strip_prefix('^')
        .map_or((false, text), |list| (true, list));
    let opposite = if is_exclusion {
        list.to_owned()
    } else {
        format!("^{list}")
    };
    // What means something else without the sign before it has no opposite to compare with.
    if list.trim() != list || list.starts_with('^') {
        return;
    }
    let names_any = list
        .strip_prefix('=')
        .unwrap_or(list)
        .split(',')
        .any(|item| !item.trim().is_empty());
    for (name, port) in [("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_10", 1), ("rxe0", 255)] {
        if !names_any {
            assert!(filter.admits(name, port), "^ alone admits all");
        } else if let Ok(opposite) = opposite.parse::<HcaFilter>() {
            assert_ne!(filter.admits(name, port), opposite.admits(name, port));
        }
        if is_exclusion {
            assert_eq!(filter.placement(name, port), Placement::default());
        }
    }
}
