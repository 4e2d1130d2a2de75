//! What reading GID tables costs when a transport is opened.

use std::collections::BTreeMap;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::drivers::calls;
use crate::log::Log;
use crate::machine::Machine;

#[test]
fn only_entries_that_are_there_are_asked_for_their_interface() {
    // A table of 1024 places, as Soft-RoCE has it, of which two are taken.
    let mut description = String::from("net eth0 speed=25000\n");
    for place in 0..1024 {
        description +=
            &format!("file devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/{place}\n");
        description +=
            &format!("file devices/virtual/infiniband/rxe0/ports/1/gid_attrs/types/{place}\n");
    }
    description += "rdma rxe0 on virtual guid=c1 : eth raw:0:0 net=eth0,eth0 gid=10.1.2.3,10.1.2.4";
    let machine = Machine::new(&description);
    let fabric = machine.fabric();

    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    for folder in ["ndevs", "types"] {
        let folder = format!("class/infiniband/rxe0/ports/1/gid_attrs/{folder}");
        inotify
            .add_watch(&machine.path(&folder), AddWatchFlags::IN_OPEN)
            .unwrap();
    }
    // Lines are written only if they are read.
    Log::of_process();
    let transport = machine.open(&fabric, &[]).unwrap();
    // What the port does not say, its interface does.
    assert_eq!(transport.devices()[0].speed_mbps, 25_000);
    assert_eq!(calls("query_gid_table"), 1);
    // For the port's GUID, and for the line that says which GID is used.
    assert_eq!(calls("query_gid"), 2);

    let mut opened: BTreeMap<String, u32> = BTreeMap::new();
    while let Ok(events) = inotify.read_events() {
        for event in events {
            let name = event.name.unwrap_or_default();
            *opened
                .entry(name.to_string_lossy().into_owned())
                .or_default() += 1;
        }
    }
    let expected = [("0".to_owned(), 1), ("1".to_owned(), 1)];
    assert_eq!(opened, BTreeMap::from(expected));
}
