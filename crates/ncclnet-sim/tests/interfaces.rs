//! The interface of the handshake, on hosts as people have them: each is a network namespace in which the
//! C driver runs. The same choice with given lists of interfaces, for machines without namespaces, is
//! tested in `ibnet`.
#![allow(clippy::unwrap_used)]

#[path = "../../ncclnet-ffi/tests/common/mod.rs"]
mod common;
#[path = "../../ibnet/tests/namespace/mod.rs"]
mod namespace;

use std::path::PathBuf;
use std::sync::LazyLock;

use namespace::Host;

static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| common::compile_driver("interfaces-driver"));

/// What the plugin says of two ends on `host` that move data between them, or why they do not. Nothing on
/// a machine without network namespaces.
fn run(host: &Host, variables: &[(&str, &str)]) -> Option<Result<String, String>> {
    let command = host.command(&DRIVER)?;
    let plugin = common::built("libncclnet_sim.so");
    let arguments = [
        "--dev",
        "sim0",
        "--peer-dev",
        "sim1",
        "--threads",
        "--verbose",
    ];
    Some(common::run_driver_by(
        command, &plugin, 12, &arguments, variables,
    ))
}

/// The two ends connect, and the log has each of `says` in a line that is shown at INFO, or above.
fn expect(host: &Host, variables: &[(&str, &str)], level: &str, says: &[&str]) {
    let Some(result) = run(host, variables) else {
        return;
    };
    let text = result.unwrap_or_else(|text| panic!("{variables:?}: {text}"));
    let lines = || text.lines().filter(|line| line.contains("handshakes over"));
    let line = lines().next();
    let line = line.unwrap_or_else(|| panic!("{variables:?}: {text}"));
    assert!(line.contains(level), "{variables:?}: {line}");
    for part in says {
        assert!(line.contains(part), "{variables:?}: no {part} in {line}");
    }
    // Once each time that the devices are opened, however many listeners there are.
    let openings = text.lines().filter(|line| line.contains("[0] sim0:1/"));
    assert_eq!(lines().count(), openings.count(), "{text}");
}

/// The interface's line begins so.
fn chooses(host: Host, variables: &[(&str, &str)], address: &str, reasons: &[&str]) {
    let begin = format!("handshakes over {address}");
    let says = [&[begin.as_str()], reasons].concat();
    expect(&host, variables, "INFO 0x11 ", &says);
}

fn named(list: &str) -> [(&str, &str); 1] {
    [("NCCL_SOCKET_IFNAME", list)]
}

#[test]
fn the_interface_is_the_one_that_other_hosts_reach() {
    // A management controller over USB.
    let controller = || {
        Host::new()
            .plugged("usb0", "169.254.3.1/16")
            .plugged("eno1", "10.1.2.3/24")
    };
    let reason = ["usb0 169.254.3.1 (link-local)", "lo 127.0.0.1 (virtual)"];
    chooses(controller(), &[], "eno1 10.1.2.3;", &reason);
    chooses(controller(), &named("^docker"), "eno1 10.1.2.3;", &reason);
    // Libvirt's bridge without a guest, and with one.
    let libvirt = Host::new()
        .unplugged("virbr0", "192.168.122.1/24")
        .plugged("eno1", "10.1.2.3/24");
    let reason = ["virbr0 192.168.122.1 (no carrier)"];
    chooses(libvirt, &[], "eno1 10.1.2.3;", &reason);
    let libvirt = Host::new()
        .plugged("virbr0", "192.168.122.1/24")
        .plugged("eno1", "10.1.2.3/24");
    let reason = ["virbr0 192.168.122.1 (virtual)"];
    chooses(libvirt, &[], "eno1 10.1.2.3;", &reason);
    // Networks of containers, and a tunnel.
    let containers = Host::new()
        .plugged("docker0", "172.17.0.1/16")
        .plugged("br-0a1b2c3d4e5f", "172.18.0.1/16")
        .plugged("cni0", "10.244.0.1/24")
        .plugged("tailscale0", "100.64.0.1/10")
        .plugged("eth0", "10.1.2.3/24");
    chooses(
        containers,
        &[],
        "eth0 10.1.2.3;",
        &["cni0 10.244.0.1 (virtual)"],
    );
}

#[test]
fn a_port_without_a_cable_is_passed_over() {
    let host = || {
        Host::new()
            .unplugged("eno1", "10.1.2.3/24")
            .plugged("eno2", "10.1.3.3/24")
    };
    let reason = ["eno1 10.1.2.3 (no carrier)"];
    chooses(host(), &[], "eno2 10.1.3.3;", &reason);
    chooses(host(), &named("eno"), "eno2 10.1.3.3;", &reason);
    let infiniband = || {
        Host::new()
            .unplugged("ib0", "10.9.0.5/16")
            .plugged("eth0", "10.1.2.3/24")
    };
    chooses(
        infiniband(),
        &[],
        "eth0 10.1.2.3;",
        &["ib0 10.9.0.5 (no carrier)"],
    );
    // If nothing else is asked for it serves processes on this host, which is said.
    let says = ["handshakes over eno1 10.1.2.3, which has no carrier"];
    expect(&host(), &named("=eno1"), "WARN", &says);
}

#[test]
fn an_exact_name_and_the_network_of_the_communicator_are_what_is_meant() {
    let names = Host::new()
        .plugged("eth10", "10.9.9.9/24")
        .plugged("eth1", "10.1.2.3/24");
    chooses(
        names,
        &named("eth1"),
        "eth1 10.1.2.3;",
        &["eth10 10.9.9.9 (only begins like"],
    );
    let networks = || {
        Host::new()
            .plugged("eth0", "10.1.2.3/24")
            .plugged("eth1", "10.9.9.9/24")
    };
    let reason = ["eth0 10.1.2.3 (another network)"];
    chooses(
        networks(),
        &[("NCCL_COMM_ID", "10.9.9.1:4567")],
        "eth1 10.9.9.9;",
        &reason,
    );
    chooses(
        networks(),
        &[("NCCL_COMM_ID", "10.1.2.1:4567")],
        "eth0 10.1.2.3;",
        &[],
    );
    // What is asked for counts for more, and so does InfiniBand.
    let both = [
        ("NCCL_COMM_ID", "10.9.9.1:4567"),
        ("NCCL_SOCKET_IFNAME", "eth"),
    ];
    chooses(networks(), &both, "eth0 10.1.2.3;", &[]);
    let infiniband = networks().plugged("ib0", "10.5.0.5/16");
    chooses(infiniband, &both[..1], "ib0 10.5.0.5;", &[]);
    // A text without an address chooses nothing.
    chooses(
        networks(),
        &[("NCCL_COMM_ID", "[eth1]:4567")],
        "eth0 10.1.2.3;",
        &[],
    );
}

#[test]
fn without_an_interface_each_has_its_reason() {
    let host = Host::new()
        .plugged("eth0", "10.1.2.3/24")
        .set_up("ip link add eth1 type veth peer name far1");
    let variables = [
        ("NCCL_SOCKET_IFNAME", "eth"),
        ("NCCL_SOCKET_FAMILY", "AF_INET6"),
    ];
    let Some(result) = run(&host, &variables) else {
        return;
    };
    let text = result.unwrap_err();
    for part in [
        "no network interface can carry the handshake",
        "lo 127.0.0.1 (left out by NCCL_SOCKET_IFNAME)",
        "eth0 10.1.2.3 (left out by the family of addresses",
        "eth1 (down)",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn a_mark_inside_the_list_is_an_error_that_shows_the_right_form() {
    let host = Host::new()
        .plugged("usb0", "169.254.3.1/16")
        .plugged("eno1", "10.1.2.3/24");
    let Some(result) = run(&host, &named("^usb0,^virbr0")) else {
        return;
    };
    let text = result.unwrap_err();
    for part in ["NCCL_SOCKET_IFNAME=^usb0,^virbr0", "^usb0,virbr0"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
