//! Posting a chain of requests, and telling how much of it was accepted.

use std::io;
use std::os::raw::c_int;
use std::ptr;

use ibverbs_sys::ibv_qp;

use crate::conv;

/// A chain of requests that was not wholly accepted.
///
/// The first [`accepted`](Self::accepted) requests are in the queue and will be carried out.
/// None of the others is. (ibv_post_send(3): `bad_wr`.)
#[derive(Debug, thiserror::Error)]
#[error(
    "queue pair {qp:#x} accepted only {accepted} of the requests: {source}{}",
    cause(source)
)]
pub struct PostError {
    /// How many requests, from the first on, were accepted. 0 also if the driver did not say
    /// which request it did not accept.
    pub accepted: usize,
    /// The number of the queue pair.
    pub qp: u32,
    /// What the driver answered.
    pub source: io::Error,
}

impl PostError {
    /// The errno that the driver answered with, if it gave one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

fn cause(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => " (usually: the queue is full)",
        Some(libc::EINVAL) => {
            " (usually: the queue pair is not in a state for it, or a request has more elements \
             or inline bytes than the queue pair was granted)"
        }
        _ => "",
    }
}

/// A request that lies around its C counterpart.
///
/// # Safety
///
/// The C request is the first field.
pub(crate) unsafe trait Request: Sized {
    /// The C counterpart.
    type Raw;

    /// Points a request to the next of its chain (null for the last) and to its own element.
    ///
    /// # Safety
    ///
    /// `this` is valid for writing.
    unsafe fn link(this: *mut Self, next: *mut Self);
}

/// The posting operation of `ibv_context.ops`, for requests of C type `W`.
pub(crate) type Operation<W> =
    unsafe extern "C" fn(qp: *mut ibv_qp, first: *mut W, bad: *mut *mut W) -> c_int;

/// Links a chain in place and posts it in one call.
///
/// # Safety
///
/// The queue pair exists, `operation` is of its context, and the memory that the requests name is
/// as [`QueuePair`](crate::QueuePair) demands.
#[inline]
pub(crate) unsafe fn chain<R: Request>(
    qp: *mut ibv_qp,
    number: u32,
    chain: &mut [R],
    operation: Option<Operation<R::Raw>>,
) -> Result<(), PostError> {
    let length = chain.len();
    if length == 0 {
        return Ok(());
    }
    let first = chain.as_mut_ptr();
    for index in 0..length {
        // SAFETY: `index` and, where it is used, `index + 1` are within the chain. All pointers
        // come from `first`, so that the driver may walk the whole chain with them.
        unsafe {
            let last = index + 1 == length;
            let next = if last {
                ptr::null_mut()
            } else {
                first.add(index + 1)
            };
            R::link(first.add(index), next);
        }
    }
    let mut bad = ptr::null_mut();
    let result = match operation {
        // SAFETY: passed on to the caller.
        Some(operation) => unsafe { operation(qp, first.cast(), &raw mut bad) },
        None => libc::EOPNOTSUPP,
    };
    if result == 0 {
        return Ok(());
    }
    Err(PostError {
        accepted: accepted::<R>(first.addr(), bad.addr(), length),
        qp: number,
        source: conv::data_path_error(result),
    })
}

/// How many requests come before the one that was not accepted. 0 if the driver did not say
/// which, or named none of the chain.
#[cold]
fn accepted<R>(first: usize, bad: usize, length: usize) -> usize {
    let distance = bad.wrapping_sub(first);
    let index = distance / size_of::<R>();
    if distance.is_multiple_of(size_of::<R>()) && index < length {
        index
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_in_the_chain_tells_how_many_were_accepted() {
        type Request = [u8; 16];
        let first = 0x1000;
        assert_eq!(accepted::<Request>(first, first, 3), 0);
        assert_eq!(accepted::<Request>(first, first + 32, 3), 2);
        // None, behind the chain, before it, between two requests.
        for bad in [0, first + 48, first - 16, first + 8] {
            assert_eq!(accepted::<Request>(first, bad, 3), 0, "{bad:#x}");
        }
    }
}
