//! The one error of this program: a message for the person at the terminal.
//!
//! Nothing here is handled by kind, so there is no enum: a failure says what was being done, on
//! what, and where it helps, what usually causes it.

use std::fmt;

/// A message that ends the subcommand.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// Result of anything that can end the subcommand.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this text.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Adds what was being done to an error from the system.
pub(crate) trait Context<T> {
    /// Puts `what()` and a colon before the error's own text.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", what())))
    }
}

/// Returns from the function with a [`Failure`] of the formatted text.
macro_rules! fail {
    ($($argument:tt)*) => {
        return Err($crate::failure::Failure::new(format!($($argument)*)))
    };
}
pub(crate) use fail;
