//! Why an entry point fails: NCCL's result code and one line for the log.

use std::borrow::Cow;
use std::fmt;

use ibnet::ErrorKind;

use crate::abi::NcclResult;

/// The failure of one call. One pointer, so that results fit into registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(Box<Details>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    code: NcclResult,
    text: Cow<'static, str>,
}

impl Fault {
    #[cold]
    fn new(code: NcclResult, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self(Box::new(Details { code, text }))
    }

    /// An argument is null or out of range.
    pub(crate) fn argument(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(NcclResult::INVALID_ARGUMENT, text)
    }

    /// A user's mistake, or something that the plugin does not offer.
    pub(crate) fn usage(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(NcclResult::INVALID_USAGE, text)
    }

    /// The system refused something.
    pub(crate) fn system(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(NcclResult::SYSTEM_ERROR, text)
    }

    /// The caller broke the contract of the plugin, or the plugin has a fault of its own.
    pub(crate) fn internal(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(NcclResult::INTERNAL_ERROR, text)
    }

    /// The same with more to read.
    pub(crate) fn with(mut self, more: &str) -> Self {
        self.0.text.to_mut().push_str(more);
        self
    }

    /// What NCCL gets.
    pub(crate) fn code(&self) -> NcclResult {
        self.0.code
    }

    /// What the user reads. One line.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.code().name())
    }
}

impl From<ibnet::Error> for Fault {
    #[cold]
    fn from(error: ibnet::Error) -> Self {
        let code = match error.kind() {
            // As NCCL's own transport has it.
            _ if matches!(error, ibnet::Error::BadHandle(_)) => NcclResult::INTERNAL_ERROR,
            // ncclTimeout is too new for most releases; what runs out of time here is the peer.
            ErrorKind::Remote | ErrorKind::Timeout => NcclResult::REMOTE_ERROR,
            ErrorKind::InvalidArgument => NcclResult::INVALID_ARGUMENT,
            ErrorKind::InvalidUsage => NcclResult::INVALID_USAGE,
            // `System`, and what the transport may tell apart in the future.
            _ => NcclResult::SYSTEM_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rubbish_for_a_handle_is_an_internal_error_as_in_nccl() {
        let fault = Fault::from(ibnet::Error::BadHandle("rubbish"));
        assert_eq!(fault.code(), NcclResult::INTERNAL_ERROR);
    }
}
