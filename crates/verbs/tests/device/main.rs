//! The crate on real devices, each talking to itself.
//!
//! `IBNET_TEST_DEVICES` names the devices, separated by commas; without it all devices of the
//! machine are used. Without any device the tests cannot run, so they are ignored unless asked for
//! with `--include-ignored`; `cargo xtask soft-roce-test` does that. With the kernel's Soft-RoCE, a device can be made on any network interface: `rdma link add rxe0 type rxe netdev
//! eth0`.

#![allow(clippy::unwrap_used)]

mod pair;

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ibnet_verbs::{
    Access, Context, Functions, InitAttributes, Library, LinkLayer, Operation, PortState,
    QueuePairOptions, QueuePairState, RecvRequest, RemoteAddress, SendRequest, Sge, Sysfs,
    WcOpcode, WcStatus,
};

use pair::{Pair, SIZE, complete, complete_all, receive, send, to_rtr};

const PORT: u8 = 1;

/// Tests run one after the other: some look at what the whole process has.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test on each device.
fn on_each_device(test: impl Fn(Context)) {
    // A test that failed leaves nothing behind that matters to the next.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let library = Library::load().unwrap();
    let devices = library.devices().unwrap();
    let wanted = std::env::var("IBNET_TEST_DEVICES").ok();
    let wanted: Option<Vec<&str>> = wanted.as_deref().map(|names| names.split(',').collect());
    if let Some(wanted) = &wanted {
        for name in wanted {
            assert!(
                devices.iter().any(|device| device.name() == *name),
                "no device {name}"
            );
        }
    }
    let mut tested = 0;
    for device in devices {
        if wanted
            .as_ref()
            .is_none_or(|wanted| wanted.contains(&device.name()))
        {
            println!("on {}", device.name());
            test(device.open().unwrap());
            tested += 1;
        }
    }
    assert!(tested > 0, "no RDMA device");
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn a_device_answers_all_queries() {
    on_each_device(|context| {
        let attributes = context.attributes().unwrap();
        assert!(attributes.phys_port_count >= 1);
        assert!(attributes.max_qp_wr > 0 && attributes.max_cqe > 0 && attributes.max_sge > 0);
        assert_eq!(attributes.node_guid, context.device().guid());
        let port = context.port(PORT).unwrap();
        assert_eq!(port.state, PortState::ACTIVE);
        assert!(port.max_message_size > 0 && port.active_mtu <= port.max_mtu);
        assert!(port.active_mtu.bytes().is_some());
        println!("{attributes:?}\n{port:?}\nspeed {:?}", port.speed());
        println!("driver's speed {:?}", context.port_speed(PORT).unwrap());
        println!("kernel index {:?}", context.device().kernel_index());
        let pkey = context.pkey(PORT, 0).unwrap();
        assert_eq!(context.pkey_index(PORT, pkey).unwrap(), 0);
        assert!(context.device().sysfs_path().join("ports/1").is_dir());
        assert!(context.next_event().unwrap().is_none());

        let error = context.port(200).unwrap_err();
        assert!(
            error.operation == Operation::QueryPort { port: 200 },
            "{error}"
        );
        let error = context.gid(PORT, 100_000).unwrap_err();
        assert!(
            matches!(error.operation, Operation::QueryGid { .. }),
            "{error}"
        );
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn all_ways_to_the_gid_table_agree() {
    on_each_device(|context| {
        let complete = *context.library().functions();
        let one_by_one = Functions {
            query_gid_table: None,
            ..complete
        };
        let sysfs = Functions {
            query_gid_ex: None,
            ..one_by_one
        };
        let table = context.gid_table(PORT, &Sysfs::default()).unwrap();
        assert!(!table.is_empty());
        for entry in table.iter().filter(|entry| entry.unreadable.is_none()) {
            println!("{entry:?}");
            assert_eq!(context.gid(PORT, entry.index).unwrap(), entry.gid);
        }
        for functions in [one_by_one, sysfs] {
            // SAFETY: the functions are libibverbs's own.
            let library = unsafe { Library::from_functions(functions) };
            let devices = library.devices().unwrap();
            let same = devices
                .iter()
                .find(|device| device.name() == context.device_name());
            let same = same.unwrap().open().unwrap();
            assert_eq!(same.gid_table(PORT, &Sysfs::default()).unwrap(), table);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn the_gid_table_describes_the_interfaces() {
    on_each_device(|context| {
        let table = context.gid_table(PORT, &Sysfs::default()).unwrap();
        let mut described = 0;
        for entry in &table {
            println!("{entry:?}");
            if entry.unreadable.is_some() {
                continue;
            }
            let Some(netdev) = &entry.netdev else {
                continue;
            };
            let number = netdev.index.unwrap();
            let name = netdev.name.as_ref().unwrap();
            let directory = Path::new("/sys/class/net").join(name);
            let told = std::fs::read_to_string(directory.join("ifindex")).unwrap();
            assert_eq!(told.trim(), number.to_string());
            assert!(netdev.up.is_some() && netdev.kind.is_some(), "{netdev:?}");
            described += 1;
        }
        // InfiniBand has no interfaces.
        let is_ethernet = context.port(PORT).unwrap().link_layer == LinkLayer::Ethernet;
        assert_eq!(described > 0, is_ethernet);
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn data_arrives_by_every_kind_of_request() {
    on_each_device(|context| {
        let pair = Pair::new(&context);
        let Pair {
            left,
            right,
            source,
            target,
        } = &pair;
        assert!(left.capabilities().max_send_wr >= 16 && left.capabilities().max_inline >= 32);

        // A write, an inline write whose memory is not registered, and one with immediate.
        receive(right, &mut [RecvRequest::new(70)]);
        let inline: &'static [u8; 32] = &[0xcd; 32];
        let inline = Sge {
            address: inline.as_ptr() as u64,
            length: 32,
            lkey: 0,
        };
        send(
            left,
            &mut [
                SendRequest::write(1, Some(source.sge(0, 40_000)), target.remote(0)),
                SendRequest::write(2, Some(inline), target.remote(40_000)).inline(),
                SendRequest::write_with_immediate(3, None, target.remote(0), 0x0102_0304)
                    .signaled(),
            ],
        );
        let sent = complete(left.send_cq(), 1);
        assert_eq!((sent[0].wr_id(), sent[0].status()), (3, WcStatus::SUCCESS));
        assert_eq!(sent[0].opcode(), WcOpcode::RDMA_WRITE);
        let received = complete(right.recv_cq(), 1);
        assert_eq!(
            (received[0].wr_id(), received[0].qp_num()),
            (70, right.number())
        );
        assert_eq!(received[0].opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
        assert_eq!(received[0].immediate(), Some(0x0102_0304));
        assert_eq!(target.read(0, 40_000), vec![0xab; 40_000]);
        assert_eq!(target.read(40_000, 33), [vec![0xcd; 32], vec![0]].concat());

        // Back by a read, behind the inline bytes.
        send(
            right,
            &mut [SendRequest::read(4, Some(target.sge(50_000, 100)), source.remote(7)).signaled()],
        );
        let read = complete(right.send_cq(), 1);
        assert!(read[0].is_success(), "{read:?}");
        assert_eq!(read[0].opcode(), WcOpcode::RDMA_READ);
        assert_eq!(
            target.read(50_000, 101),
            [vec![0xab; 100], vec![0]].concat()
        );

        // A send into the buffer of a receive.
        receive(
            right,
            &mut [RecvRequest::new(71).with_sge(target.sge(60_000, 500))],
        );
        send(
            left,
            &mut [SendRequest::send_with_immediate(
                5,
                Some(source.sge(0, 300)),
                9,
            )],
        );
        let received = complete(right.recv_cq(), 1);
        assert_eq!(
            (received[0].byte_len(), received[0].immediate()),
            (300, Some(9))
        );
        assert_eq!(received[0].opcode(), WcOpcode::RECV);
        assert_eq!(
            target.read(60_000, 301),
            [vec![0xab; 300], vec![0]].concat()
        );
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn a_full_queue_accepts_what_fits() {
    on_each_device(|context| {
        let pair = Pair::new(&context);
        let mut chain = vec![RecvRequest::new(0); 100_000];
        // SAFETY: the requests name no memory.
        let error = unsafe { pair.left.post_recv(&mut chain) }.unwrap_err();
        let granted = pair.left.capabilities().max_recv_wr as usize;
        println!("{error} (granted {granted})");
        assert!(error.accepted >= granted && error.accepted < chain.len());
        assert_eq!(error.errno(), Some(libc::ENOMEM));
        // Just the accepted ones are there to be flushed.
        pair.left.to_error().unwrap();
        let flushed = complete_all(pair.left.recv_cq(), error.accepted);
        assert!(
            flushed
                .iter()
                .all(|wc| wc.status() == WcStatus::WR_FLUSH_ERR)
        );
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn a_wrong_key_fails_the_connection_which_can_be_made_anew() {
    on_each_device(|context| {
        let pair = Pair::new(&context);
        let Pair {
            left,
            right,
            source,
            target,
        } = &pair;
        receive(right, &mut [RecvRequest::new(70)]);
        let wrong = RemoteAddress {
            rkey: !target.region.rkey(),
            ..target.remote(0)
        };
        send(
            left,
            &mut [
                SendRequest::write(1, Some(source.sge(0, 64)), wrong).signaled(),
                SendRequest::write(2, Some(source.sge(0, 64)), target.remote(0)).signaled(),
            ],
        );
        let failed = complete(left.send_cq(), 2);
        println!("{failed:?}");
        assert_eq!(failed[0].status(), WcStatus::REM_ACCESS_ERR);
        assert_eq!(
            (failed[1].wr_id(), failed[1].status()),
            (2, WcStatus::WR_FLUSH_ERR)
        );
        assert_eq!(left.state().unwrap(), QueuePairState::ERR);
        assert_eq!(target.read(0, 64), [0; 64]);

        right.to_error().unwrap();
        assert_eq!(
            complete(right.recv_cq(), 1)[0].status(),
            WcStatus::WR_FLUSH_ERR
        );
        while let Some(event) = context.next_event().unwrap() {
            println!("{event}");
            assert!(event.qp_number().is_some());
        }

        left.to_reset().unwrap();
        right.to_reset().unwrap();
        assert_eq!(left.state().unwrap(), QueuePairState::RESET);
        pair.connect(&context);
        let attributes = left.query().unwrap();
        assert_eq!(attributes.state, QueuePairState::RTS);
        assert_eq!(
            (attributes.remote_qp, attributes.port),
            (right.number(), PORT)
        );
        send(
            left,
            &mut [SendRequest::write(3, Some(source.sge(0, 64)), target.remote(0)).signaled()],
        );
        assert!(complete(left.send_cq(), 1)[0].is_success());
        assert_eq!(target.read(0, 64), [0xab; 64]);
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn a_channel_wakes_who_waits_for_a_completion() {
    on_each_device(|context| {
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq_with_channel(16, &channel).unwrap();
        let pd = context.allocate_pd().unwrap();
        let options = QueuePairOptions {
            send_cq: &cq,
            recv_cq: &cq,
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            signal_all: false,
        };
        let qp = pd.create_qp(&options).unwrap();
        let access = Access::empty();
        qp.to_init(&InitAttributes {
            port: PORT,
            pkey_index: 0,
            access,
        })
        .unwrap();
        receive(&qp, &mut [RecvRequest::new(1)]);
        cq.request_notification(false).unwrap();
        assert!(channel.next_event().unwrap().is_none());
        qp.to_error().unwrap();
        let mut poll = libc::pollfd {
            fd: channel.fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the argument is one valid structure.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 20_000) }, 1);
        let event = channel.next_event().unwrap().unwrap();
        assert!(event.cq_id() == cq.id());
        drop(event);
        assert_eq!(complete(&cq, 1)[0].status(), WcStatus::WR_FLUSH_ERR);
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn mistakes_are_reported_with_their_usual_cause() {
    on_each_device(|context| {
        let pair = Pair::new(&context);
        let qp = &pair.left;
        qp.to_reset().unwrap();
        let init = InitAttributes {
            port: 99,
            pkey_index: 0,
            access: Access::empty(),
        };
        let error = qp.to_init(&init).unwrap_err();
        println!("{error}");
        assert!(error.to_string().contains("IBV_QPS_INIT"), "{error}");

        qp.to_init(&InitAttributes { port: PORT, ..init }).unwrap();
        let mut step = to_rtr(&context, &pair.right);
        if let Some(route) = &mut step.address.destination.route {
            route.sgid_index = 255;
            let error = qp.to_rtr(&step).unwrap_err();
            println!("{error}");
            assert!(error.to_string().contains("GID index 255"), "{error}");
        }

        let pd = context.allocate_pd().unwrap();
        // SAFETY: nothing is mapped there, so that nothing is registered.
        let error = unsafe { pd.register(std::ptr::dangling_mut(), SIZE, Access::LOCAL_WRITE) };
        let error = error.unwrap_err();
        println!("{error}");
        assert!(
            matches!(error.operation, Operation::Register { .. }),
            "{error}"
        );

        // SAFETY: nothing is registered, because there is no DMA-BUF.
        let error = unsafe { pd.register_dmabuf(0, 4096, 0, -1, Access::empty()) }.unwrap_err();
        println!("{error}");
        assert!(
            error.errno() == Some(libc::EBADF) || error.is_unsupported(),
            "{error}"
        );

        match qp.ece() {
            Ok(None) => println!("no ECE"),
            Ok(Some(ece)) => qp.set_ece(&ece).unwrap(),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
#[ignore = "needs an RDMA device; run with --include-ignored"]
fn nothing_is_left_of_a_device_that_was_used() {
    on_each_device(|context| {
        let device = context.device().clone();
        drop(context);
        let descriptors = || Path::new("/proc/self/fd").read_dir().unwrap().count();
        let before = descriptors();
        for _ in 0..20 {
            let context = device.open().unwrap();
            let pair = Pair::new(&context);
            let _channel = context.create_channel().unwrap();
            send(
                &pair.left,
                &mut [SendRequest::write(
                    1,
                    Some(pair.source.sge(0, SIZE)),
                    pair.target.remote(0),
                )],
            );
        }
        assert_eq!(descriptors(), before);
    });
}
