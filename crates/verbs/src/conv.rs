//! How verbs report failure, decoded in one place.
//!
//! libibverbs has three styles: a null pointer with `errno`, an errno as the return value, and -1
//! with `errno`. `errno` is cleared before each call, so that a failure that sets nothing cannot
//! be mistaken for the error of an earlier call; not on the data path, where that is a tenth of a post.

use std::io;
use std::os::raw::{c_char, c_int};
use std::ptr::NonNull;

/// A call that gives an object, or null and `errno`.
pub(crate) fn pointer<T>(call: impl FnOnce() -> *mut T) -> io::Result<NonNull<T>> {
    clear_errno();
    NonNull::new(call()).ok_or_else(last_error)
}

/// A call that gives 0 or an errno.
///
/// Some providers return -1 and set `errno`, or return a negated errno, where the manual page
/// promises an errno. Both are understood.
#[inline]
pub(crate) fn returned(call: impl FnOnce() -> c_int) -> io::Result<()> {
    clear_errno();
    match call() {
        0 => Ok(()),
        errno @ 1.. => Err(io::Error::from_raw_os_error(errno)),
        negative => Err(negative_error(negative)),
    }
}

/// What a call of the data path gave that returns 0 (or more) or fails, once it has failed.
#[cold]
pub(crate) fn data_path_error(value: c_int) -> io::Error {
    match value {
        errno @ 1.. => io::Error::from_raw_os_error(errno),
        -1 => last_error(),
        negated => io::Error::from_raw_os_error(negated.saturating_neg()),
    }
}

/// A call that gives a non-negative number, or a negative one (-1 with `errno`, or a negated
/// errno).
#[inline]
pub(crate) fn count(call: impl FnOnce() -> isize) -> io::Result<usize> {
    clear_errno();
    let value = call();
    usize::try_from(value).map_err(|_| {
        // Errnos fit easily. A value below i32's range is as good as -1: it says nothing.
        negative_error(c_int::try_from(value).unwrap_or(-1))
    })
}

/// A call that takes something from a non-blocking descriptor: whether there was something.
/// Repeated when a signal interrupts it.
pub(crate) fn take(mut call: impl FnMut() -> c_int) -> io::Result<bool> {
    loop {
        match count(|| call() as isize) {
            Ok(_) => return Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
}

/// The bytes in a C array that ends at the first null, if there is one.
pub(crate) fn bytes_of(array: &[c_char]) -> Vec<u8> {
    array
        .iter()
        .take_while(|&&c| c != 0)
        .map(|&c| c as u8)
        .collect()
}

/// Forgets the error of an earlier call.
#[inline]
fn clear_errno() {
    // SAFETY: libc gives a valid pointer to the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = 0 };
}

#[cold]
fn negative_error(value: c_int) -> io::Error {
    let last = last_error();
    match last.raw_os_error() {
        Some(_) => last,
        None if value < -1 => io::Error::from_raw_os_error(value.saturating_neg()),
        None => last,
    }
}

/// The error in `errno`, or one that says there was none.
#[cold]
fn last_error() -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(0) | None => io::Error::other("the call failed without setting errno"),
        Some(_) => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ptr;

    use super::*;

    fn set_errno(errno: c_int) {
        // SAFETY: as in `clear_errno`.
        unsafe { *libc::__errno_location() = errno };
    }

    fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn null_has_the_errno_of_its_own_call() {
        let mut value = 5;
        let address = &raw mut value;
        assert_eq!(pointer(|| address).unwrap().as_ptr(), address);
        let null = |errno| {
            move || {
                set_errno(errno);
                ptr::null_mut::<u8>()
            }
        };
        assert_eq!(errno(pointer(null(libc::ENOMEM))), Some(libc::ENOMEM));
        set_errno(libc::EBUSY);
        assert_eq!(errno(pointer(ptr::null_mut::<u8>)), None);
    }

    #[test]
    fn a_returned_errno_is_not_looked_for_in_errno() {
        set_errno(libc::EBUSY);
        returned(|| 0).unwrap();
        let with_errno = |value, errno| {
            move || {
                set_errno(errno);
                value
            }
        };
        assert_eq!(
            errno(returned(with_errno(libc::EINVAL, libc::EBUSY))),
            Some(libc::EINVAL)
        );
        assert_eq!(
            errno(returned(with_errno(-1, libc::ENOMEM))),
            Some(libc::ENOMEM)
        );
        assert_eq!(errno(returned(|| -libc::EINVAL)), Some(libc::EINVAL));
        assert_eq!(errno(returned(|| c_int::MIN)), Some(c_int::MAX));
        set_errno(libc::EBUSY);
        assert_eq!(errno(returned(|| -1)), None);
    }

    #[test]
    fn taking_goes_on_after_a_signal_and_stops_at_nothing() {
        let mut answers = [libc::EINTR, libc::EINTR, libc::EAGAIN].into_iter();
        let nothing = take(|| {
            set_errno(answers.next().unwrap());
            -1
        });
        assert!(!nothing.unwrap());
        assert!(take(|| 0).unwrap());
        assert_eq!(errno(take(|| -libc::EIO)), Some(libc::EIO));
    }

    #[test]
    fn arrays_end_at_the_first_null_or_at_their_end() {
        assert_eq!(
            bytes_of(&[b'a' as c_char, -1, 0, b'b' as c_char]),
            [b'a', 0xff]
        );
        assert_eq!(bytes_of(&[b'a' as c_char; 2]), [b'a', b'a']);
    }

    #[test]
    fn a_count_is_not_negative() {
        set_errno(libc::EBUSY);
        assert_eq!(count(|| 0).unwrap(), 0);
        assert_eq!(count(|| 300).unwrap(), 300);
        assert_eq!(
            errno(count(|| -(libc::EOPNOTSUPP as isize))),
            Some(libc::EOPNOTSUPP)
        );
        assert_eq!(errno(count(|| -1)), None);
        assert_eq!(errno(count(|| isize::MIN)), None);
        let eagain = || {
            set_errno(libc::EAGAIN);
            -1
        };
        assert_eq!(errno(count(eagain)), Some(libc::EAGAIN));
    }
}
