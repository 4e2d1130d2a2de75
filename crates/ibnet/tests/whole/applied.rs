//! That each setting reaches the device: what is set on queue pairs and regions, from the variable in
//! the environment on.

use ibnet::Wait;
use std::os::fd::{AsFd, BorrowedFd};

use ibnet::raw::{Flush, RecvBuffer};
use ibnet_simverbs::{DeviceSpec, Fabric, PortSpec, QueuePairView, RegionKind};
use ibnet_verbs::{Access, Mtu, QueuePairAttributes, QueuePairState};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tracing::Level;

use crate::rig::log::Log;
use crate::rig::{End, eventually, fabric, flushing, join, message};

/// InfiniBand with several partitions and packets of up to 2048 bytes.
fn infiniband() -> Fabric {
    partitioned([0xffff, 0x8011, 0x8022])
}

fn partitioned(pkeys: [u16; 3]) -> Fabric {
    let port = || {
        PortSpec::infiniband()
            .pkeys(pkeys)
            .mtu(Mtu::MTU_2048, Mtu::MTU_4096)
    };
    ["s0", "r0"]
        .into_iter()
        .fold(Fabric::builder(), |builder, name| {
            builder.device(DeviceSpec::infiniband(name).ports([port()]))
        })
        .build()
        .unwrap()
}

/// The queue pairs of both ends, of one connection with these variables at both.
fn queue_pairs(fabric: &Fabric, variables: Variables<'_>) -> Vec<QueuePairView> {
    let sender = End::of_variables(fabric, "s", variables);
    let receiver = End::of_variables(fabric, "r", variables);
    let (mut sending, mut receiving) = join(&sender, &receiver);
    message(&mut sending, &mut receiving, 100, 100);
    let of = |name: &str| fabric.hca(name).unwrap().queue_pairs();
    [of("s0"), of("r0")].concat()
}

type Part = fn(&QueuePairAttributes) -> u32;
type Variables<'a> = &'a [(&'a str, &'a str)];

#[test]
fn every_queue_pair_has_what_the_environment_says() {
    const TIMEOUT: Part = |qp| qp.timeout.into();
    const RETRIES: Part = |qp| qp.retry_count.into();
    const LEVEL: Part = |qp| qp.address.service_level.into();
    const PARTITION: Part = |qp| qp.pkey_index.into();
    let cases: &[(Variables<'_>, Part, u32)] = &[
        (&[], TIMEOUT, 20),
        (&[("NCCL_IB_TIMEOUT", "17")], TIMEOUT, 17),
        (&[("NCCL_IB_TIMEOUT", "0")], TIMEOUT, 0),
        (&[], RETRIES, 7),
        (&[("NCCL_IB_RETRY_CNT", "3")], RETRIES, 3),
        (&[], LEVEL, 0),
        (&[("NCCL_IB_SL", "11")], LEVEL, 11),
        (&[], PARTITION, 0),
        (&[("NCCL_IB_PKEY", "2")], PARTITION, 2),
        (&[("NCCL_IB_PKEY_VALUE", "0x8011")], PARTITION, 1),
        // No setting changes these: announced receives are always posted, and a fault in that is not
        // to end a job.
        (&[], |qp| qp.rnr_retry.into(), 7),
        (&[], |qp| qp.min_rnr_timer.into(), 12),
        (&[], |qp| qp.mtu.bytes().unwrap(), 2048),
        (&[], |qp| qp.port.into(), 1),
        (&[], |qp| u32::from(qp.state == QueuePairState::RTS), 1),
        // Within a subnet there is no global route, unless the port demands one.
        (
            &[],
            |qp| u32::from(qp.address.destination.route.is_some()),
            0,
        ),
    ];
    for (variables, part, expected) in cases {
        let found = queue_pairs(&infiniband(), variables);
        assert_eq!(found.len(), 3, "one of the sender, two of the receiver");
        for view in found {
            assert_eq!(part(&view.attributes), *expected, "{variables:?}: {view:?}");
        }
    }
}

#[test]
fn a_partition_is_looked_up_in_the_table_of_each_port() {
    let fabric = partitioned([0x8011, 0x8022, 0xffff]);
    for view in queue_pairs(&fabric, &[("NCCL_IB_PKEY_VALUE", "0x8011")]) {
        assert_eq!(view.attributes.pkey_index, 0);
    }
}

#[test]
fn a_port_that_demands_a_global_route_gets_one_with_the_traffic_class() {
    let device =
        |name: &str| DeviceSpec::infiniband(name).ports([PortSpec::infiniband().grh_required()]);
    let fabric = Fabric::builder().device(device("s0")).device(device("r0"));
    let fabric = fabric.build().unwrap();
    for view in queue_pairs(&fabric, &[("NCCL_IB_TC", "106")]) {
        let route = view.attributes.address.destination.route;
        let route = route.expect("a global route");
        assert_eq!((route.traffic_class, route.hop_limit), (106, 255));
        assert_eq!(view.attributes.address.service_level, 0);
    }
}

#[test]
fn peers_can_do_no_more_than_they_have_to() {
    // Pitfall 68: a queue pair for data can be written through, the one for flushing read.
    let fabric = fabric(1, 1);
    let views = queue_pairs(&fabric, &[]);
    let (loops, data): (Vec<_>, Vec<_>) = views
        .iter()
        .partition(|view| view.attributes.remote_qp == view.number);
    assert_eq!((loops.len(), data.len()), (1, 2));
    let have = |views: &[&QueuePairView], access| {
        views.iter().all(|view| view.attributes.access == access)
    };
    assert!(have(&loops, Access::REMOTE_READ) && have(&data, Access::REMOTE_WRITE));
}

#[test]
fn the_number_of_queue_pairs_and_flushing_are_as_set() {
    for (variables, data, loops) in [
        (&[][..], 1, 1),
        (&[("NCCL_IB_QPS_PER_CONNECTION", "3")], 3, 1),
        (&[("NCCL_GDR_FLUSH_DISABLE", "1")], 1, 0),
    ] {
        let fabric = infiniband();
        let sender = End::of_variables(&fabric, "s", variables);
        let receiver = End::of_variables(&fabric, "r", variables);
        let _connection = join(&sender, &receiver);
        let hca = |name: &str| fabric.hca(name).unwrap();
        assert_eq!(hca("s0").queue_pairs().len(), data, "{variables:?}");
        assert_eq!(hca("r0").queue_pairs().len(), data + loops, "{variables:?}");
        assert_eq!(flushing(&hca("r0")).len(), loops, "{variables:?}");
    }
}

#[test]
fn relaxed_ordering_is_for_data_alone() {
    // Pitfall 93: what the protocol itself writes (announcements, sizes) must arrive in order.
    for (setting, is_relaxed) in [("0", false), ("1", true), ("2", true), ("", true)] {
        let fabric = fabric(2, 2);
        let variables = [("NCCL_IB_PCI_RELAXED_ORDERING", setting)];
        let sender = End::of_variables(&fabric, "s", &variables);
        let receiver = End::of_variables(&fabric, "r", &variables);
        let (sending, receiving) = join(&sender, &receiver);
        let names = ["s0", "s1", "r0", "r1"];
        let regions = || names.map(|name| fabric.hca(name).unwrap().regions());
        let own = regions();
        for (name, own) in names.iter().zip(&own) {
            // The ring of a sender; the prepared entries, with what flushing reads, and the sizes of a receiver.
            let expected = if name.starts_with('s') { 1 } else { 2 };
            assert_eq!(own.len(), expected, "{name}");
            let relaxed = |access: Access| access.contains(Access::RELAXED_ORDERING);
            assert!(
                !own.iter().any(|region| relaxed(region.access)),
                "{name}: {own:?}"
            );
            assert!(own.iter().all(|region| region.kind == RegionKind::Process));
        }
        let to = receiving.registrar().buffer(10_000).unwrap();
        let from = sending.registrar().buffer(10_000).unwrap();
        let relaxed = if is_relaxed {
            Access::RELAXED_ORDERING
        } else {
            Access::empty()
        };
        for (name, (own, all)) in names.iter().zip(own.iter().zip(regions())) {
            let new: Vec<_> = all.iter().filter(|region| !own.contains(region)).collect();
            let [new] = new[..] else {
                panic!("{name}: {new:?}");
            };
            // What is sent is not written to.
            let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let rights = match name.starts_with('s') {
                true => Access::empty(),
                false => writable,
            };
            assert_eq!(new.access, rights | relaxed, "{name}, {setting:?}");
        }
        drop((from, to));
    }
}

#[test]
fn ends_whose_devices_have_other_names_are_told_of_where_that_is_wanted() {
    for (setting, expected) in [("1", 1), ("0", 0), ("", 0)] {
        let fabric = fabric(1, 1);
        let sender = End::open(&fabric, "s", |_| {});
        let variables = [("NCCL_IB_WARN_RAIL_LOCAL", setting)];
        let receiver = End::of_variables(&fabric, "r", &variables);
        let log = Log::of(Level::WARN);
        let _connection =
            tracing::subscriber::with_default(log.clone(), || join(&sender, &receiver));
        let lines = log.lines();
        assert_eq!(lines.len(), expected, "{setting:?}: {lines:?}");
        for line in lines {
            assert!(line.contains("s0:1 and r0:1 (`warn_rail_local`)"), "{line}");
        }
    }
    // The same device at both ends is no reason.
    let fabric = fabric(1, 0);
    let end = End::of_variables(&fabric, "s", &[("NCCL_IB_WARN_RAIL_LOCAL", "1")]);
    let log = Log::of(Level::WARN);
    let _connection = tracing::subscriber::with_default(log.clone(), || join(&end, &end));
    assert!(log.lines().is_empty(), "{:?}", log.lines());
}

#[test]
fn a_dead_host_is_noticed_at_both_ends_of_the_control_channel() {
    let fabric = fabric(1, 1);
    let sender = End::open(&fabric, "s", |_| {});
    let receiver = End::open(&fabric, "r", |_| {});
    let mut listener = receiver.listen();
    let port = listener.handle().address().port();
    let mut connecting = sender.connect(&listener);
    let (mut sending, mut receiving) = (None, None);
    eventually("the connection", || {
        sending = sending.take().or_else(|| connecting.try_now().unwrap());
        receiving = receiving
            .take()
            .or_else(|| listener.accept().try_now().unwrap());
        (sending.is_some() && receiving.is_some()).then_some(())
    });
    let mut seen = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let name = entry.unwrap().file_name();
        let number = name.to_str().unwrap().parse().unwrap();
        // SAFETY: what other tests close meanwhile is no socket of this port, and only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = socket2::SockRef::from(&socket);
        let port_of = |address: std::io::Result<socket2::SockAddr>| {
            address.ok().and_then(|address| address.as_socket())
        };
        let Some(peer) = port_of(socket.peer_addr()) else {
            continue;
        };
        let own = port_of(socket.local_addr()).unwrap();
        if own.port() != port && peer.port() != port {
            continue;
        }
        assert!(socket.keepalive().unwrap());
        let unacknowledged = socket.tcp_user_timeout().unwrap();
        assert_eq!(unacknowledged, Some(std::time::Duration::from_secs(30)));
        let seconds = |time: std::time::Duration| time.as_secs();
        seen.push((
            seconds(socket.tcp_keepalive_time().unwrap()),
            seconds(socket.tcp_keepalive_interval().unwrap()),
            socket.tcp_keepalive_retries().unwrap(),
        ));
    }
    assert_eq!(seen, [(15, 5, 3); 2]);
}

/// What plays the memory of a GPU: a file, which is reached by its descriptor alone.
struct DeviceMemory(std::fs::File);

const PAGE: usize = 4096;
/// By which requests name the second page of it. Nothing is there in the process.
const ADDRESS: usize = 0x5000_0000_0000;

impl DeviceMemory {
    fn new() -> Self {
        let file = std::fs::File::from(memfd_create(c"gpu", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(3 * PAGE as u64).unwrap();
        Self(file)
    }

    fn write(&self, bytes: &[u8]) {
        std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, PAGE as u64).unwrap();
    }

    fn read(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        std::os::unix::fs::FileExt::read_exact_at(&self.0, &mut bytes, PAGE as u64).unwrap();
        bytes
    }
}

/// Sends from one DMA-BUF to another, flushes, and gives how each was registered.
fn by_dmabuf(fabric: &Fabric, sender: &End, receiver: &End) -> [RegionKind; 2] {
    let (mut sending, mut receiving) = join(sender, receiver);
    let (from, to) = (DeviceMemory::new(), DeviceMemory::new());
    from.write(b"from one GPU to another");
    let data = ADDRESS as *mut u8;
    let (offset, length) = (PAGE as u64, 23);
    // SAFETY: the files outlive the regions.
    let (source, target) = unsafe {
        (
            (sending.registrar()).register_dmabuf(data, PAGE, offset, from.0.as_fd()),
            (receiving.registrar()).register_dmabuf(data, PAGE, offset, to.0.as_fd()),
        )
    };
    let (source, target) = (source.unwrap(), target.unwrap());
    let kinds = ["s0", "r0"].map(|name| {
        let regions = fabric.hca(name).unwrap().regions();
        let named = regions.iter().find(|region| region.start == ADDRESS as u64);
        named.unwrap().kind
    });
    let buffer = RecvBuffer {
        data,
        capacity: PAGE,
        tag: 0,
        region: Some(&target),
    };
    // SAFETY: memory and regions outlive the requests, which are waited for.
    let receive = unsafe { receiving.raw().irecv(&[buffer]) }
        .unwrap()
        .unwrap();
    let send = eventually("the announcement", || {
        // SAFETY: as above.
        unsafe { sending.raw().isend(data, length, 0, Some(&source)) }.unwrap()
    });
    let arrived = eventually("the message", || receiving.raw().test(receive).unwrap());
    assert_eq!(arrived.sizes(), [length as u32]);
    eventually("the end of the send", || sending.raw().test(send).unwrap());
    // SAFETY: as above.
    let flush = unsafe { receiving.raw().iflush(&[(data, length, &target)]) }.unwrap();
    let Flush::Started(flush) = flush else {
        panic!("device memory is flushed: {flush:?}");
    };
    eventually("the flush", || receiving.raw().test(flush).unwrap());
    assert_eq!(to.read(length), b"from one GPU to another");
    drop((sending, receiving));
    kinds
}

#[test]
fn a_dmabuf_reaches_the_device_as_one() {
    let fabric = fabric(1, 1);
    let (sender, receiver) = (
        End::open(&fabric, "s", |_| {}),
        End::open(&fabric, "r", |_| {}),
    );
    let kinds = by_dmabuf(&fabric, &sender, &receiver);
    assert_eq!(kinds, [RegionKind::DmaBuf; 2]);
}

#[test]
fn data_direct_reaches_the_device_where_it_is_wanted() {
    for (setting, kind) in [
        ("0", RegionKind::DmaBuf),
        ("1", RegionKind::DataDirect),
        ("", RegionKind::DataDirect),
    ] {
        let device = |name: &str, bus: u32| {
            DeviceSpec::roce(name)
                .pci(format!("0000:{bus:02x}:00.0"))
                .data_direct(format!("0005:{bus:02x}:00.0"))
        };
        let fabric = Fabric::builder()
            .device(device("s0", 1))
            .device(device("r0", 2))
            .sysfs()
            .build()
            .unwrap();
        let variables = [("NCCL_IB_DATA_DIRECT", setting)];
        let sender = End::of_variables(&fabric, "s", &variables);
        let receiver = End::of_variables(&fabric, "r", &variables);
        let is_twin = sender.transport.devices()[0].name == "s0_dma";
        assert_eq!(is_twin, kind == RegionKind::DataDirect, "{setting:?}");
        assert_eq!(
            by_dmabuf(&fabric, &sender, &receiver),
            [kind; 2],
            "{setting:?}"
        );
    }
}
