//! Hosts as lists of their interfaces. As real ones, with network namespaces, they are in the tests of
//! `ncclnet-sim`.
#![allow(clippy::unwrap_used)]
use super::*;

/// Interfaces in the system's order, from `NAME [ADDRESS/PREFIX …] [down|no-carrier]; …`.
fn host(text: &str) -> Vec<Interface> {
    text.split(';').map(interface).collect()
}

fn interface(text: &str) -> Interface {
    let mut words = text.split_whitespace();
    let mut interface = Interface {
        name: words.next().unwrap().to_owned(),
        state: State::Running,
        addresses: Vec::new(),
    };
    for word in words {
        match word {
            "down" => interface.state = State::Down,
            "no-carrier" => interface.state = State::NoCarrier,
            address => {
                let (ip, prefix) = address.split_once('/').unwrap();
                interface.addresses.push(Address {
                    address: SocketAddr::new(ip.parse().unwrap(), 0),
                    prefix: Some(prefix.parse().unwrap()),
                });
            }
        }
    }
    interface
}

fn choice(
    interfaces: &[Interface],
    filter: &str,
    family: Option<Family>,
    near: Option<&str>,
) -> Result<Choice, Error> {
    let filter = filter.parse::<InterfaceFilter>().unwrap();
    let near = near.map(|ip| Near {
        ip: ip.parse().unwrap(),
        interface: None,
    });
    let wanted = Wanted {
        filter: &filter,
        family,
        near: near.as_ref(),
    };
    choose(interfaces, &wanted)
}

/// Each row: the filter, a network that is near, the host, and what is chosen, with the next best.
fn check(rows: &[(&str, Option<&str>, &str, &str)]) {
    for (filter, near, text, expected) in rows {
        let choice = choice(&host(text), filter, None, *near).unwrap();
        let order = std::iter::once(&choice.best).chain(&choice.others);
        let order: Vec<&str> = order.map(|local| local.interface.as_str()).collect();
        assert!(
            order.join(" ").starts_with(expected),
            "{filter:?} {near:?} {text}: {order:?} in place of {expected}"
        );
    }
}

const LO: &str = "lo 127.0.0.1/8 ::1/128";

#[test]
fn what_has_no_carrier_is_passed_over_if_anything_has() {
    check(&[
        (
            "",
            None,
            "eno1 10.1.2.3/24 no-carrier; eno2 10.1.3.3/24",
            "eno2 eno1",
        ),
        (
            "eno",
            None,
            "eno1 10.1.2.3/24 no-carrier; eno2 10.1.3.3/24",
            "eno2 eno1",
        ),
        (
            "eno1,eno2",
            None,
            "eno1 10.1.2.3/24 no-carrier; eno2 10.1.3.3/24",
            "eno2 eno1",
        ),
        (
            "^lo",
            None,
            "eno1 10.1.2.3/24 no-carrier; eno2 10.1.3.3/24",
            "eno2 eno1",
        ),
        (
            "",
            None,
            "ib0 10.9.0.5/16 no-carrier; eth0 10.1.2.3/24",
            "eth0 ib0",
        ),
        (
            "",
            Some("10.9.0.1"),
            "ib0 10.9.0.5/16 no-carrier; eth0 10.1.2.3/24",
            "eth0 ib0",
        ),
        (
            "eth1",
            None,
            "eth1 10.1.2.3/24 no-carrier; eth10 10.9.9.9/24",
            "eth10 eth1",
        ),
        // An address without a carrier still reaches this host, so it is better than none.
        (
            "=eth0",
            None,
            "lo 127.0.0.1/8; eth0 10.1.2.3/24 no-carrier",
            "eth0",
        ),
        (
            "",
            None,
            "lo 127.0.0.1/8; eth0 10.1.2.3/24 no-carrier",
            "lo eth0",
        ),
    ]);
    let only = host("lo 127.0.0.1/8; eth0 10.1.2.3/24 no-carrier");
    assert!(choice(&only, "=eth0", None, None).unwrap().lacks_carrier);
    assert!(!choice(&only, "", None, None).unwrap().lacks_carrier);
}

#[test]
fn link_local_addresses_and_virtual_interfaces_come_late() {
    check(&[
        (
            "",
            None,
            "usb0 169.254.3.1/16; eno1 10.1.2.3/24",
            "eno1 usb0",
        ),
        (
            "^docker",
            None,
            "usb0 169.254.3.1/16; eno1 10.1.2.3/24",
            "eno1 usb0",
        ),
        (
            "usb,eno",
            None,
            "usb0 169.254.3.1/16; eno1 10.1.2.3/24",
            "eno1 usb0",
        ),
        ("", None, "eth0 fe80::1/64 2001:db8::5/64", "eth0"),
        (
            "",
            None,
            "usb0 169.254.3.1/16; eth0 fe80::1/64; docker0 172.17.0.1/16",
            "usb0 eth0 docker0",
        ),
        // The host's address is on a bridge, and the port below it has none but what it gave itself.
        (
            "",
            None,
            "eno1 fe80::1/64; br-lan 10.1.2.3/24; docker0 172.17.0.1/16",
            "br-lan eno1 docker0",
        ),
        (
            "",
            None,
            "vxlan.calico 192.168.1.1/32; eno1 10.1.2.3/24",
            "eno1 vxlan.calico",
        ),
        // Interfaces of InfiniBand that nobody configured.
        ("", None, "ib0 fe80::1/64; eth0 10.1.2.3/24", "eth0 ib0"),
        (
            "",
            None,
            "lo 127.0.0.1/8; virbr0 192.168.122.1/24; docker0 172.17.0.1/16; br-0a1b2c3d4e5f 172.18.0.1/16; eth0 10.1.2.3/24",
            "eth0 br-0a1b2c3d4e5f docker0 lo virbr0",
        ),
        (
            "^eth0",
            None,
            "lo 127.0.0.1/8; docker0 172.17.0.1/16; eth1 10.1.3.3/24",
            "eth1 docker0 lo",
        ),
        ("lo", None, "lo 127.0.0.1/8; eth0 10.1.2.3/24", "lo"),
        (
            "docker",
            None,
            "docker0 172.17.0.1/16; eth0 10.1.2.3/24",
            "docker0",
        ),
        // A bridge that has the host's own address; a name that begins like the loop-back interface's.
        ("", None, "lo 127.0.0.1/8; br-ex 10.1.2.3/24", "br-ex lo"),
        ("", None, "lom1 10.1.2.3/24; eth0 10.1.3.3/24", "lom1 eth0"),
    ]);
    for name in [
        "veth1a2b",
        "cni0",
        "flannel.1",
        "cali12ab",
        "tun0",
        "tailscale0",
        "br-lan",
    ] {
        let text = format!("{LO}; {name} 10.244.0.1/24; eth0 10.1.2.3/24");
        check(&[("", None, &text, &format!("eth0 {name} lo"))]);
    }
}

#[test]
fn an_exact_name_wins_over_a_longer_one() {
    check(&[
        (
            "eth1",
            None,
            "eth10 10.9.9.9/24; eth1 10.1.2.3/24",
            "eth1 eth10",
        ),
        (
            "eth1",
            None,
            "eth1.100 10.9.9.9/24; eth1 10.1.2.3/24",
            "eth1 eth1.100",
        ),
        (
            "eth1",
            None,
            "eth10 10.9.9.9/24; eth12 10.1.2.3/24",
            "eth10 eth12",
        ),
        ("=eth1", None, "eth10 10.9.9.9/24; eth1 10.1.2.3/24", "eth1"),
        (
            "^eth1",
            None,
            "eth10 10.9.9.9/24; eth1 10.1.2.3/24; eno1 10.3.3.3/24",
            "eno1",
        ),
    ]);
}

#[test]
fn without_a_list_infiniband_comes_first_and_then_the_network_of_the_communicator() {
    check(&[
        ("", None, "eth0 10.1.2.3/24; ib0 10.9.0.5/16", "ib0 eth0"),
        (
            "",
            Some("10.1.2.1"),
            "eth1 10.1.3.3/24; eth0 10.1.2.3/24; ib0 10.9.0.5/16",
            "ib0 eth0 eth1",
        ),
        (
            "",
            Some("10.1.2.1"),
            "eth1 10.1.3.3/24; eth0 10.1.2.3/24",
            "eth0 eth1",
        ),
        (
            "",
            Some("10.1.9.1"),
            "eth1 10.1.3.3/24; eth0 10.1.2.3/16",
            "eth0 eth1",
        ),
        (
            "",
            Some("172.17.0.9"),
            "eth0 10.1.2.3/24; docker0 172.17.0.1/16",
            "docker0 eth0",
        ),
        (
            "",
            Some("127.0.0.1"),
            "lo 127.0.0.1/8; eth0 10.1.2.3/24",
            "lo eth0",
        ),
        (
            "",
            Some("192.168.7.7"),
            "lo 127.0.0.1/8; eth0 10.1.2.3/24",
            "eth0 lo",
        ),
        (
            "",
            Some("2001:db8::7"),
            "eth0 10.1.2.3/24; eth1 2001:db8::5/64",
            "eth1 eth0",
        ),
        (
            "",
            Some("2001:db8:0:1::7"),
            "eth0 10.1.2.3/24; eth1 2001:db8::5/64",
            "eth0 eth1",
        ),
        // Not where something else is asked for.
        (
            "^docker",
            None,
            "eth0 10.1.2.3/24; ib0 10.9.0.5/16",
            "eth0 ib0",
        ),
    ]);
}

#[test]
fn the_family_and_the_loop_back_address_of_ipv6() {
    let all = host(
        "lo 127.0.0.1/8 ::1/128; eth0 fe80::1/64 10.0.0.5/24; eth1 192.168.0.5/24 2001:db8::5/64",
    );
    for (filter, family, expected) in [
        ("", None, "10.0.0.5"),
        ("", Some(Family::V4), "10.0.0.5"),
        ("", Some(Family::V6), "2001:db8::5"),
        ("eth1", None, "192.168.0.5"),
        ("=eth0", Some(Family::V6), "fe80::1"),
    ] {
        let chosen = choice(&all, filter, family, None).unwrap().best;
        assert_eq!(
            chosen.address.ip().to_string(),
            expected,
            "{filter:?} {family:?}"
        );
    }
    assert!(choice(&all, "lo", Some(Family::V6), None).is_err());
}

#[test]
fn each_address_that_is_not_chosen_has_its_reason() {
    let all = host(
        "lo 127.0.0.1/8 ::1/128; eth5 down; eth6; eth7 10.7.7.7/24 down; usb0 169.254.3.1/16; \
         eno1 10.1.2.3/24; eno2 10.1.3.3/24 no-carrier; eno3 10.1.4.3/24",
    );
    let passed_over = choice(&all, "", None, None).unwrap().passed_over;
    assert_eq!(
        passed_over,
        "eno3 10.1.4.3 (not the first), usb0 169.254.3.1 (link-local), lo 127.0.0.1 (virtual), \
         eno2 10.1.3.3 (no carrier), lo ::1 (IPv6's loop-back), eth5 (down), eth6 (without an address), \
         eth7 10.7.7.7 (down)"
    );
    let near = choice(&all, "", None, Some("10.1.4.9")).unwrap();
    assert_eq!(near.best.interface, "eno3");
    assert!(
        near.passed_over
            .starts_with("eno1 10.1.2.3 (another network)"),
        "{near:?}"
    );

    let text = choice(&all, "eth", Some(Family::V4), None)
        .unwrap_err()
        .to_string();
    for part in [
        "no network interface",
        "lo 127.0.0.1 (left out by `interfaces`)",
        "eth5 (down)",
        "eth6 (without an address)",
        "eth7 10.7.7.7 (down)",
        "eno2 10.1.3.3 (left out by `interfaces`)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = choice(&all, "eno1", Some(Family::V6), None)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("eno1 10.1.2.3 (left out by the family"),
        "{text}"
    );
}
