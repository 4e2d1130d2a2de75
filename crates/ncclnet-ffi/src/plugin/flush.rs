//! Flushing: what was received into GPU memory becomes visible to the GPU.
//!
//! NCCL flushes after `test` has said that the receive is done, and `test`s the flush then, which has no
//! sizes. In API versions 2 and 3 it waits for it instead.

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use ibnet::{Flush, MAX_GROUP, Region};

use super::data::{self, Buffer, check_size, region_for};
use super::objects::RECEIVERS;
use crate::fault::Fault;
use crate::handles::{Kind, ObjectId, RequestToken};

/// The longest that anything here waits. A flush is a read of the own device: microseconds, or an
/// error when the queue pair has tried in vain for long enough, which takes half a minute by default and
/// for ever with `NCCL_IB_TIMEOUT=0`.
const LONGEST: Duration = Duration::from_secs(60);

/// `iflush`. None: what was received can be seen already, as in host memory.
///
/// "Try again", which NCCL does not take for an answer here, is waited for: there are more requests
/// outstanding than NCCL ever has, or the connection is about to fail, which takes a moment.
///
/// # Safety
/// The memory of the buffers must stay registered until `test` reports the request as done, or the
/// communicator is closed.
pub(crate) unsafe fn iflush(
    communicator: *mut c_void,
    group: &[Buffer],
) -> Result<Option<RequestToken>, Fault> {
    let id = ObjectId::from_pointer(communicator, Kind::Receiver)?;
    let mut waiting: Option<Waiting> = None;
    loop {
        // SAFETY: handed on to the caller.
        match unsafe { begin(id, group) }? {
            Flush::NotNeeded => return Ok(None),
            Flush::Started(request) => {
                let token = RequestToken::new(Kind::ReceiveRequest, id, request.into_raw());
                return Ok(Some(token));
            }
            Flush::NotReady => {}
        }
        waiting
            .get_or_insert_with(|| Waiting::within(LONGEST))
            .pause("a flush could not begin")?;
    }
}

/// `flush` of API versions 2 and 3, which waits for it.
///
/// # Safety
/// That of [`iflush`].
pub(crate) unsafe fn flush(communicator: *mut c_void, buffer: Buffer) -> Result<(), Fault> {
    // SAFETY: handed on to the caller.
    let Some(request) = unsafe { iflush(communicator, &[buffer]) }? else {
        return Ok(());
    };
    let mut waiting = Waiting::within(LONGEST);
    // A connection that fails meanwhile is an error of `test`.
    while !data::test(request.to_pointer(), |_, _| ())? {
        waiting.pause("a flush is not done")?;
    }
    Ok(())
}

/// One attempt.
///
/// # Safety
/// That of [`iflush`].
unsafe fn begin(id: ObjectId, group: &[Buffer]) -> Result<Flush, Fault> {
    // Entered for each attempt, so that nobody who deregisters memory has to wait for all of them.
    let mut receiver = RECEIVERS.enter(id)?;
    let (connection, inside) = receiver.parts();
    let mut count = 0;
    let mut buffers: [Option<(*const u8, usize, &Region)>; MAX_GROUP] = [None; MAX_GROUP];
    for buffer in group {
        check_size(buffer.data, buffer.size)?;
        if let Some(region) = region_for(buffer.size, buffer.region, inside)? {
            buffers[count] = Some((buffer.data.cast_const().cast(), buffer.size, region));
            count += 1;
        }
    }
    let Some(first) = buffers[0] else {
        // Nothing was received.
        return Ok(Flush::NotNeeded);
    };
    let buffers = buffers.map(|buffer| buffer.unwrap_or(first));
    // SAFETY: handed on to the caller.
    Ok(unsafe { connection.iflush(&buffers[..count]) }?)
}

/// Waits for something that takes microseconds if all is well, and does not take a processor for long if
/// it is not.
struct Waiting {
    begun: Instant,
    longest: Duration,
    looks: u32,
}

impl Waiting {
    fn within(longest: Duration) -> Self {
        Self {
            begun: Instant::now(),
            longest,
            looks: 0,
        }
    }

    /// Waits a little. An error once it has been too long: `what` has not come.
    fn pause(&mut self, what: &str) -> Result<(), Fault> {
        const LOOKS_BEFORE_SLEEPING: u32 = 1000;
        const SLEEP: Duration = Duration::from_micros(50);
        if self.begun.elapsed() > self.longest {
            return Err(Fault::system(format!(
                "{what} for {} s; is the device well?",
                self.longest.as_secs()
            )));
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS_BEFORE_SLEEPING {
            thread::yield_now();
        } else {
            thread::sleep(SLEEP);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::NcclResult;

    #[test]
    fn waiting_has_an_end_and_does_not_spin_until_then() {
        let begun = Instant::now();
        let mut waiting = Waiting::within(Duration::from_millis(50));
        let mut looks = 0;
        let fault = loop {
            match waiting.pause("nothing has come") {
                Ok(()) => looks += 1,
                Err(fault) => break fault,
            }
        };
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(fault.code(), NcclResult::SYSTEM_ERROR);
        assert!(fault.text().starts_with("nothing has come for 0 s"));
        // At most one look in 50 microseconds after the first thousand.
        assert!(looks <= 1000 + 50_000 / 50 + 10, "{looks}");
    }
}
