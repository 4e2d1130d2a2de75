//! Machines as users have them: which devices are found, in which order, where they sit, and why.

use ibnet::Transport;

use crate::machine::{Machine, line};

/// A machine, and what must be found on it.
struct Layout {
    /// What it is, and why the result is right.
    what: &'static str,
    machine: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// One line for each device; `- ` begins what a reason for leaving something out contains.
    expected: &'static str,
}

const fn layout(what: &'static str, machine: &'static str, expected: &'static str) -> Layout {
    Layout {
        what,
        machine,
        settings: &[],
        expected,
    }
}

const fn with(
    settings: &'static [(&'static str, &'static str)],
    what: &'static str,
    machine: &'static str,
    expected: &'static str,
) -> Layout {
    Layout {
        what,
        machine,
        settings,
        expected,
    }
}

/// Two ports of a card, each a physical function of its own.
const DUAL_PORT: &str = "
    pci 3b:00.0 id=15b3:101d
    pci 3b:00.1 id=15b3:101d
    rdma mlx5_0 on 3b:00.0 guid=c1 : eth 4xEDR
    rdma mlx5_1 on 3b:00.1 guid=c1 : eth 4xEDR";

/// A physical function with two virtual ones.
const WITH_VFS: &str = "
    pci 3b:00.0 id=15b3:101b
    vf 3b:00.2 of 3b:00.0 id=15b3:101c
    vf 3b:00.3 of 3b:00.0 id=15b3:101c
    rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR
    rdma mlx5_2 on 3b:00.2 guid=c1 : ib 4xHDR
    rdma mlx5_3 on 3b:00.3 guid=c1 : ib 4xHDR";

const LAYOUTS: &[Layout] = &[
    layout(
        "ConnectX-7, one port: it stands for itself",
        "pci 3b:00.0 id=15b3:1021
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xNDR",
        "mlx5_0:1 400000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "ConnectX-8 at XDR: the older speed field has no code for it",
        "pci 0001:01:00.0 id=15b3:1023
         rdma mlx5_0 on 0001:01:00.0 guid=c1 : ib 4xXDR",
        "mlx5_0:1 800000 at 0001:01:00.0 card 0001:01:00.0 #0",
    ),
    layout(
        "dual-port ConnectX-6: two functions of one card share its path and differ in ordinal",
        DUAL_PORT,
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         mlx5_1:1 100000 at 3b:00.1 card 3b:00.0 #1",
    ),
    layout(
        "the same, listed the other way round by the kernel: PCI order",
        "pci 3b:00.0
         pci 3b:00.1
         rdma mlx5_1 on 3b:00.1 guid=c1 : eth 4xEDR
         rdma mlx5_0 on 3b:00.0 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         mlx5_1:1 100000 at 3b:00.1 card 3b:00.0 #1",
    ),
    with(
        &[("NCCL_IB_DEVICE_PCI_ORDER", "0")],
        "and again, in the order of the kernel because the user says so",
        "pci 3b:00.0
         pci 3b:00.1
         rdma mlx5_1 on 3b:00.1 guid=c1 : eth 4xEDR
         rdma mlx5_0 on 3b:00.0 guid=c1 : eth 4xEDR",
        "mlx5_1:1 100000 at 3b:00.1 card 3b:00.0 #0
         mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #1",
    ),
    layout(
        "ConnectX-4 VPI: one port InfiniBand, one Ethernet",
        "pci 3b:00.0
         pci 3b:00.1
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xEDR
         rdma mlx5_1 on 3b:00.1 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         mlx5_1:1 100000 at 3b:00.1 card 3b:00.0 #1",
    ),
    layout(
        "ConnectX-3: one device with two ports",
        "pci 04:00.0 id=15b3:1003
         rdma mlx4_0 on 04:00.0 guid=c1 : ib 4xFDR; ib 4xFDR",
        "mlx4_0:1 56000 at 04:00.0 card 04:00.0 #0
         mlx4_0:2 56000 at 04:00.0 card 04:00.0 #1",
    ),
    layout(
        "physical function and its virtual ones on the host: one card",
        WITH_VFS,
        "mlx5_0:1 200000 at 3b:00.0 card 3b:00.0 #0
         mlx5_2:1 200000 at 3b:00.2 card 3b:00.0 #1 vf-of 3b:00.0
         mlx5_3:1 200000 at 3b:00.3 card 3b:00.0 #2 vf-of 3b:00.0",
    ),
    with(
        &[("NCCL_IB_MERGE_VFS", "0")],
        "the same, each virtual function for itself because the user says so",
        WITH_VFS,
        "mlx5_0:1 200000 at 3b:00.0 card 3b:00.0 #0
         mlx5_2:1 200000 at 3b:00.2 card 3b:00.2 #0 vf-of 3b:00.0
         mlx5_3:1 200000 at 3b:00.3 card 3b:00.3 #0 vf-of 3b:00.0",
    ),
    layout(
        "virtual functions of both ports of a card: all are the card's",
        "pci 3b:00.0 id=15b3:101d
         pci 3b:00.1 id=15b3:101d
         vf 3b:00.2 of 3b:00.0 id=15b3:101e
         vf 3b:01.2 of 3b:00.1 id=15b3:101e
         rdma mlx5_2 on 3b:00.2 guid=c1 : eth 4xEDR
         rdma mlx5_9 on 3b:01.2 guid=c1 : eth 4xEDR",
        "mlx5_2:1 100000 at 3b:00.2 card 3b:00.0 #0 vf-of 3b:00.0
         mlx5_9:1 100000 at 3b:01.2 card 3b:00.0 #1 vf-of 3b:00.1",
    ),
    layout(
        "ARI: virtual functions beyond device 0, and beyond the bus (pitfall 10)",
        "pci 3b:00.0 id=15b3:101b
         vf 3b:08.1 of 3b:00.0 id=15b3:101c
         vf 3c:00.1 of 3b:00.0 id=15b3:101c
         rdma mlx5_1 on 3b:08.1 guid=c1 : ib 4xHDR
         rdma mlx5_2 on 3c:00.1 guid=c1 : ib 4xHDR",
        "mlx5_1:1 200000 at 3b:08.1 card 3b:00.0 #0 vf-of 3b:00.0
         mlx5_2:1 200000 at 3c:00.1 card 3b:00.0 #1 vf-of 3b:00.0",
    ),
    layout(
        "SR-IOV in a container that is not shown the physical function",
        "pci 3b:00.0
         vf 3b:00.2 of 3b:00.0 id=15b3:101c dangling
         rdma mlx5_2 on 3b:00.2 guid=c2 : eth 4xEDR",
        "mlx5_2:1 100000 at 3b:00.2 card 3b:00.2 #0 vf-of 3b:00.0",
    ),
    layout(
        "virtual functions passed into a virtual machine: nothing tells that they are some",
        "pci 00:05.0 id=15b3:101c
         pci 00:06.0 id=15b3:101c
         rdma mlx5_0 on 00:05.0 guid=c1 : ib 4xHDR
         rdma mlx5_1 on 00:06.0 guid=c2 : ib 4xHDR",
        "mlx5_0:1 200000 at 00:05.0 card 00:05.0 #0
         mlx5_1:1 200000 at 00:06.0 card 00:06.0 #0",
    ),
    layout(
        "cloud-hypervisor: an endpoint at the root, whose bus id must not be mangled (theme G)",
        "pci 00:04.0 id=15b3:101e
         rdma mlx5_0 on 00:04.0 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 00:04.0 card 00:04.0 #0",
    ),
    layout(
        "a virtual machine with a GPU as function 0 of the slot of an adapter: no card of both",
        "pci 00:05.0 id=10de:2330
         pci 00:05.1 id=15b3:101e
         rdma mlx5_0 on 00:05.1 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 00:05.1 card 00:05.1 #0",
    ),
    layout(
        "a virtual machine where function 0 is of the same vendor, but another kind",
        "pci 00:05.0 id=15b3:1021
         pci 00:05.1 id=15b3:101e
         rdma mlx5_0 on 00:05.0 guid=c1 : eth 4xEDR
         rdma mlx5_1 on 00:05.1 guid=c2 : eth 4xEDR",
        "mlx5_0:1 100000 at 00:05.0 card 00:05.0 #0
         mlx5_1:1 100000 at 00:05.1 card 00:05.1 #0",
    ),
    layout(
        "function 1 alone in a virtual machine: there is no function 0 to stand for the card",
        "pci 00:07.1 id=15b3:101e
         rdma mlx5_0 on 00:07.1 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 00:07.1 card 00:07.1 #0",
    ),
    layout(
        "Azure: domains made by Hyper-V, one for each device",
        "pci 7870:00:00.0 id=15b3:1018
         pci 0101:00:00.0 id=15b3:101c
         rdma mlx5_an0 on 7870:00:00.0 guid=c2 : eth 4xEDR
         rdma mlx5_ib0 on 0101:00:00.0 guid=c1 : ib 4xHDR",
        "mlx5_ib0:1 200000 at 0101:00:00.0 card 0101:00:00.0 #0
         mlx5_an0:1 100000 at 7870:00:00.0 card 7870:00:00.0 #0",
    ),
    layout(
        "a domain of five digits, made by a volume management device: it sorts last",
        "pci 10000:e1:00.0
         pci ffff:01:00.0
         rdma mlx5_0 on 10000:e1:00.0 guid=c1 : ib 4xHDR
         rdma mlx5_1 on ffff:01:00.0 guid=c2 : ib 4xHDR",
        "mlx5_1:1 200000 at ffff:01:00.0 card ffff:01:00.0 #0
         mlx5_0:1 200000 at 10000:e1:00.0 card 10000:e1:00.0 #0",
    ),
    layout(
        "behind PCIe switches, as in a DGX: the adapter's own address counts, not a bridge's",
        "pci 15:01.0 id=8086:352a
         pci 16:00.0 under 15:01.0 id=1000:c030
         pci 17:02.0 under 16:00.0 id=1000:c030
         pci 18:00.0 under 17:02.0 id=15b3:1021
         rdma mlx5_0 on 18:00.0 guid=c1 : ib 4xNDR",
        "mlx5_0:1 400000 at 18:00.0 card 18:00.0 #0",
    ),
    layout(
        "cards in neighbouring slots are two cards (pitfall 10)",
        "pci 3b:00.0
         pci 3c:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR
         rdma mlx5_1 on 3c:00.0 guid=c2 : ib 4xHDR",
        "mlx5_0:1 200000 at 3b:00.0 card 3b:00.0 #0
         mlx5_1:1 200000 at 3c:00.0 card 3c:00.0 #0",
    ),
    layout(
        "Socket Direct: one adapter on two sockets has two links to the host",
        "pci 3b:00.0
         pci af:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR
         rdma mlx5_1 on af:00.0 guid=c1 : ib 4xHDR",
        "mlx5_0:1 200000 at 3b:00.0 card 3b:00.0 #0
         mlx5_1:1 200000 at af:00.0 card af:00.0 #0",
    ),
    layout(
        "Grace Hopper: each adapter in a domain of its own",
        "pci 0002:01:00.0 id=15b3:1021
         pci 0000:01:00.0 id=15b3:1021
         rdma mlx5_1 on 0002:01:00.0 guid=c2 : ib 4xNDR
         rdma mlx5_0 on 0000:01:00.0 guid=c1 : ib 4xNDR",
        "mlx5_0:1 400000 at 01:00.0 card 01:00.0 #0
         mlx5_1:1 400000 at 0002:01:00.0 card 0002:01:00.0 #0",
    ),
    layout(
        "BlueField: two ports and a management function without RDMA",
        "pci 03:00.0 id=15b3:a2dc
         pci 03:00.1 id=15b3:a2dc
         pci 03:00.2 id=15b3:c2d5
         rdma mlx5_0 on 03:00.0 guid=c1 : eth 4xHDR
         rdma mlx5_1 on 03:00.1 guid=c1 : eth 4xHDR",
        "mlx5_0:1 200000 at 03:00.0 card 03:00.0 #0
         mlx5_1:1 200000 at 03:00.1 card 03:00.0 #1",
    ),
    layout(
        "a sub-function sits below the PCI function that it is a part of",
        "pci 3b:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : eth 4xEDR
         rdma mlx5_4 on 3b:00.0/mlx5_core.sf.2 guid=c1 : eth 4xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         mlx5_4:1 100000 at 3b:00.0 card 3b:00.0 #1",
    ),
    layout(
        "a bond of two ports is one device, as fast as its interface (nccl#1015)",
        "pci 3b:00.0
         pci 3b:00.1
         net ens1f0 speed=25000
         net bond0 speed=50000 bond
         rdma mlx5_bond_0 on 3b:00.0 guid=c1 : eth 1xEDR net=ens1f0,bond0",
        "mlx5_bond_0:1 50000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "a bond whose driver tells the effective speed: the driver knows best",
        "pci 3b:00.0
         net bond0 speed=50000 bond
         rdma mlx5_bond_0 on 3b:00.0 guid=c1 : eth 4xEDR effective=200000 net=bond0",
        "mlx5_bond_0:1 200000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "VLANs on a bond are as fast as the bond",
        "pci 3b:00.0
         net bond0 speed=200000 bond
         net bond0.100 speed=200000 over bond0
         rdma mlx5_bond_0 on 3b:00.0 guid=c1 : eth 4xEDR net=bond0.100",
        "mlx5_bond_0:1 200000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "a team of two ports",
        "pci 3b:00.0
         net team0 speed=50000 over eth0,eth1
         rdma mlx5_bond_0 on 3b:00.0 guid=c1 : eth 1xEDR net=team0",
        "mlx5_bond_0:1 50000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "a bond without a link tells -1: the port's lanes count",
        "pci 3b:00.0
         net bond0 speed=-1 bond
         rdma mlx5_bond_0 on 3b:00.0 guid=c1 : eth 1xEDR net=bond0",
        "mlx5_bond_0:1 25000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "Broadcom with IPv6 only: the global address, whatever the index (uccl#799)",
        "pci 06:00.0 id=14e4:1760
         rdma bnxt_re0 on 06:00.0 guid=c1 : eth 4xEDR gid=fe80::1,fd00:10::7",
        "bnxt_re0:1 100000 at 06:00.0 card 06:00.0 #0 gid fd00:10::7",
    ),
    with(
        &[("NCCL_IB_ADDR_RANGE", "10.1.0.0/16")],
        "two compute rails, and a storage NIC in another network: it would fail at connect",
        "rdma mlx5_0 on virtual guid=c1 : eth 4xHDR gid=10.1.2.3
         rdma mlx5_1 on virtual guid=c2 : eth 4xHDR gid=10.1.3.3
         rdma mlx5_8 on virtual guid=c8 : eth 4xHDR gid=192.168.5.3",
        "mlx5_0:1 200000 #0 gid 10.1.2.3
         mlx5_1:1 200000 #0 gid 10.1.3.3
         - mlx5_8:1: no usable GID: no address lies in `ranges`=10.1.0.0/16
         - 192.168.5.3",
    ),
    with(
        &[("NCCL_IB_ADDR_RANGE", "10.9.0.0/16")],
        "no NIC in the range: the table of each",
        "rdma mlx5_0 on virtual guid=c1 : eth 4xHDR gid=10.1.2.3
         rdma mlx5_8 on virtual guid=c8 : eth 4xHDR gid=192.168.5.3",
        "- mlx5_0:1: no usable GID: no address lies in `ranges`=10.9.0.0/16
         - 10.1.2.3
         - mlx5_8:1: no usable GID
         - 192.168.5.3",
    ),
    with(
        &[("NCCL_IB_PKEY_VALUE", "0x8001")],
        "a port outside the partition",
        "rdma mlx5_0 on virtual guid=c1 : ib 4xHDR pkeys=ffff,8001
         rdma mlx5_8 on virtual guid=c8 : ib 4xHDR",
        "mlx5_0:1 200000 #0
         - mlx5_8:1: P_Key 0x8001 (`partition`) is not in its table",
    ),
    layout(
        "pods that share a device, each with a net1 of the same number: the address says whose",
        "net net1
         own 10.8.0.12,fe80::a0b:cff:fe11:2233
         rdma mlx5_1 on virtual guid=c1 : eth 4xHDR \
         net=net1,net1,net1 gid=fe80::a0b:cff:fe11:2233,10.8.0.11,10.8.0.12
         rdma mlx5_2 on virtual guid=c2 : eth 4xHDR net=net1 gid=10.8.0.11",
        "mlx5_1:1 200000 #0 gid 10.8.0.12
         - mlx5_2:1: no usable GID
         - no interface of this network namespace has it",
    ),
    layout(
        "a virtual function whose MAC address was changed: the GID of the old one is no address",
        "net eth0
         own fe80::a0b:cff:fe11:2233
         rdma mlx5_1 on virtual guid=c1 : eth 4xHDR \
         net=eth0,eth0 gid=fe80::a0b:cff:fe99:9999,fe80::a0b:cff:fe11:2233",
        "mlx5_1:1 200000 #0 gid fe80::a0b:cff:fe11:2233",
    ),
    layout(
        "a NIC of another network namespace",
        "net eth0
         rdma mlx5_0 on virtual guid=c1 : eth 4xHDR net=eth0
         rdma mlx5_1 on virtual guid=c2 : eth 4xHDR net=eth7",
        "mlx5_0:1 200000 #0 gid 10.1.0.2
         - mlx5_1:1: no usable GID
         - eth7 is not in this network namespace",
    ),
    layout(
        "E810: a RoCE port with a LID is RoCE all the same (nccl#622, pitfall 33)",
        "pci 18:00.0 id=8086:1592
         rdma irdma0 on 18:00.0 guid=c1 : eth 4xEDR lid=1 gid=10.1.2.3",
        "irdma0:1 100000 at 18:00.0 card 18:00.0 #0 gid 10.1.2.3",
    ),
    layout(
        "E810 in iWARP mode: no RDMA write with immediate",
        "pci 18:00.0 id=8086:1592
         pci 3b:00.0
         rdma irdma0 on 18:00.0 guid=c1 transport=1 : eth 4xEDR
         rdma mlx5_0 on 3b:00.0 guid=c2 : eth 4xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         - irdma0: it speaks",
    ),
    layout(
        "EFA beside an adapter: left out, and said so",
        "pci 00:06.0 id=1d0f:efa2
         pci 3b:00.0
         rdma efa_0 on 00:06.0 guid=c1 transport=4 : eth 4xEDR
         rdma mlx5_0 on 3b:00.0 guid=c2 : ib 4xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         - efa_0: it speaks",
    ),
    layout(
        "AMD Pensando",
        "pci 06:00.0 id=1dd8:1002
         rdma ionic_0 on 06:00.0 guid=c1 : eth 4xNDR",
        "ionic_0:1 400000 at 06:00.0 card 06:00.0 #0",
    ),
    layout(
        "Huawei's adapter of the SoC is on no PCI bus",
        "rdma hns_0 on platform guid=c1 : eth 4xEDR",
        "hns_0:1 100000 #0",
    ),
    layout(
        "Soft-RoCE has no path, and that is fine (pitfall 9)",
        "rdma rxe0 on virtual guid=c1 : eth 1xEDR
         rdma rxe1 on virtual guid=c2 : eth 1xEDR",
        "rxe0:1 25000 #0
         rxe1:1 25000 #0",
    ),
    layout(
        "Soft-RoCE beside an adapter, listed first by the kernel: what has no address comes last",
        "pci 3b:00.0
         rdma rxe0 on virtual guid=c1 : eth 1xEDR
         rdma mlx5_0 on 3b:00.0 guid=c2 : ib 4xEDR
         rdma siw0 on virtual transport=1 : eth 1xEDR",
        "mlx5_0:1 100000 at 3b:00.0 card 3b:00.0 #0
         rxe0:1 25000 #0
         - siw0: it speaks",
    ),
    layout(
        "a container without the device's directory in sysfs: no path, no failure (theme C)",
        "pci 3b:00.0
         rdma mlx5_0 on nowhere guid=c1 : ib 4xEDR",
        "mlx5_0:1 100000 #0",
    ),
    layout(
        "ports without a path that are one adapter's have different ordinals",
        "rdma mlx5_0 on nowhere guid=c1 : ib 4xEDR
         rdma mlx5_1 on nowhere guid=c1 : ib 4xEDR",
        "mlx5_0:1 100000 #0
         mlx5_1:1 100000 #1",
    ),
    layout(
        "one port of two is down",
        "pci 3b:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR down; ib 4xHDR",
        "mlx5_0:2 200000 at 3b:00.0 card 3b:00.0 #0
         - mlx5_0:1: its state is",
    ),
    layout(
        "everything is down: an error with every reason (pitfall 19)",
        "pci 3b:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR down; ib 4xHDR down",
        "- mlx5_0:1: its state is
         - mlx5_0:2: its state is",
    ),
    layout(
        "a link layer that is neither",
        "pci 3b:00.0
         rdma odd0 on 3b:00.0 guid=c1 : ib 4xHDR link=9; ib 4xHDR",
        "odd0:2 200000 at 3b:00.0 card 3b:00.0 #0
         - odd0:1: its link layer is",
    ),
    layout(
        "a driver that names no link layer means InfiniBand",
        "pci 3b:00.0
         rdma old0 on 3b:00.0 guid=c1 : ib 4xQDR link=0",
        "old0:1 40000 at 3b:00.0 card 3b:00.0 #0",
    ),
    layout(
        "messages that are too small to be of use",
        "pci 3b:00.0
         rdma tiny0 on 3b:00.0 guid=c1 : ib 4xHDR small",
        "- tiny0:1: it allows messages of 64 bytes only",
    ),
    with(
        &[("NCCL_IB_HCA", "=mlx5_1")],
        "one device by its very name",
        "pci 3b:00.0
         pci 3c:00.0
         pci 3d:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR
         rdma mlx5_1 on 3c:00.0 guid=c2 : ib 4xHDR
         rdma mlx5_10 on 3d:00.0 guid=c3 : ib 4xHDR",
        "mlx5_1:1 200000 at 3c:00.0 card 3c:00.0 #0
         - mlx5_0: not asked for
         - mlx5_10: not asked for",
    ),
    with(
        &[("NCCL_IB_HCA", "^=mlx5_0:2,rxe")],
        "all but one port",
        "pci 3b:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xHDR; ib 4xHDR
         rdma rxe0 on virtual guid=c2 : eth 1xEDR",
        "mlx5_0:1 200000 at 3b:00.0 card 3b:00.0 #0
         rxe0:1 25000 #0
         - mlx5_0:2: not asked for",
    ),
    with(
        &[("NCCL_IB_HCA", "mlx5_0:1:0:1,mlx5_1:1:1:0")],
        "rails and planes by hand",
        "pci 3b:00.0
         pci af:00.0
         rdma mlx5_0 on 3b:00.0 guid=c1 : eth 4xNDR
         rdma mlx5_1 on af:00.0 guid=c2 : eth 4xNDR",
        "mlx5_0:1 400000 at 3b:00.0 card 3b:00.0 #0 rail 0 plane 1
         mlx5_1:1 400000 at af:00.0 card af:00.0 #0 rail 1 plane 0",
    ),
    layout(
        "NVIDIA's peer-memory module",
        "pci 3b:00.0
         file module/nvidia_peermem/version 550.54.15
         rdma mlx5_0 on 3b:00.0 guid=c1 : ib 4xNDR",
        "mlx5_0:1 400000 at 3b:00.0 card 3b:00.0 #0 peer",
    ),
    layout(
        "AMD's client, where newer kernels have it, and a device without DMA-BUF",
        "pci 3b:00.0
         file kernel/memory_peers/amdkfd/version 1.0
         rdma mlx5_0 on 3b:00.0 guid=c1 no-dmabuf : ib 4xNDR",
        "mlx5_0:1 400000 at 3b:00.0 card 3b:00.0 #0 peer no-dmabuf",
    ),
    layout(
        "speed codes that no specification has (pitfall 11)",
        "pci 3b:00.0
         rdma new0 on 3b:00.0 guid=c1 : ib raw:2:0",
        "new0:1 0 at 3b:00.0 card 3b:00.0 #0",
    ),
];

#[test]
fn what_users_have() {
    assert!(LAYOUTS.len() >= 40, "{}", LAYOUTS.len());
    for layout in LAYOUTS {
        let machine = Machine::new(layout.machine);
        let fabric = machine.fabric();
        let (found, left_out) = match machine.open(&fabric, layout.settings) {
            Ok(transport) => (lines(&transport), transport.left_out().join("\n")),
            Err(error) => (Vec::new(), error.to_string()),
        };
        let expected: Vec<&str> = layout.expected.lines().map(str::trim).collect();
        let (reasons, devices): (Vec<&str>, Vec<&str>) = expected
            .into_iter()
            .partition(|line| line.starts_with("- "));
        for (found, expected) in found.iter().zip(&devices) {
            // Addresses are told only where the machine's description has some.
            let shown = if expected.contains(" gid ") {
                found.clone()
            } else {
                found.split(" gid ").next().unwrap().to_owned()
            };
            assert_eq!(shown, *expected, "{}", layout.what);
        }
        assert_eq!(found.len(), devices.len(), "{}: {found:?}", layout.what);
        for reason in reasons {
            let reason = reason.trim_start_matches("- ");
            assert!(
                left_out.contains(reason),
                "{}: {reason} in {left_out}",
                layout.what
            );
        }
        drop(fabric);
    }
}

/// One line for each device, with the GID that it would use.
fn lines(transport: &Transport) -> Vec<String> {
    let devices = transport.devices();
    devices
        .iter()
        .enumerate()
        .map(|(index, info)| {
            let report = transport.port_reports(index).unwrap().remove(0);
            let gid = report.gid.map(|selection| selection.entry.gid);
            let address = gid.map_or_else(
                |error| error.to_string(),
                |gid| match gid.ipv4_mapped() {
                    Some(v4) => v4.to_string(),
                    None => gid.to_string(),
                },
            );
            format!("{} gid {address}", line(info))
        })
        .collect()
}
