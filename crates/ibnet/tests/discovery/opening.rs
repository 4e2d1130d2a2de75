//! Devices that cannot be opened: one line each, and the others are used.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use ibnet::{Config, Error, Transport};
use ibnet_simverbs::{DeviceSpec, Fabric, Verb, When};
use nix::errno::Errno;

use crate::drivers::calls;
use crate::machine::Machine;

#[test]
fn one_that_refuses_does_not_hide_the_others() {
    // Pitfall 4: what was opened and is not used is closed again.
    let refuses = Errno::EACCES as i32;
    let machine = Machine::new(&format!(
        "pci 3b:00.0
         pci af:00.0
         file class/infiniband_verbs/uverbs0/ibdev mlx5_0
         file dev/uverbs0
         rdma mlx5_0 on 3b:00.0 refuses={refuses} : ib 4xNDR
         rdma mlx5_1 on af:00.0 : ib 4xNDR; ib 4xNDR down
         rdma mlx5_2 on af:00.0 : ib 4xNDR down"
    ));
    let fabric = machine.fabric();
    let transport = machine.open(&fabric, &[]).unwrap();
    assert_eq!(transport.devices().len(), 1);
    assert_eq!(fabric.live_objects().contexts, 1);
    let left_out = transport.left_out();
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    let line = &left_out[0];
    for part in ["mlx5_0: opening it", "EACCES", "/dev/uverbs0", "mode 644"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(
        left_out[1].contains("mlx5_1:2: its state is"),
        "{left_out:?}"
    );
    drop(transport);
    assert!(fabric.live_objects().is_empty());
}

#[test]
fn a_node_that_cannot_be_opened_is_named_with_its_own_errno() {
    // libibverbs would wait 5 s for each of them, and then say ENOENT.
    let machine = Machine::new(
        "file class/infiniband_verbs/uverbs0/ibdev mlx5_0
         file class/infiniband_verbs/uverbs1/ibdev mlx5_1
         file class/infiniband_verbs/uverbs2/ibdev mlx5_2
         file class/infiniband_verbs/uverbs3/ibdev mlx5_3
         file dev/uverbs0
         file dev/uverbs3
         rdma mlx5_0 on virtual guid=c1 : ib 4xNDR
         rdma mlx5_1 on virtual guid=c2 : ib 4xNDR
         rdma mlx5_2 on virtual guid=c3 : ib 4xNDR
         rdma mlx5_3 on virtual guid=c4 : ib 4xNDR",
    );
    // A node of another user, mode 600; and one whose device is gone, which a socket plays.
    let _gone = UnixListener::bind(machine.path("dev/uverbs1")).unwrap();
    let of_another = if is_root() { 0o600 } else { 0 };
    for (node, mode) in [
        ("uverbs0", of_another),
        ("uverbs1", 0o666),
        ("uverbs3", 0o666),
    ] {
        let node = machine.path("dev").join(node);
        std::fs::set_permissions(node, Permissions::from_mode(mode)).unwrap();
    }
    let fabric = machine.fabric();
    let transport = as_nobody(|| machine.open(&fabric, &[]).unwrap());
    let names: Vec<_> = transport
        .devices()
        .into_iter()
        .map(|info| info.name)
        .collect();
    assert_eq!(names, ["mlx5_3"]);
    assert_eq!(
        calls("open_device"),
        1,
        "the others are not asked of libibverbs"
    );
    for (line, parts) in transport.left_out().iter().zip([
        [
            "mlx5_0: opening /",
            "/dev/uverbs0",
            "EACCES",
            "no permission",
        ],
        ["mlx5_1: opening /", "/dev/uverbs1", "ENXIO", "gone"],
        ["mlx5_2: opening /", "/dev/uverbs2", "ENOENT", "is missing"],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert_eq!(transport.left_out().len(), 3);
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Does it without a right to files of others, for this thread.
fn as_nobody<T>(act: impl FnOnce() -> T) -> T {
    if !is_root() {
        return act();
    }
    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
    let done = act();
    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(0));
    done
}

#[test]
fn what_is_not_wanted_is_neither_opened_nor_warned_of() {
    let refuses = Errno::EACCES as i32;
    let machine = Machine::new(&format!(
        "rdma mlx5_0 on virtual guid=c1 : ib 4xNDR
         rdma mlx5_1 on virtual guid=c2 refuses={refuses} : ib 4xNDR"
    ));
    let fabric = machine.fabric();
    let transport = machine
        .open(&fabric, &[("NCCL_IB_HCA", "^mlx5_1")])
        .unwrap();
    assert_eq!(transport.left_out(), ["mlx5_1: not asked for by `hca`"]);
}

#[test]
fn no_device_is_no_success() {
    // Pitfalls 3 and 19: an error each time, with every reason, and nothing stays open.
    let refuses = Errno::ENODEV as i32;
    let machine = Machine::new(&format!(
        "rdma a0 on virtual refuses={refuses} : ib 4xNDR
         rdma b0 on virtual transport=1 : eth 4xEDR
         rdma c0 on virtual : eth 4xEDR down"
    ));
    let fabric = machine.fabric();
    for _ in 0..2 {
        let error = machine.open(&fabric, &[]).err().unwrap();
        assert!(matches!(error, Error::NoDevices { .. }), "{error}");
        let text = error.to_string();
        for part in [
            "a0: opening it failed",
            "ENODEV",
            "b0: it speaks",
            "c0:1: its state",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains('\n'), "{text}");
        assert!(fabric.live_objects().is_empty());
    }
    // The same machine, mended, is not remembered as broken.
    fabric.hca("c0").unwrap().port(1).unwrap().up();
    assert_eq!(machine.open(&fabric, &[]).unwrap().devices().len(), 1);
}

#[test]
fn a_machine_without_any_says_what_could_be_missing() {
    let fabric = Fabric::builder().build().unwrap();
    let error = Transport::with_library(fabric.library(), Config::default());
    let text = error.err().unwrap().to_string();
    assert!(
        text.contains("/dev/infiniband") && text.contains("open files"),
        "{text}"
    );
}

#[test]
fn a_program_that_has_no_other_network_is_not_switched_off() {
    let machine = Machine::new("rdma a0 on virtual : ib 4xNDR");
    let variables = [("NCCL_IB_DISABLE", "1")];
    assert!(machine.config(&variables).disabled);
    let transport = machine.open(&machine.fabric(), &variables).unwrap();
    assert_eq!(transport.devices().len(), 1);
}

#[test]
fn a_field_out_of_range_is_an_error_before_anything_is_opened() {
    let machine = Machine::new("rdma a0 on virtual : ib 4xNDR");
    let fabric = machine.fabric();
    let config = machine.config(&[]).retry_count(99);
    let error = Transport::with_library(machine.library(&fabric), config);
    let error = error.err().unwrap();
    assert!(matches!(error, Error::Config(_)));
    assert_eq!(
        error.to_string(),
        "retry_count=99: expected a number from 0 to 7"
    );
    assert!(fabric.live_objects().is_empty());
}

#[test]
fn a_device_that_fails_half_way_is_left_out_and_closed() {
    // Pitfalls 1 and 4: whichever call fails, nothing of it stays, and the next attempt finds
    // everything as it was.
    let machine = Machine::new(
        "rdma a0 on virtual : ib 4xNDR
         rdma b0 on virtual : ib 4xNDR",
    );
    for (verb, doing) in [
        (Verb::OpenDevice, "opening it"),
        (Verb::QueryDevice, "asking for its attributes"),
        (Verb::QueryPort, "b0:1: "),
        (Verb::AllocatePd, "allocating a protection domain"),
    ] {
        let fabric = machine.fabric();
        let faults = fabric.faults();
        let fault = faults.fail_call(verb, "b0", When::Nth(1), Errno::ENOMEM as i32);
        let transport = machine.open(&fabric, &[]).unwrap();
        assert_eq!(fault.struck(), 1, "{verb:?}");
        assert_eq!(transport.devices().len(), 1);
        let [line] = transport.left_out() else {
            panic!("{:?}", transport.left_out())
        };
        assert!(line.starts_with("b0") && line.contains(doing), "{line}");
        assert_eq!(fabric.live_objects().contexts, 1, "{verb:?}");
        drop(transport);
        assert!(fabric.live_objects().is_empty(), "{verb:?}");
        assert_eq!(machine.open(&fabric, &[]).unwrap().devices().len(), 2);
    }
}

#[test]
fn two_transports_at_once_have_all_devices_each() {
    // Pitfall 2: no transport sees a list that another is still filling.
    let fabric = (0..20)
        .fold(Fabric::builder(), |builder, index| {
            builder.device(DeviceSpec::infiniband(format!("a{index}")))
        })
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut config = Config::default();
                config.hca = "a".parse().unwrap();
                let transport = Transport::with_library(fabric.library(), config).unwrap();
                assert_eq!(transport.devices().len(), 20);
            });
        }
    });
    assert!(fabric.live_objects().is_empty());
}
