//! Where connectors call from, and what they learn of a listener's host. Each test runs itself again on
//! a host of its own.
#![allow(clippy::unwrap_used)]

#[path = "../namespace/mod.rs"]
mod namespace;

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ibnet::{Config, ConnectOptions, Handle, RecvConnection, SendConnection, Transport, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric};

use namespace::Host;

const INSIDE: &str = "IBNET_TEST_ON_HOST";

/// Runs the test `name` on `host`: there, it goes on to `then`.
fn on_host(host: &Host, name: &str, then: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return then();
    }
    let Some(mut command) = host.command(&env::current_exe().unwrap()) else {
        return;
    };
    let output = command
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "it did not run: {text}");
}

/// Two interfaces in different networks.
fn two_networks() -> Host {
    Host::new()
        .plugged("eth0", "10.1.2.3/24")
        .plugged("eth1", "10.9.9.9/24")
}

fn fabric() -> Fabric {
    let builder = Fabric::builder().device(DeviceSpec::roce("sim0"));
    builder.build().unwrap()
}

fn open(fabric: &Fabric, variables: &[(&str, &str)]) -> Transport {
    let config = Config::from_variables(&|name| {
        let set = variables.iter().find(|(key, _)| *key == name);
        set.map(|(_, value)| (*value).to_owned())
    });
    Transport::with_library(fabric.library(), config.unwrap()).unwrap()
}

/// A connection to a listener with these settings, from an end with those.
fn connect(
    fabric: &Fabric,
    listening: &[(&str, &str)],
    connecting: &[(&str, &str)],
    change: impl FnOnce(&mut [u8; Handle::SIZE]),
) -> (Handle, SendConnection, RecvConnection) {
    let mut listener = open(fabric, listening).listen(0).unwrap();
    let handle = listener.handle();
    let mut bytes = handle.to_bytes();
    change(&mut bytes);
    let given = Handle::from_bytes(&bytes).unwrap();
    let connector = open(fabric, connecting);
    let mut connecting = connector
        .connect(0, &given, ConnectOptions::default())
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let (mut sending, mut receiving) = (None, None);
    while sending.is_none() || receiving.is_none() {
        assert!(Instant::now() < deadline, "the handshake hangs");
        if sending.is_none() {
            sending = connecting.try_now().unwrap();
        }
        if receiving.is_none() {
            receiving = listener.accept().try_now().unwrap();
        }
    }
    (handle, sending.unwrap(), receiving.unwrap())
}

/// Where the client of `listener` is connected from, as the kernel says.
fn caller_of(listener: SocketAddr) -> IpAddr {
    let SocketAddr::V4(listener) = listener else {
        panic!("{listener}");
    };
    // As `proc_net_tcp(5)` has it: the number in memory, in the machine's order.
    let shown = |ip: Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(ip.octets()));
    let wanted = format!("{}:{:04X}", shown(*listener.ip()), listener.port());
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace());
    let local = rows.find_map(|mut row| {
        let local = row.nth(1)?;
        (row.next()? == wanted && row.next()? == "01").then_some(local)
    });
    let local = local.unwrap_or_else(|| panic!("no {wanted} in {table}"));
    let ip = u32::from_str_radix(local.split_once(':').unwrap().0, 16).unwrap();
    IpAddr::from(ip.to_ne_bytes())
}

/// With these values of `NCCL_SOCKET_IFNAME` the listener is at `listens`, and called from `calls`.
fn check(listening: &str, connecting: &str, listens: &str, calls: &str) {
    let fabric = fabric();
    let variable = |value| [("NCCL_SOCKET_IFNAME", value)];
    let (handle, _sending, _receiving) =
        connect(&fabric, &variable(listening), &variable(connecting), |_| {});
    let address = handle.address();
    assert_eq!(address.ip().to_string(), listens);
    let caller = caller_of(address);
    assert_eq!(caller.to_string(), calls, "{listening:?} {connecting:?}");
}

#[test]
fn a_connector_calls_from_the_interface_that_is_asked_for() {
    let name = "a_connector_calls_from_the_interface_that_is_asked_for";
    on_host(&two_networks(), name, || {
        check("eth0", "=eth1", "10.1.2.3", "10.9.9.9");
        check("eth1", "eth0,nothing", "10.9.9.9", "10.1.2.3");
        // Of several, from that in the listener's network.
        check("eth1", "eth", "10.9.9.9", "10.9.9.9");
        // Nothing is asked for, or nothing that there is.
        check("=eth1", "", "10.9.9.9", "10.9.9.9");
        check("=eth1", "^eth1", "10.9.9.9", "10.9.9.9");
        check("=eth1", "ib", "10.9.9.9", "10.9.9.9");
    });
}

#[test]
fn a_listener_of_an_open_transport_leaves_an_interface_that_has_gone_down() {
    let name = "a_listener_of_an_open_transport_leaves_an_interface_that_has_gone_down";
    on_host(&two_networks(), name, || {
        let fabric = fabric();
        let transport = open(&fabric, &[]);
        let address = || transport.listen(0).unwrap().handle().address().ip();
        assert_eq!(address(), Ipv4Addr::new(10, 1, 2, 3));
        let down = ["link", "set", "eth0", "down"];
        assert!(Command::new("ip").args(down).status().unwrap().success());
        // Interfaces are not listed for each listener.
        let deadline = Instant::now() + Duration::from_secs(30);
        while address() != Ipv4Addr::new(10, 9, 9, 9) {
            assert!(Instant::now() < deadline, "the list is never renewed");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn an_interface_that_leads_nowhere_does_not_keep_a_connector_from_calling() {
    let name = "an_interface_that_leads_nowhere_does_not_keep_a_connector_from_calling";
    let host = two_networks()
        // Whatever comes from there is refused by the kernel, even if it is for this host.
        .set_up("ip rule add pref 10 lookup local")
        .set_up("ip rule add pref 1 from 10.9.9.9 prohibit")
        .set_up("ip rule del pref 0")
        .plugged("eth2", "2001:db8::5/64");
    on_host(&host, name, || {
        check("=eth0", "=eth1", "10.1.2.3", "10.1.2.3");
        // An interface without an address of the listener's family.
        check("=eth0", "=eth2", "10.1.2.3", "10.1.2.3");
    });
}

#[test]
fn the_scope_of_a_link_local_address_is_that_of_the_connectors_own_interface() {
    let name = "the_scope_of_a_link_local_address_is_that_of_the_connectors_own_interface";
    let host = Host::new().plugged("eth0", "fe80::1:2:3/64");
    on_host(&host, name, || {
        let fabric = fabric();
        let variables = [
            ("NCCL_SOCKET_IFNAME", "eth0"),
            ("NCCL_SOCKET_FAMILY", "AF_INET6"),
        ];
        // As from a listener whose interface has another number.
        let (handle, ..) = connect(&fabric, &variables, &variables, |bytes| {
            bytes[24..28].copy_from_slice(&777_u32.to_be_bytes());
        });
        assert!(handle.address().is_ipv6());
    });
}

#[test]
fn who_cannot_reach_a_listener_is_told_of_the_other_addresses_of_its_host() {
    let name = "who_cannot_reach_a_listener_is_told_of_the_other_addresses_of_its_host";
    let host = two_networks()
        .plugged("usb0", "169.254.3.1/16")
        .plugged("br-0a1b2c3d4e5f", "172.18.0.1/16")
        .unplugged("eth2", "10.7.7.7/24")
        .plugged("eth3", "10.1.4.3/24")
        .set_up("ip neigh add 10.9.9.77 lladdr 02:00:00:00:00:01 dev eth1");
    on_host(&host, name, || {
        let fabric = fabric();
        let handle = open(&fabric, &[("NCCL_SOCKET_IFNAME", "eth1")])
            .listen(0)
            .unwrap()
            .handle();
        let others: Vec<String> = handle.other_addresses().map(|ip| ip.to_string()).collect();
        assert_eq!(others, ["10.1.2.3", "10.1.4.3", "172.18.0.1"]);

        // The listener is gone.
        let impatient = [
            ("NCCL_SOCKET_RETRY_CNT", "0"),
            ("NCCL_SOCKET_IFNAME", "eth0"),
        ];
        let address = handle.address();
        let from = format!("{address} from eth0 10.1.2.3 (`interfaces`)");
        says(&fabric, &impatient, &handle, &["refused", &from]);

        // Nothing answers: the neighbour is not there.
        let mut bytes = handle.to_bytes();
        bytes[8..12].copy_from_slice(&[10, 9, 9, 77]);
        let silent = Handle::from_bytes(&bytes).unwrap();
        let impatient = [
            ("IBNET_CONNECT_TIMEOUT", "1"),
            ("NCCL_SOCKET_IFNAME", "eth"),
        ];
        let from = format!("{} from eth1 10.9.9.9", silent.address());
        says(&fabric, &impatient, &silent, &["nothing for 1 s", &from]);
    });
}

/// Connecting with these settings fails, and the error has each of `parts`.
fn says(fabric: &Fabric, variables: &[(&str, &str)], handle: &Handle, parts: &[&str]) {
    let connector = open(fabric, variables);
    let attempt = connector.connect(0, handle, ConnectOptions::default());
    let error = attempt.and_then(|connecting| connecting.wait().map(drop));
    let text = error.unwrap_err().to_string();
    let others = "(its host also has 10.1.2.3, 10.1.4.3, 172.18.0.1;";
    for part in [&[others], parts].concat() {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
