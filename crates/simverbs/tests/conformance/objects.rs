//! Objects that need each other, registering memory, and what a library or device may lack.

use std::io;
use std::os::fd::AsFd;

use ibnet_verbs::Access;

use crate::behaviour::Outcome::{Accepted, Errno, Failed, Is, Nothing};
use crate::behaviour::{Behaviour, Observed, Outcome, Place, answer, returned, success};
use crate::rig::{End, Memory, PORT, Setup, Stage, event_about};

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "what_is_in_use_cannot_be_destroyed",
        place: Place::Device,
        section: "11.2.1, 11.2.6; ibv_dealloc_pd(3), ibv_destroy_cq(3)",
        says: "A domain with a queue pair or a region, a completion queue with a queue pair, and a \
               channel with a completion queue are busy.",
        observe: busy,
        expected: &[
            Errno(libc::EBUSY),
            Errno(libc::EBUSY),
            Errno(libc::EBUSY),
            Errno(libc::EBUSY),
        ],
        rxe: None,
    },
    Behaviour {
        name: "remote_writing_needs_local_writing",
        place: Place::Device,
        section: "10.6.3, ibv_reg_mr(3)",
        says: "Registering for remote writes without local write access is refused.",
        observe: remote_without_local,
        expected: &[Errno(libc::EINVAL), Accepted],
        rxe: None,
    },
    Behaviour {
        name: "memory_that_is_not_there_cannot_be_registered",
        place: Place::Device,
        section: "ibv_reg_mr(3)",
        says: "A range that is not mapped, or of which only the first page is. (Which errno it \
               gives depends on fork support.)",
        observe: unmapped,
        expected: &[Failed, Failed],
        rxe: None,
    },
    Behaviour {
        name: "the_same_memory_can_be_registered_twice",
        place: Place::Device,
        section: "10.6.3",
        says: "The two regions are independent: one stays when the other goes.",
        observe: twice,
        expected: &[Is(true), Accepted, Accepted],
        rxe: None,
    },
    Behaviour {
        name: "what_is_no_dmabuf_is_not_registered_as_one",
        place: Place::Device,
        section: "ibv_reg_dmabuf_mr(3)",
        says: "No descriptor at all, and that of a pipe.",
        observe: no_dmabuf,
        expected: &[Failed, Failed],
        rxe: None,
    },
    Behaviour {
        name: "ece_works_or_is_not_supported",
        place: Place::Device,
        section: "ibv_query_ece(3), ibv_set_ece(3)",
        says: "Either what was queried can be set, or both verbs say that they are not supported.",
        observe: ece,
        expected: &[Is(true)],
        rxe: None,
    },
    Behaviour {
        name: "asking_for_events_does_not_wait",
        place: Place::Device,
        section: "ibv_get_async_event(3)",
        says: "With a non-blocking descriptor and nothing pending there is no event.",
        observe: no_event,
        expected: &[Nothing],
        rxe: None,
    },
    Behaviour {
        name: "ports_and_indices_are_bounded_in_queries",
        place: Place::Device,
        section: "ibv_query_port(3), ibv_query_gid(3), ibv_query_pkey(3)",
        says: "Ports 0 and one too many; a GID and a P_Key index behind the table; an unknown \
               P_Key.",
        observe: queries,
        expected: &[
            Errno(libc::EINVAL),
            Errno(libc::EINVAL),
            Failed,
            Failed,
            Failed,
        ],
        rxe: None,
    },
    Behaviour {
        name: "the_gid_table_and_single_queries_agree",
        place: Place::Device,
        section: "ibv_query_gid(3), ibv_query_gid_table(3)",
        says: "Every entry of the table is what a query for its index gives, and there is one.",
        observe: gids,
        expected: &[Is(true), Is(true)],
        rxe: None,
    },
];

fn busy(stage: &Stage) -> Observed {
    let context = stage.context();
    let functions = context.library().functions();
    let channel = context.create_channel()?;
    let cq = context.create_cq_with_channel(8, &channel)?;
    let setup = Setup::default();
    let end = End::with_queues(context, setup, context.create_cq(8)?, cq.clone())?;
    let empty_pd = context.allocate_pd()?;
    // SAFETY: the memory is kept longer than the region.
    let region = unsafe { empty_pd.register(end.memory.as_ptr(), 4096, Access::empty()) }?;
    // SAFETY: each call must be refused, which leaves the object as it is. If one is not, that is
    // noticed below before the object is used again.
    let outcomes = unsafe {
        [
            returned((functions.dealloc_pd)(end.pd.as_raw())),
            returned((functions.dealloc_pd)(empty_pd.as_raw())),
            returned((functions.destroy_cq)(cq.as_raw())),
            returned((functions.destroy_comp_channel)(channel.as_raw())),
        ]
    };
    if outcomes.contains(&Accepted) {
        // What was destroyed must not be destroyed again.
        std::mem::forget((end, cq, channel, region, empty_pd));
    }
    Ok(outcomes.to_vec())
}

fn remote_without_local(stage: &Stage) -> Observed {
    let pd = stage.context().allocate_pd()?;
    let memory = Memory::new(8192)?;
    // SAFETY: the memory is kept longer than the region.
    let register = |access| unsafe { pd.register(memory.as_ptr(), memory.length(), access) };
    Ok(vec![
        answer(register(Access::REMOTE_WRITE)),
        answer(register(Access::REMOTE_WRITE | Access::LOCAL_WRITE)),
    ])
}

fn unmapped(stage: &Stage) -> Observed {
    let pd = stage.context().allocate_pd()?;
    let memory = Memory::new(2 << 20)?;
    let (start, half) = (memory.as_ptr(), memory.length() / 2);
    // SAFETY: the second half is the memory's own, which is not used any more.
    if unsafe { libc::munmap(start.wrapping_add(half).cast(), half) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let register = |address: *mut u8, length| {
        // SAFETY: the memory is kept longer than the region, as far as it is there.
        success(unsafe { pd.register(address, length, Access::LOCAL_WRITE) })
    };
    Ok(vec![
        register(start.wrapping_add(half), 4096),
        register(start.wrapping_add(half - 4096), 8192),
    ])
}

fn twice(stage: &Stage) -> Observed {
    let pd = stage.context().allocate_pd()?;
    let memory = Memory::new(8192)?;
    let access = Access::LOCAL_WRITE;
    // SAFETY: the memory is kept longer than the region.
    let first = unsafe { pd.register(memory.as_ptr(), 8192, access) }?;
    // SAFETY: as above.
    let second = unsafe { pd.register(memory.as_ptr(), 8192, access) }?;
    let differ = first.lkey() != second.lkey();
    Ok(vec![
        Is(differ),
        answer(first.deregister()),
        answer(second.deregister()),
    ])
}

fn no_dmabuf(stage: &Stage) -> Observed {
    let pd = stage.context().allocate_pd()?;
    let (reader, _writer) = io::pipe()?;
    let access = Access::LOCAL_WRITE;
    // SAFETY: nothing is registered, because there is no DMA-BUF.
    let nothing = unsafe { pd.register_dmabuf(0, 4096, 0, -1, access) };
    // SAFETY: as above.
    let pipe = unsafe { pd.register_dmabuf(0, 4096, 0, reader.as_fd(), access) };
    Ok(vec![success(nothing), success(pipe)])
}

fn ece(stage: &Stage) -> Observed {
    let end = End::new(stage.context(), Setup::default())?;
    let agrees = match end.qp.ece()? {
        Some(ece) => end.qp.set_ece(&ece).is_ok(),
        None => end
            .qp
            .set_ece(&ibnet_verbs::Ece::default())
            .is_err_and(|error| error.is_unsupported()),
    };
    Ok(vec![Is(agrees)])
}

fn no_event(stage: &Stage) -> Observed {
    Ok(vec![event_about(stage.context(), |_| true)?])
}

fn queries(stage: &Stage) -> Observed {
    let context = stage.context();
    let port = context.port(PORT)?;
    let ports = context.attributes()?.phys_port_count;
    let outcomes: [Outcome; 5] = [
        answer(context.port(0)),
        answer(context.port(ports + 1)),
        success(context.gid(PORT, port.gid_table_len)),
        success(context.pkey(PORT, port.pkey_table_len)),
        success(context.pkey_index(PORT, 0x1234)),
    ];
    Ok(outcomes.to_vec())
}

fn gids(stage: &Stage) -> Observed {
    let context = stage.context();
    let entries = context.gid_table(PORT, &ibnet_verbs::Sysfs::default())?;
    let mut agree = true;
    for entry in entries.iter().filter(|entry| entry.unreadable.is_none()) {
        agree &= context.gid(PORT, entry.index)? == entry.gid;
    }
    Ok(vec![Is(!entries.is_empty()), Is(agree)])
}
