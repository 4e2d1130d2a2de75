//! What tests are told of queue pairs and regions is what the program has set.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use ibnet_simverbs::{DeviceSpec, Fabric, RegionKind};
use ibnet_verbs::{
    Access, AddressVector, Destination, GidType, GlobalRoute, InitAttributes, Mtu, QueuePairState,
    ReadyToReceive, ReadyToSend, Sysfs,
};

use crate::pairs::{End, Memory, Setup, open_all};

#[test]
fn a_queue_pair_has_what_was_set_on_it() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0"))
        .device(DeviceSpec::infiniband("ib1"))
        .build()
        .unwrap();
    let end = End::new(&open_all(&fabric)[0], &Setup::default());
    let hca = fabric.hca("ib0").unwrap();
    let seen = || {
        let [view] = hca.queue_pairs()[..] else {
            panic!("one queue pair");
        };
        assert_eq!(view.number, end.qp.number());
        view.attributes
    };
    assert_eq!(seen().state, QueuePairState::RESET);
    let gid = end
        .context
        .gid_table(1, &Sysfs::default())
        .unwrap()
        .remove(0);
    assert_eq!(gid.gid_type, Some(GidType::InfiniBand));
    let address = AddressVector {
        port: 1,
        service_level: 11,
        destination: Destination::infiniband(
            7,
            Some(GlobalRoute {
                dgid: gid.gid,
                sgid_index: 0,
                hop_limit: 64,
                traffic_class: 106,
                flow_label: 5,
            }),
        ),
    };
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (port, pkey_index) = (1, 0);
    end.qp
        .to_init(&InitAttributes {
            port,
            pkey_index,
            access,
        })
        .unwrap();
    end.qp
        .to_rtr(&ReadyToReceive {
            mtu: Mtu::MTU_2048,
            remote_qp: 0x123,
            remote_psn: 9,
            max_dest_rd_atomic: 3,
            min_rnr_timer: 13,
            address,
        })
        .unwrap();
    end.qp
        .to_rts(&ReadyToSend {
            psn: 8,
            timeout: 17,
            retry_count: 4,
            rnr_retry: 5,
            max_rd_atomic: 2,
        })
        .unwrap();
    let seen = seen();
    assert_eq!(
        (
            seen.state,
            seen.port,
            seen.pkey_index,
            seen.access,
            seen.mtu
        ),
        (QueuePairState::RTS, 1, 0, access, Mtu::MTU_2048)
    );
    assert_eq!(seen.address, address);
    assert_eq!(
        (seen.remote_qp, seen.receive_psn, seen.send_psn),
        (0x123, 9, 8)
    );
    assert_eq!((seen.min_rnr_timer, seen.max_dest_rd_atomic), (13, 3));
    assert_eq!((seen.timeout, seen.retry_count, seen.rnr_retry), (17, 4, 5));
    assert_eq!(seen.max_rd_atomic, 2);
    assert_eq!(end.qp.query().unwrap(), seen, "as the program is told");
    assert!(fabric.hca("ib1").unwrap().queue_pairs().is_empty());
    drop(end);
    assert!(hca.queue_pairs().is_empty());
}

#[test]
fn a_region_has_the_access_that_the_kernel_has_kept() {
    for knows_flags in [true, false] {
        let mut spec = DeviceSpec::roce("sim0");
        if !knows_flags {
            spec = spec.without_relaxed_ordering();
        }
        let fabric = Fabric::builder().device(spec).build().unwrap();
        let pd = open_all(&fabric).remove(0).allocate_pd().unwrap();
        let memory = Memory::new(4096);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let relaxed = access | Access::RELAXED_ORDERING;
        // SAFETY: the memory outlives the region.
        let region = unsafe { pd.register(memory.as_ptr(), 100, relaxed) }.unwrap();
        let hca = fabric.hca("sim0").unwrap();
        let [seen] = hca.regions()[..] else {
            panic!("one region");
        };
        assert_eq!((seen.start, seen.length), (memory.address(), 100));
        assert_eq!((seen.lkey, seen.rkey), (region.lkey(), region.rkey()));
        assert_eq!(seen.access, if knows_flags { relaxed } else { access });
        assert_eq!(seen.kind, RegionKind::Process);
        drop(region);
        assert!(hca.regions().is_empty());
    }
}

/// A file in memory, which stands in for a DMA-BUF.
fn file(length: u64) -> OwnedFd {
    // SAFETY: the name is a valid string; the descriptor is new and has no other owner.
    let fd = unsafe {
        let fd = libc::memfd_create(c"simverbs-test".as_ptr(), libc::MFD_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    };
    let file = File::from(fd);
    file.set_len(length).unwrap();
    file.into()
}

#[test]
fn data_direct_is_told_of_and_registers() {
    let fabric = Fabric::builder()
        .device(
            DeviceSpec::infiniband("mlx5_0")
                .pci("0000:03:00.0")
                .data_direct("0005:01:00.0"),
        )
        .device(DeviceSpec::roce("sim0"))
        .sysfs()
        .build()
        .unwrap();
    let contexts = open_all(&fabric);
    let told = contexts[0].data_direct_path().unwrap().unwrap();
    let below = fabric.sysfs_root().unwrap();
    assert!(below.join(told.strip_prefix("/sys").unwrap()).is_dir());
    assert_eq!(contexts[1].data_direct_path().unwrap(), None);

    let fd = file(8192);
    let register = |context: &ibnet_verbs::Context, is_direct: bool| {
        let pd = context.allocate_pd().unwrap();
        let (fd, access) = (fd.as_fd(), Access::LOCAL_WRITE);
        // SAFETY: the file is kept until the region is gone.
        unsafe {
            match is_direct {
                true => pd.register_dmabuf_data_direct(4096, 4096, 0x7000_0000, fd, access),
                false => pd.register_dmabuf(4096, 4096, 0x7000_0000, fd, access),
            }
        }
    };
    let hca = fabric.hca("mlx5_0").unwrap();
    for (is_direct, kind) in [(true, RegionKind::DataDirect), (false, RegionKind::DmaBuf)] {
        let region = register(&contexts[0], is_direct).unwrap();
        let [seen] = hca.regions()[..] else {
            panic!("one region");
        };
        assert_eq!((seen.kind, seen.start), (kind, 0x7000_0000));
        drop(region);
    }
    assert!(register(&contexts[1], true).is_err(), "it has none");
}
