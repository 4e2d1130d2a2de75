//! Flushing, on host memory that is registered as if it was a GPU's.

use ibnet::raw::{Flush, RecvBuffer};
use ibnet::{Error, RecvConnection, Region, Wait};

use super::duet_everywhere;
use super::exercise::until_some;
use crate::cast::{Cast, ensure};
use crate::pattern::{fill, mismatch};
use crate::play::{Failure, Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        duet_everywhere("flush/what-was-received", &[flushing_receiver, sender]),
        duet_everywhere("flush/switched-off", &[disabled_receiver, sender]),
    ]
}

const SIZE: usize = 200_000;
const ROUNDS: u64 = 4;

/// Memory that plays a GPU's, and its registration.
struct DeviceMemory {
    region: Region,
    bytes: Box<[u8]>,
}

impl DeviceMemory {
    fn new(receiving: &RecvConnection) -> Result<Self, Failure> {
        let mut bytes = vec![0; SIZE].into_boxed_slice();
        // SAFETY: the allocation stays as long as the region, which is dropped first.
        let region = unsafe {
            receiving
                .registrar()
                .register_device_memory(bytes.as_mut_ptr(), SIZE)
        }?;
        Ok(Self { region, bytes })
    }

    /// Receives one message into it.
    fn receive(&mut self, receiving: &mut RecvConnection) -> Result<(), Failure> {
        let buffer = [RecvBuffer {
            data: self.bytes.as_mut_ptr(),
            capacity: SIZE,
            tag: 0,
            region: Some(&self.region),
        }];
        // SAFETY: nothing touches the bytes before the request is done, below.
        let request = unsafe { receiving.raw().irecv(&buffer) }?.ok_or("no room for a receive")?;
        until_some(|| receiving.raw().test(request))?;
        Ok(())
    }

    fn flush(&self, receiving: &mut RecvConnection) -> Result<Flush, Error> {
        // SAFETY: the registration stays until every flush is done, or the connection is dropped.
        unsafe {
            receiving
                .raw()
                .iflush(&[(self.bytes.as_ptr(), SIZE, &self.region)])
        }
    }
}

fn flushing_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let connected = cast.baseline(1)?;
    let mut memory = DeviceMemory::new(&receiving)?;
    for round in 0..ROUNDS {
        memory.receive(&mut receiving)?;
        // More than can be under way at once: some have to wait, none is lost.
        let mut flushes = Vec::new();
        let mut waited = 0_u64;
        while flushes.len() < 100 {
            match memory.flush(&mut receiving)? {
                Flush::Started(request) => flushes.push(request),
                Flush::NotReady => waited += 1,
                Flush::NotNeeded => return Err("device memory was not flushed".into()),
            }
            ensure(waited < 100_000_000, || "flushing hangs".to_owned())?;
        }
        for request in flushes {
            until_some(|| receiving.raw().test(request))?;
        }
        ensure(mismatch(&memory.bytes, round).is_none(), || {
            format!("wrong data after flush {round}")
        })?;
        let outstanding = receiving.outstanding();
        ensure(outstanding == 0, || {
            format!("{outstanding} flushes are left")
        })?;
    }
    flush_host_memory(&mut receiving)?;
    // What flushing needs was there from the beginning.
    let flushed = cast.resources()?;
    let (before_flushing, now) = (connected.queue_pairs(), flushed.queue_pairs());
    ensure(before_flushing == now, || {
        format!("flushing has made queue pairs: {before_flushing:?} before, {now:?} now")
    })?;
    drop(memory);
    receiving.close()?;
    cast.meet(1)?;
    cast.expect_resources(&before)
}

/// Nothing has to be done about host memory.
fn flush_host_memory(receiving: &mut RecvConnection) -> Result<(), Failure> {
    let mut bytes = vec![0_u8; 100];
    // SAFETY: the vector outlives the region, which is dropped at the end of this function first.
    let region = unsafe { receiving.registrar().register(bytes.as_mut_ptr(), 100) }?;
    // SAFETY: nothing is started, as is checked.
    let flush = unsafe { receiving.raw().iflush(&[(bytes.as_ptr(), 100, &region)]) }?;
    ensure(flush == Flush::NotNeeded, || {
        format!("host memory was flushed: {flush:?}")
    })
}

/// `NCCL_GDR_FLUSH_DISABLE`.
fn disabled_receiver(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport_with(|config| config.flush = false)?;
    let before = cast.baseline(1)?;
    let mut receiving = cast.accept_from(1, &transport)?;
    let connected = cast.baseline(1)?;
    let mut memory = DeviceMemory::new(&receiving)?;
    for round in 0..ROUNDS {
        memory.receive(&mut receiving)?;
        let flush = memory.flush(&mut receiving)?;
        ensure(flush == Flush::NotNeeded, || {
            format!("flushing was switched off: {flush:?}")
        })?;
        ensure(mismatch(&memory.bytes, round).is_none(), || {
            format!("wrong data in round {round}")
        })?;
    }
    let now = cast.resources()?.queue_pairs();
    ensure(now == connected.queue_pairs(), || {
        "queue pairs were made for flushing".to_owned()
    })?;
    drop(memory);
    receiving.close()?;
    cast.meet(1)?;
    cast.expect_resources(&before)
}

fn sender(cast: &mut Cast) -> Result<(), Failure> {
    let transport = cast.transport()?;
    let before = cast.baseline(0)?;
    let mut sending = cast.connect_to(0, &transport)?;
    cast.baseline(0)?;
    for round in 0..ROUNDS {
        let mut buffer = sending.registrar().buffer(SIZE)?;
        fill(&mut buffer, round);
        let ticket = sending.send(buffer, 0).wait()?;
        sending.finish(ticket).wait()?;
    }
    // The other end counts its queue pairs before it closes.
    cast.meet(0)?;
    sending.close()?;
    cast.expect_resources(&before)
}
