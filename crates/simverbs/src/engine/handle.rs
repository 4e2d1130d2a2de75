//! [`Handle`]: a C object, as the engine knows it.

use std::fmt;

/// The address of a C object that a program holds. The engine only passes it back to the program;
/// it never looks inside.
pub(crate) struct Handle<T>(*mut T);

impl<T> Handle<T> {
    pub(crate) const fn new(object: *mut T) -> Self {
        Self(object)
    }

    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: the pointer is not followed here.
unsafe impl<T> Send for Handle<T> {}
