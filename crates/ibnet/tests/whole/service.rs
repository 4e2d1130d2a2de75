//! Service level and traffic class: what the application asks for, what the environment says, and what
//! the queue pairs of both ends get.

use ibnet::ConnectOptions;
use ibnet_simverbs::{DeviceSpec, Fabric, QueuePairView};
use tracing::Level;

use crate::rig::log::Log;
use crate::rig::{End, build, flushing, join_with, message};

/// Service level and traffic class of a queue pair; none without a global route.
fn service(view: &QueuePairView) -> (u8, Option<u8>) {
    let address = view.attributes.address;
    let class = address.destination.route.map(|route| route.traffic_class);
    (address.service_level, class)
}

/// What the queue pairs of both ends have when the application asks for `wish`: those of the sender,
/// those of the receiver, and those for flushing; and the log of connecting twice.
fn services(
    fabric: &Fabric,
    wish: Option<u8>,
    sender: &[(&str, &str)],
    receiver: &[(&str, &str)],
) -> ([(u8, Option<u8>); 3], Vec<String>) {
    let sender = End::of_variables(fabric, "s", sender);
    let receiver = End::of_variables(fabric, "r", receiver);
    let options = ConnectOptions::default().traffic_class(wish);
    let log = Log::of(Level::INFO);
    let connections = tracing::subscriber::with_default(log.clone(), || {
        [(), ()].map(|()| {
            let (mut sending, mut receiving) = join_with(&sender, &receiver, options);
            message(&mut sending, &mut receiving, 100, 100);
            (sending, receiving)
        })
    });
    let of = |name: &str| fabric.hca(name).unwrap();
    let same = |views: Vec<QueuePairView>| {
        let all: Vec<_> = views.iter().map(service).collect();
        assert!(
            !all.is_empty() && all.iter().all(|one| *one == all[0]),
            "{all:?}"
        );
        all[0]
    };
    let loops = flushing(&of("r0"));
    let mut data = of("r0").queue_pairs();
    data.retain(|view| !loops.contains(view));
    let found = [same(of("s0").queue_pairs()), same(data), same(loops)];
    drop(connections);
    (found, log.lines())
}

#[test]
fn a_traffic_class_is_the_service_level_on_infiniband_where_there_is_such_a_level() {
    // Pitfall 43: never cut to four bits, nor given to a device that refuses it.
    const NONE: &[(&str, &str)] = &[];
    let sl = |level| [("NCCL_IB_SL", level)];
    for (wish, sender, expected, warning) in [
        (None, NONE, 0, None),
        (Some(0), NONE, 0, None),
        (Some(5), NONE, 5, None),
        (Some(15), NONE, 15, None),
        (Some(16), NONE, 0, Some("there are 0 to 15")),
        (Some(200), NONE, 0, Some("there are 0 to 15")),
        (Some(200), &sl("-1"), 0, Some("there are 0 to 15")),
        (None, &sl("3"), 3, None),
        (Some(3), &sl("3"), 3, None),
        (Some(5), &sl("3"), 3, Some("`service_level` wins")),
        (Some(5), &sl("0"), 0, Some("`service_level` wins")),
    ] {
        let fabric = build([DeviceSpec::infiniband("s0"), DeviceSpec::infiniband("r0")]);
        // The sender decides for both directions, whatever the receiver's environment says.
        let (found, log) = services(&fabric, wish, sender, &sl("9"));
        assert_eq!(found, [(expected, None); 3], "{wish:?}, {sender:?}");
        let used = format!("service level {expected}, ");
        for direction in ["INFO sending ", "INFO receiving "] {
            let line = log.iter().find(|line| line.starts_with(direction));
            assert!(line.unwrap().contains(&used), "{log:?}");
        }
        // Once for each class, not for each connection.
        let warned: Vec<_> = log.iter().filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(warned.len(), usize::from(warning.is_some()), "{warned:?}");
        if let (Some(why), Some(class)) = (warning, wish) {
            for part in [
                format!("traffic class {class} is asked for"),
                why.to_owned(),
                format!("service level {expected} is used"),
            ] {
                assert!(warned[0].contains(&part), "{warned:?}");
            }
        }
    }
}

#[test]
fn a_traffic_class_is_no_service_level_on_ethernet() {
    for (wish, sender, receiver, data, announcements) in [
        (None, &[][..], &[][..], (0, 0), (0, 0)),
        (Some(5), &[], &[], (0, 5), (0, 5)),
        (Some(200), &[], &[], (0, 200), (0, 200)),
        (Some(5), &[("NCCL_IB_TC", "106")], &[], (0, 106), (0, 106)),
        (Some(5), &[("NCCL_IB_SL", "3")], &[], (3, 5), (3, 5)),
        // The sender decides for both directions, but for the announcements' own setting.
        (
            Some(5),
            &[("NCCL_IB_FIFO_TC", "192")],
            &[("NCCL_IB_TC", "106"), ("NCCL_IB_SL", "9")],
            (0, 5),
            (0, 5),
        ),
        (
            Some(5),
            &[],
            &[("NCCL_IB_FIFO_TC", "192")],
            (0, 5),
            (0, 192),
        ),
    ] {
        let fabric = build([DeviceSpec::roce("s0"), DeviceSpec::roce("r0")]);
        let (found, log) = services(&fabric, wish, sender, receiver);
        let [data, announcements] =
            [data, announcements].map(|(level, class)| (level, Some(class)));
        // Flushing never leaves the receiver's device: it takes what its other queue pairs take.
        assert_eq!(found, [data, announcements, announcements], "{wish:?}");
        assert!(!log.iter().any(|line| line.starts_with("WARN")), "{log:?}");
    }
}

#[test]
fn the_log_says_which_traffic_class_mlx5_really_sends() {
    let build = |spec: fn(&'static str) -> DeviceSpec| {
        let builder = Fabric::builder().device(spec("s0")).device(spec("r0"));
        builder.sysfs().build().unwrap()
    };
    let set = |fabric: &Fabric, device: &str, text: &str| {
        let folder = fabric.sysfs_root().unwrap().join("class/infiniband");
        let folder = folder.join(device).join("tc/1");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("traffic_class"), text).unwrap();
    };
    let line_of = |log: &[String], direction: &str| {
        let line = log.iter().find(|line| line.starts_with(direction));
        line.unwrap().clone()
    };
    let fabric = build(DeviceSpec::roce);
    set(
        &fabric,
        "s0",
        "Global tclass=236\nsrc_ip=10.0.0.1,tclass=12\n",
    );
    // What is set is what is asked for: nothing to be told.
    set(&fabric, "r0", "Global tclass=106\n");
    let tc = [("NCCL_IB_TC", "106")];
    let (_, log) = services(&fabric, None, &tc, &[]);
    let sending = line_of(&log, "INFO sending ");
    let told = "traffic class 106; but s0:1 sends 236 (";
    assert!(sending.contains(told), "{sending}");
    assert!(sending.contains("s0/tc/1/traffic_class)"), "{sending}");
    let receiving = line_of(&log, "INFO receiving ");
    assert!(receiving.ends_with("traffic class 106"), "{receiving}");

    // Nothing that can be understood, or is set at all.
    for text in ["", "src_ip=10.0.0.1,tclass=12\n", "Global tclass=300\n"] {
        let fabric = build(DeviceSpec::roce);
        set(&fabric, "s0", text);
        let (_, log) = services(&fabric, None, &tc, &[]);
        let sending = line_of(&log, "INFO sending ");
        assert!(sending.ends_with("traffic class 106"), "{sending}");
    }
    // It is of RoCE.
    let fabric = build(DeviceSpec::infiniband);
    set(&fabric, "s0", "Global tclass=236\n");
    let (_, log) = services(&fabric, None, &[], &[]);
    assert!(!log.concat().contains("sends 236"), "{log:?}");
}
