//! `iflush`, and `flush` of API versions 2 and 3: what was received into GPU memory becomes visible to the GPU.
//!
//! NCCL flushes after `test` has said that the receive is done, and `test`s the flush then, which has no
//! sizes.

use std::ffi::{c_int, c_void};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use ibnet::raw::Flush;
use ibnet::{MAX_GROUP, Region};

use crate::abi::NcclResult;
use crate::data::{check_size, group_len, is_done};
use crate::fault::Fault;
use crate::guard::{Out, Size, array, guard};
use crate::handles::{Handle, Kind, Request};
use crate::objects::{RECEIVERS, region_for};

/// The longest that anything here waits. A flush is a read of the own device: microseconds, or an
/// error when the queue pair has tried in vain for long enough, which takes half a minute by default and
/// for ever with `NCCL_IB_TIMEOUT=0`.
const LONGEST: Duration = Duration::from_secs(60);

/// What is to be flushed: address, bytes and the registration.
type Range<'a> = (*const u8, usize, &'a Region);

/// `iflush` of API version 5 and later.
pub(crate) unsafe extern "C" fn iflush(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("iflush", || {
        let out = Out::handle(request, "request")?;
        let count = group_len(count)?;
        // SAFETY: arrays of `count` elements: the contract of `iflush`.
        let (data, sizes) = unsafe { (array(data, count, "data")?, array(sizes, count, "sizes")?) };
        // SAFETY: as above.
        let regions = unsafe { array(regions, count, "mhandles")? };
        // SAFETY: NCCL keeps memory registered until its flush is done or the communicator closed.
        if let Some(request) = unsafe { begin(communicator, data, sizes, regions) }? {
            out.set(request.to_pointer());
        }
        Ok(())
    })
}

/// `iflush` of API version 4: one buffer.
pub(crate) unsafe extern "C" fn iflush_v4(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    let (mut data, mut size, mut region) = (data, size, region);
    // SAFETY: the contract of `iflush`; a group of one in variables of this function.
    unsafe { iflush(communicator, 1, &mut data, &mut size, &mut region, request) }
}

/// `flush` of API versions 2 and 3, which waits for it.
pub(crate) unsafe extern "C" fn flush_v2(
    communicator: *mut c_void,
    data: *mut c_void,
    size: c_int,
    region: *mut c_void,
) -> NcclResult {
    guard("flush", || {
        // SAFETY: as in `iflush`.
        let Some(request) = (unsafe { begin(communicator, &[data], &[size], &[region]) })? else {
            return Ok(());
        };
        // A connection that fails meanwhile is an error of `test`.
        wait(LONGEST, "a flush is not done", || {
            Ok(is_done(request.to_pointer(), |_, _| ())?.then_some(()))
        })
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
) -> Result<Option<Request>, Fault> {
    let handle = Handle::of(Kind::Receiver, communicator)?;
    // SAFETY: one call at a time uses a communicator's data path, none that is being closed.
    let connection = unsafe { RECEIVERS.get(handle)?.connection() };
    let mut ranges: [Option<Range<'_>>; MAX_GROUP] = [None; MAX_GROUP];
    let mut count = 0;
    for ((data, size), region) in data.iter().zip(sizes).zip(regions) {
        let size = size.bytes()?;
        check_size(*data, size)?;
        // SAFETY: NCCL deregisters no memory that a call uses.
        if let Some(region) = unsafe { region_for(size, *region, communicator) }? {
            ranges[count] = Some((data.cast_const().cast(), size, region));
            count += 1;
        }
    }
    let Some(first) = ranges[0] else {
        // Nothing was received.
        return Ok(None);
    };
    let ranges = ranges.map(|range| range.unwrap_or(first));
    wait(LONGEST, "a flush could not begin", || {
        // SAFETY: as this function requires.
        Ok(match unsafe { connection.iflush(&ranges[..count]) }? {
            Flush::NotNeeded => Some(None),
            Flush::Started(request) => {
                let request = request.into_raw();
                Some(Some(Request::new(Kind::ReceiveRequest, handle, request)))
            }
            Flush::NotReady => None,
        })
    })
}

/// Asks `outcome` until there is one, at most for `longest`: for something that takes microseconds if all is well.
/// It does not take a processor for long if it is not.
fn wait<T>(
    longest: Duration,
    what: &str,
    mut outcome: impl FnMut() -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    const SLEEP: Duration = Duration::from_micros(50);
    let begun = Instant::now();
    let backoff = Backoff::new();
    loop {
        if let Some(outcome) = outcome()? {
            return Ok(outcome);
        }
        if begun.elapsed() > longest {
            let seconds = longest.as_secs();
            return Err(Fault::system(format!(
                "{what} for {seconds} s; is the device well?"
            )));
        }
        if backoff.is_completed() {
            thread::sleep(SLEEP);
        } else {
            backoff.snooze();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_has_an_end_and_does_not_spin_until_then() {
        let begun = Instant::now();
        let mut looks = 0;
        let fault = wait::<()>(Duration::from_millis(50), "nothing has come", || {
            looks += 1;
            Ok(None)
        });
        assert!(begun.elapsed() >= Duration::from_millis(50));
        let fault = fault
            .err()
            .map(|fault| (fault.code(), fault.text().to_owned()));
        let text = "nothing has come for 0 s; is the device well?".to_owned();
        assert_eq!(fault, Some((NcclResult::SYSTEM_ERROR, text)));
        // At most one look in 50 microseconds after the first ones.
        assert!(looks <= 20 + 50_000 / 50, "{looks}");
    }
}
