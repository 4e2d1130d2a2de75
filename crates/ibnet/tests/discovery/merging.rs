//! Virtual devices: checked before anything changes; what they can do is what all members can.

use ibnet::{Error, ErrorKind, Transport};

use crate::machine::Machine;

const MACHINE: &str = "
    pci 3b:00.0
    pci 3b:00.1
    pci af:00.0
    file module/nvidia_peermem/version 550
    rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xNDR
    rdma mlx5_1 on 3b:00.1 guid=c1 : ib 4xHDR
    rdma mlx5_2 on af:00.0 guid=c2 no-dmabuf : ib raw:0:0
    rdma mlx4_0 on virtual guid=c3 : ib 4xFDR; ib 4xFDR
    rdma rxe0 on virtual guid=c4 : eth 1xEDR";

/// Devices 0 to 2 are mlx5's, 3 and 4 the ports of mlx4_0, 5 is rxe0.
fn open(settings: &[(&str, &str)]) -> Transport {
    let machine = Machine::new(MACHINE);
    let fabric = machine.fabric();
    machine.open(&fabric, settings).unwrap()
}

#[test]
fn several_become_one() {
    let transport = open(&[]);
    let index = transport.merge(&[0, 1]).unwrap();
    assert_eq!(index, 6);
    let devices = transport.devices();
    let merged = &devices[index];
    assert_eq!(merged.name, "mlx5_0+mlx5_1");
    assert_eq!(merged.members, [0, 1]);
    assert!(merged.is_virtual() && !devices[0].is_virtual());
    assert_eq!(merged.speed_mbps, 600_000);
    assert_eq!((merged.port, merged.guid), (1, 0xc1));
    assert_eq!(merged.pci_path, devices[0].pci_path);
    assert!(merged.dmabuf && merged.peer_memory && merged.relaxed_ordering && !merged.force_flush);
    // Ports of one device can only be told apart by their numbers.
    let index = transport.merge(&[4, 3]).unwrap();
    let info = transport.devices().remove(index);
    assert_eq!(info.name, "mlx4_0:2+mlx4_0:1");
    assert_eq!((info.port, info.members), (2, vec![4, 3]));
}

#[test]
fn one_member_that_cannot_is_enough() {
    // Pitfall 14: not the first one's word for all.
    let transport = open(&[]);
    for members in [[0, 2], [2, 0]] {
        let index = transport.merge(&members).unwrap();
        let info = transport.devices().remove(index);
        assert!(!info.dmabuf && info.peer_memory);
        // What is not known counts as the slowest that there is.
        assert_eq!(info.speed_mbps, 402_500);
    }
}

#[test]
fn rails_and_planes_hold_if_all_agree() {
    let transport = open(&[("NCCL_IB_HCA", "mlx5_0:1:3:1,mlx5_1:1:3:2,mlx5_2:1:4:2")]);
    let placement = |members: &[usize]| {
        let index = transport.merge(members).unwrap();
        let info = transport.devices().remove(index);
        (info.rail, info.plane)
    };
    assert_eq!(placement(&[0, 1]), (Some(3), None));
    assert_eq!(placement(&[1, 2]), (None, Some(2)));
    assert_eq!(placement(&[0, 1, 2]), (None, None));
}

#[test]
fn the_same_set_is_the_same_device() {
    let transport = open(&[]);
    // One device is itself, and so is one that is named twice.
    assert_eq!(transport.merge(&[1]).unwrap(), 1);
    assert_eq!(transport.merge(&[1, 1, 1]).unwrap(), 1);
    assert_eq!(transport.devices().len(), 6);
    let first = transport.merge(&[0, 1]).unwrap();
    for again in [&[0, 1][..], &[1, 0], &[0, 1, 0]] {
        assert_eq!(transport.merge(again).unwrap(), first);
    }
    assert_ne!(transport.merge(&[0, 1, 2]).unwrap(), first);
    // Clones share them, and what was there keeps its place.
    let clone = transport.clone();
    assert_eq!(clone.devices()[first].name, "mlx5_0+mlx5_1");
    assert_eq!(clone.devices()[0].name, "mlx5_0");
}

#[test]
fn what_cannot_be_merged_changes_nothing() {
    // Pitfall 16: everything is checked before anything changes.
    let transport = open(&[]);
    let merged = transport.merge(&[0, 1]).unwrap();
    for (members, says) in [
        (&[][..], "at least one"),
        (&[99], "no device 99"),
        (&[0, 99], "no device 99"),
        (&[0, merged], "virtual itself"),
        (&[merged, merged], "virtual itself"),
        (&[0, 5], "InfiniBand and [5] rxe0 is Ethernet"),
    ] {
        let error = transport.merge(members).unwrap_err();
        assert!(matches!(error, Error::Unmergeable { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(transport.devices().len(), 7);
    }
}

#[test]
fn at_most_eight() {
    let description: String = (0..9)
        .map(|index| format!("rdma a{index} on virtual guid=1{index} : ib 4xNDR\n"))
        .collect();
    let machine = Machine::new(&description);
    let fabric = machine.fabric();
    let transport = machine.open(&fabric, &[]).unwrap();
    let all: Vec<usize> = (0..9).collect();
    let error = transport.merge(&all).unwrap_err();
    assert!(error.to_string().contains("at most 8"), "{error}");
    let index = transport.merge(&all[..8]).unwrap();
    let info = transport.devices().remove(index);
    assert_eq!(info.speed_mbps, 3_200_000);
    assert_eq!(info.name, "a0+a1+a2+a3+a4+a5+a6+a7");
    // There is no end to how many of them there can be (pitfall 13: nothing is indexed by them).
    for first in 0..8 {
        for second in first + 1..9 {
            transport.merge(&[first, second]).unwrap();
        }
    }
    assert_eq!(transport.devices().len(), 9 + 1 + 36);
    let last = transport.devices().len() - 1;
    assert!(transport.listen(last).is_ok());
    assert!(transport.listen(last + 1).is_err());
}

#[test]
fn long_names_are_whole() {
    // Pitfall 17: nothing is cut or left unterminated.
    let names: Vec<String> = (0..8)
        .map(|index| format!("{index}{}", "x".repeat(62)))
        .collect();
    let description: String = names
        .iter()
        .map(|name| format!("rdma {name} on virtual : ib 4xNDR\n"))
        .collect();
    let machine = Machine::new(&description);
    let fabric = machine.fabric();
    let transport = machine.open(&fabric, &[]).unwrap();
    let index = transport.merge(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(transport.devices()[index].name, names.join("+"));
}

#[test]
fn the_user_can_forbid_it() {
    let transport = open(&[("NCCL_IB_MERGE_NICS", "0")]);
    let error = transport.merge(&[0, 1]).unwrap_err();
    assert!(error.to_string().contains("`merge_nics`=0"), "{error}");
    assert_eq!(transport.merge(&[1, 1]).unwrap(), 1);
}

#[test]
fn many_threads_may_merge_at_once() {
    // Pitfall 15: what one thread asks for while another merges is never half made.
    let transport = open(&[]);
    let indices: Vec<usize> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let index = transport.merge(&[0, 1, 2]).unwrap();
                    let info = transport.devices().swap_remove(index);
                    assert_eq!(info.members, [0, 1, 2]);
                    index
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    assert_eq!(indices, [6; 8]);
    assert_eq!(transport.devices().len(), 7);
}
