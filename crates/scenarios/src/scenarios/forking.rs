//! Forked children: they have the parent's memory, can use nothing of its connection, and disturb
//! nothing by dropping it.

use std::fs;

use ibnet::{Error, RecvConnection, SendConnection, Wait};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::duet;
use crate::cast::{Cast, ensure};
use crate::pattern::{fill, mismatch};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut children = duet("forking/children-disturb-nothing", &[receiver, sender]);
    children.needs_processes = Some("it forks");
    vec![children]
}

const SIZE: usize = 300_000;
const MESSAGES: u64 = 50;
const PAGE: usize = 4096;
const REGIONS: usize = 64;

/// What a child found.
mod found {
    pub(super) const NOTHING_WRONG: i32 = 0;
    pub(super) const IT_COULD_POST: i32 = 1;
    pub(super) const OTHER_BYTES: i32 = 2;
}

/// Has a forked child do something and end. It has no other thread, and prints nothing.
fn in_child(child: impl FnOnce() -> i32) -> Result<(), Failure> {
    // SAFETY: the child calls what does without other threads, and ends without unwinding.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let found = child();
            // SAFETY: ends this process; what it inherited is not its to tidy up.
            unsafe { libc::_exit(found) }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None)?;
            ensure(
                status == WaitStatus::Exited(child, found::NOTHING_WRONG),
                || format!("a forked child ended with {status:?}"),
            )
        }
    }
}

/// Whether work posted from a child is refused, with the reason.
fn is_refused<T>(posted: Result<T, Error>) -> bool {
    matches!(posted, Err(Error::Forked))
}

fn receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut receiving = Some(cast.accept_from(1, &transport)?);
    if let Some(receiving) = &mut receiving {
        keep_nothing_from_children(cast, receiving)?;
        receive(receiving, 0)?;
    }
    in_child(|| {
        let Some(mut receiving) = receiving.take() else {
            return found::IT_COULD_POST;
        };
        // SAFETY: an empty buffer has no memory.
        let posted = unsafe { receiving.raw().irecv(&[EMPTY]) };
        let registered = receiving.registrar().buffer(1);
        if !is_refused(posted) || !is_refused(registered) || receiving.close().is_err() {
            return found::IT_COULD_POST;
        }
        found::NOTHING_WRONG
    })?;
    cast.meet(1)?;
    if let Some(receiving) = &mut receiving {
        receive(receiving, MESSAGES)?;
    }
    drop(receiving);
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let mut sending = Some(cast.connect_to(0, &transport)?);
    if let Some(sending) = &mut sending {
        send(sending, 0)?;
    }
    in_child(|| {
        let Some(mut sending) = sending.take() else {
            return found::IT_COULD_POST;
        };
        // SAFETY: an empty message has no memory.
        let posted = unsafe { sending.raw().isend(std::ptr::null(), 0, 0, None) };
        if !is_refused(posted) || sending.close().is_err() {
            return found::IT_COULD_POST;
        }
        found::NOTHING_WRONG
    })?;
    cast.meet(0)?;
    if let Some(sending) = &mut sending {
        send(sending, MESSAGES)?;
    }
    cast.meet(0)?;
    drop(sending);
    cast.expect_resources(&before)
}

const EMPTY: ibnet::raw::RecvBuffer<'static> = ibnet::raw::RecvBuffer {
    data: std::ptr::null_mut(),
    capacity: 0,
    tag: 0,
    region: None,
};

fn receive(receiving: &mut RecvConnection, first: u64) -> Result<(), Failure> {
    for number in first..first + MESSAGES {
        let buffer = receiving.registrar().buffer(SIZE)?;
        let ticket = receiving.recv(buffer, 0).wait()?;
        let buffer = receiving.finish(ticket).wait()?;
        if let Some(place) = mismatch(&buffer, number) {
            return Err(format!("message {number} differs at {place}").into());
        }
    }
    Ok(())
}

fn send(sending: &mut SendConnection, first: u64) -> Result<(), Failure> {
    for number in first..first + MESSAGES {
        let mut buffer = sending.registrar().buffer(SIZE)?;
        fill(&mut buffer, number);
        let ticket = sending.send(buffer, 0).wait()?;
        sending.finish(ticket).wait()?;
    }
    Ok(())
}

/// Where the kernel copies pinned pages, registering splits no mapping, and a child reads what is
/// registered.
fn keep_nothing_from_children(cast: &Cast, receiving: &RecvConnection) -> Result<(), Failure> {
    if !cast.library()?.copies_on_fork() {
        println!("  this kernel does not copy pinned pages on fork");
        return Ok(());
    }
    // Large enough for a mapping of its own.
    let mut memory = vec![7_u8; (2 * REGIONS + 1) * PAGE];
    let before = mappings(&memory)?;
    let start = memory.as_mut_ptr();
    let first = start.wrapping_add(start.align_offset(PAGE));
    let registrar = receiving.registrar();
    let register = |number| {
        // SAFETY: the memory is freed after the regions are gone.
        unsafe { registrar.register(first.wrapping_add(2 * number * PAGE), PAGE) }
    };
    let regions: Vec<_> = (0..REGIONS).map(register).collect::<Result<_, _>>()?;
    let after = mappings(&memory)?;
    ensure(after == before, || {
        format!("{REGIONS} regions have made {before} mappings {after}")
    })?;
    in_child(|| match memory.iter().all(|byte| *byte == 7) {
        true => found::NOTHING_WRONG,
        false => found::OTHER_BYTES,
    })?;
    drop(regions);
    Ok(())
}

/// How many mappings of this process `memory` lies in.
fn mappings(memory: &[u8]) -> Result<usize, Failure> {
    let range = memory.as_ptr_range();
    let (start, end) = (range.start.addr(), range.end.addr());
    let mut count = 0;
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let addresses = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (first, last) = addresses.ok_or("a line of /proc/self/maps without addresses")?;
        let (first, last) = (
            usize::from_str_radix(first, 16)?,
            usize::from_str_radix(last, 16)?,
        );
        count += usize::from(first < end && start < last);
    }
    Ok(count)
}
