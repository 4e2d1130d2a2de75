//! What each side does with buffers, by the raw calls.

use super::Buffer;
use super::tickets::ended;
use crate::connection::Side;
use crate::connection::raw::{self, RecvBuffer};
use crate::connection::requests::RequestId;
use crate::error::Error;

/// What a side does with buffers.
pub trait Transfer: Side {
    /// Posts a request for `buffers`, each with its tag; `None` if it is not possible now.
    ///
    /// # Safety
    /// The buffers live, and nothing touches them, until the request is done or the connection is gone.
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error>;

    /// Whether `request` is done; then `buffers` are as long as their messages.
    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        buffers: &mut [Buffer],
    ) -> Result<bool, Error>;
}

impl Transfer for raw::Sender {
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error> {
        let [(buffer, tag)] = buffers else {
            return Err(ended());
        };
        let (data, length) = (buffer.mapping.as_ptr(), buffer.length);
        // SAFETY: passed on to the caller.
        let request = unsafe { raw.isend_whole(data, length, *tag, &buffer.region) }?;
        // The holder of a ticket may not ask for it for long.
        raw.post_staged()?;
        Ok(request)
    }

    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        _buffers: &mut [Buffer],
    ) -> Result<bool, Error> {
        Ok(raw.test(request)?.is_some())
    }
}

impl Transfer for raw::Receiver {
    unsafe fn post(
        raw: &mut raw::Connection<Self>,
        buffers: &[(Buffer, i32)],
    ) -> Result<Option<RequestId>, Error> {
        let buffers: Vec<RecvBuffer<'_>> = buffers
            .iter()
            .map(|(buffer, tag)| RecvBuffer {
                data: buffer.mapping.as_ptr(),
                capacity: buffer.length,
                tag: *tag,
                region: Some(&buffer.region),
            })
            .collect();
        // SAFETY: passed on to the caller.
        unsafe { raw.irecv(&buffers) }
    }

    fn test(
        raw: &mut raw::Connection<Self>,
        request: RequestId,
        buffers: &mut [Buffer],
    ) -> Result<bool, Error> {
        raw.test_with(request, |position, size| {
            if let Some(buffer) = buffers.get_mut(position) {
                buffer.set_length(size as usize);
            }
        })
    }
}
