//! What the verbs crate makes of a device: the ways to its GID table, what a table says of network
//! interfaces, errors that name their cause, and what is left of a device that was used.

use std::fs;
use std::path::Path;

use ibnet_verbs::{
    Access, Context, Error, Functions, GidTableEntry, InitAttributes, Library, LinkLayer,
    Operation, PortState, SendRequest, Sysfs,
};

use crate::behaviour::Outcome::{Is, Nothing};
use crate::behaviour::{Behaviour, Failure, Observed, Outcome, Place};
use crate::rig::{Devices, End, PORT, Pair, SIZE, Setup, Stage, ends, event_about};

const fn of_device(
    name: &'static str,
    says: &'static str,
    observe: fn(&Stage) -> Observed,
    expected: &'static [Outcome],
) -> Behaviour {
    Behaviour {
        name,
        place: Place::Device,
        section: "`verbs`",
        says,
        observe,
        expected,
        rxe: None,
    }
}

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    of_device(
        "a_device_answers_all_queries",
        "The attributes of a device, of its active port and of its first P_Key make sense \
         together; its sysfs directory is there; errors name the port and the index.",
        queries,
        &[Is(true), Is(true), Is(true), Is(true), Is(true), Nothing],
    ),
    of_device(
        "all_ways_to_the_gid_table_agree",
        "At once, entry by entry, and from sysfs, as with older libraries: the table is the same.",
        ways,
        &[Is(true), Is(true)],
    ),
    of_device(
        "the_gid_table_describes_the_interfaces",
        "Each interface is one of this network namespace, of the number that the kernel gives; \
         entries of RoCE have one.",
        interfaces,
        &[Is(true), Is(true)],
    ),
    Behaviour {
        place: Place::Connection,
        ..of_device(
            "errors_name_what_was_tried_and_the_usual_cause",
            "A port that is not there, an empty GID index, memory that is not mapped and a DMA-BUF \
             that is none.",
            mistakes,
            &[Is(true), Is(true), Is(true), Is(true)],
        )
    },
    of_device(
        "nothing_is_left_of_a_device_that_was_used",
        "A device is opened, connected with itself, used and closed 20 times: the process has as \
         many descriptors as before.",
        leftovers,
        &[Is(true)],
    ),
];

fn queries(stage: &Stage) -> Observed {
    let context = stage.context();
    let device = context.attributes()?;
    let port = context.port(PORT)?;
    let is_sized = device.phys_port_count >= 1
        && device.max_qp_wr > 0
        && device.max_cqe > 0
        && device.max_sge > 0
        && device.node_guid == context.device().guid();
    let is_active = port.state == PortState::ACTIVE
        && port.max_message_size > 0
        && port.active_mtu <= port.max_mtu
        && port.active_mtu.bytes().is_some();
    let pkey = context.pkey(PORT, 0)?;
    let is_found = context.pkey_index(PORT, pkey)? == 0;
    let is_there = context.device().sysfs_path().join("ports/1").is_dir();
    context.port_speed(PORT)?;
    let are_named = context
        .port(200)
        .is_err_and(|error| error.operation == Operation::QueryPort { port: 200 })
        && context
            .gid(PORT, 100_000)
            .is_err_and(|error| matches!(error.operation, Operation::QueryGid { .. }));
    Ok(vec![
        Is(is_sized),
        Is(is_active),
        Is(is_found),
        Is(is_there),
        Is(are_named),
        event_about(context, |_| true)?,
    ])
}

fn table(context: &Context) -> Result<Vec<GidTableEntry>, Error> {
    context.gid_table(PORT, &Sysfs::default())
}

fn ways(stage: &Stage) -> Observed {
    let context = stage.context();
    let one_by_one = Functions {
        query_gid_table: None,
        ..*context.library().functions()
    };
    let from_sysfs = Functions {
        query_gid_ex: None,
        ..one_by_one
    };
    let expected = table(context)?;
    let mut outcomes = Vec::new();
    for functions in [one_by_one, from_sysfs] {
        // SAFETY: the functions are the library's own.
        let library = unsafe { Library::from_functions(functions) };
        let same = Devices::open_named(&library, context.device_name())?;
        outcomes.push(Is(!expected.is_empty() && table(&same)? == expected));
    }
    Ok(outcomes)
}

fn interfaces(stage: &Stage) -> Observed {
    let context = stage.context();
    let (mut described, mut are_right) = (0, true);
    for entry in table(context)? {
        let (None, Some(netdev)) = (&entry.unreadable, &entry.netdev) else {
            continue;
        };
        let (Some(number), Some(name)) = (netdev.index, &netdev.name) else {
            are_right = false;
            continue;
        };
        let told = fs::read_to_string(Path::new("/sys/class/net").join(name).join("ifindex"))?;
        are_right &= told.trim() == number.to_string();
        are_right &= netdev.up.is_some() && netdev.kind.is_some();
        described += 1;
    }
    // InfiniBand has no interfaces.
    let is_ethernet = context.port(PORT)?.link_layer == LinkLayer::Ethernet;
    Ok(vec![Is(are_right), Is((described > 0) == is_ethernet)])
}

fn mistakes(stage: &Stage) -> Observed {
    let [a, b] = [0, 1].map(|side: usize| End::new(&stage.contexts[side], Setup::default()));
    let (a, b) = (a?, b?);
    let says = |result: Result<(), Error>, part: &str| {
        Is(result.is_err_and(|error| error.to_string().contains(part)))
    };
    let port = InitAttributes {
        port: 99,
        ..a.init_attributes()
    };
    let port = says(a.qp.to_init(&port), "IBV_QPS_INIT");

    a.to_init()?;
    let mut step = a.ready_to_receive(&b)?;
    let gid = match &mut step.address.destination.route {
        Some(route) => {
            route.sgid_index = 255;
            says(a.qp.to_rtr(&step), "GID index 255")
        }
        None => Is(true),
    };

    let pd = stage.context().allocate_pd()?;
    // SAFETY: nothing is mapped there, so that nothing is registered.
    let region = unsafe { pd.register(std::ptr::dangling_mut(), SIZE, Access::LOCAL_WRITE) };
    let region = says(region.map(drop), &format!("{SIZE} bytes"));
    // SAFETY: nothing is registered, because there is no DMA-BUF.
    let dmabuf = unsafe { pd.register_dmabuf(0, 4096, 0, -1, Access::empty()) };
    let dmabuf =
        dmabuf.is_err_and(|error| error.errno() == Some(libc::EBADF) || error.is_unsupported());
    Ok(vec![port, gid, region, Is(dmabuf)])
}

fn leftovers(stage: &Stage) -> Observed {
    let descriptors = || -> Result<usize, Failure> { Ok(fs::read_dir("/proc/self/fd")?.count()) };
    let before = descriptors()?;
    for _ in 0..20 {
        let context = stage.context().device().open()?;
        let pair = Pair {
            a: End::new(&context, Setup::default())?,
            b: End::new(&context, Setup::default())?,
        };
        pair.connect()?;
        let Pair { a, b } = &pair;
        let _channel = context.create_channel()?;
        a.send(&mut [SendRequest::write(1, Some(a.sge(0, 8)), b.remote(0)).signaled()])?;
        ends(&a.send_cq, 1)?;
    }
    Ok(vec![Is(descriptors()? == before)])
}
