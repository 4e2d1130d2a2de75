//! Several fabrics in one process.

use std::thread;

use ibnet_simverbs::{DeviceSpec, Fabric, Target, When};

use crate::pairs::{Pair, Setup, open_all, two_roce};

fn names(fabric: &Fabric) -> Vec<String> {
    let devices = fabric.library().devices().unwrap();
    devices
        .iter()
        .map(|device| device.name().to_owned())
        .collect()
}

#[test]
fn fabrics_do_not_see_each_other() {
    let build = |name: &str| {
        Fabric::builder()
            .device(DeviceSpec::roce(name))
            .build()
            .unwrap()
    };
    let (one, two) = (build("one"), build("two"));
    assert_eq!(names(&one), ["one"]);
    assert_eq!(names(&two), ["two"]);
    let context = open_all(&one).remove(0);
    assert_eq!(one.live_objects().contexts, 1);
    assert!(two.live_objects().is_empty());
    two.hca("two").unwrap().port(1).unwrap().down();
    assert!(context.next_event().unwrap().is_none());
}

#[test]
fn fabrics_come_and_go_in_parallel() {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..100 {
                    let name = format!("sim{thread}-{round}");
                    let device = DeviceSpec::roce(name.clone());
                    let fabric = Fabric::builder().device(device).build().unwrap();
                    assert_eq!(names(&fabric), [name]);
                }
            });
        }
    });
}

/// What was opened keeps the fabric; a bare library does not.
#[test]
fn a_fabric_lives_as_long_as_what_was_opened_on_it() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .build()
        .unwrap();
    let library = fabric.library();
    let devices = library.devices().unwrap();
    drop(fabric);
    assert_eq!(library.devices().unwrap().len(), 1);
    let context = devices[0].open().unwrap();
    drop(devices);
    context.create_cq(4).unwrap();
    drop(context);
    assert!(library.devices().unwrap().is_empty());
    library.init_fork().unwrap();

    let fabric = two_roce().build().unwrap();
    let library = fabric.library();
    let fault = fabric.faults().hang_work(Target::Any, When::ALWAYS);
    drop(fabric);
    assert_eq!(library.devices().unwrap().len(), 2, "the fault keeps it");
    drop(fault);
    assert!(library.devices().unwrap().is_empty());
}

#[test]
fn live_objects_are_counted_one_by_one() {
    let setup = Setup::default();
    let pair = Pair::free_running(&setup);
    let live = pair.fabric.live_objects();
    assert_eq!(
        (live.contexts, live.pds, live.mrs, live.cqs, live.qps),
        (2, 2, 2, 2, 2)
    );
    assert_eq!((live.device_lists, live.channels), (1, 0));
    let devices = pair.fabric.library().devices().unwrap();
    assert_eq!(pair.fabric.live_objects().device_lists, 2);
    drop(devices);
    assert_eq!(pair.fabric.live_objects().device_lists, 1);
    let channel = pair.a.context.create_channel().unwrap();
    assert_eq!(pair.fabric.live_objects().channels, 1);
    drop(channel);
    pair.finish();
}
