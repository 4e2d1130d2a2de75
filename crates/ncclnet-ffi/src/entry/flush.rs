//! `iflush`, and `flush` of API versions 2 and 3: what was received into GPU memory becomes visible to the GPU.
//!
//! NCCL flushes after `test` has said that the receive is done, and `test`s the flush then, which has no
//! sizes.

use std::ffi::{c_int, c_void};
use std::thread;
use std::time::{Duration, Instant};

use ibnet::raw::Flush;
use ibnet::{MAX_GROUP, Region};

use super::data::{check_size, group_len, is_done, region_for};
use super::{Out, array, bytes};
use crate::abi::NcclResult;
use crate::fault::Fault;
use crate::guard::guard;
use crate::handles::{Kind, ObjectId, RequestToken};
use crate::plugin::objects::RECEIVERS;

/// The longest that anything here waits. A flush is a read of the own device: microseconds, or an
/// error when the queue pair has tried in vain for long enough, which takes half a minute by default and
/// for ever with `NCCL_IB_TIMEOUT=0`.
const LONGEST: Duration = Duration::from_secs(60);

/// What is to be flushed: address, bytes and the registration.
type Range<'a> = (*const u8, usize, &'a Region);

/// `iflush` of API version 5 and later.
pub(crate) unsafe extern "C" fn iflush_v5(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("iflush", || {
        let out = Out::new(request, "request")?;
        let count = group_len(count)?;
        // SAFETY: arrays of `count` elements: the contract of `iflush`.
        let (data, sizes) = unsafe { (array(data, count, "data")?, array(sizes, count, "sizes")?) };
        // SAFETY: as above.
        let regions = unsafe { array(regions, count, "mhandles")? };
        // SAFETY: NCCL keeps memory registered until its flush is done or the communicator closed.
        if let Some(token) = unsafe { begin(communicator, data, sizes, regions) }? {
            out.set(token.to_pointer());
        }
        Ok(())
    })
}

/// `flush` of API versions 2 and 3, which waits for it.
pub(crate) unsafe extern "C" fn flush_v2(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
) -> NcclResult {
    guard("flush", || {
        // SAFETY: as in `iflush_v5`.
        let Some(request) = (unsafe { begin(communicator, &[data], &[size], &[region]) })? else {
            return Ok(());
        };
        let mut waiting = Waiting::within(LONGEST);
        // A connection that fails meanwhile is an error of `test`.
        while !is_done(request.to_pointer(), |_, _| ())? {
            waiting.pause("a flush is not done")?;
        }
        Ok(())
    })
}

/// Starts a flush. None: what was received can be seen already, as in host memory.
///
/// "Try again", which NCCL does not take for an answer here, is waited for: there are more requests
/// outstanding than NCCL ever has, or the connection is about to fail, which takes a moment.
///
/// # Safety
/// The memory stays registered until `test` reports the request as done, or the communicator is closed.
unsafe fn begin(
    communicator: *mut c_void,
    data: &[*mut c_void],
    sizes: &[c_int],
    regions: &[*mut c_void],
) -> Result<Option<RequestToken>, Fault> {
    let id = ObjectId::from_pointer(communicator, Kind::Receiver)?;
    let mut ranges: [Option<Range<'_>>; MAX_GROUP] = [None; MAX_GROUP];
    let mut count = 0;
    for ((data, size), region) in data.iter().zip(sizes).zip(regions) {
        let size = bytes(*size)?;
        check_size(*data, size)?;
        if let Some(region) = region_for(size, *region, communicator)? {
            ranges[count] = Some((data.cast_const().cast(), size, region));
            count += 1;
        }
    }
    let Some(first) = ranges[0] else {
        // Nothing was received.
        return Ok(None);
    };
    let ranges = ranges.map(|range| range.unwrap_or(first));
    let mut waiting = Waiting::within(LONGEST);
    loop {
        // SAFETY: of the communicator as in `isend`; of the memory as this function requires.
        let flush = unsafe {
            RECEIVERS.with(id, |receiver| {
                receiver.connection().iflush(&ranges[..count])
            })
        }??;
        match flush {
            Flush::NotNeeded => return Ok(None),
            Flush::Started(request) => {
                let request = request.into_raw();
                return Ok(Some(RequestToken::new(Kind::ReceiveRequest, id, request)));
            }
            Flush::NotReady => waiting.pause("a flush could not begin")?,
        }
    }
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
