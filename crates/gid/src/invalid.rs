//! [`InvalidRule`]: a part of a setting that means nothing.

use thiserror::Error;

/// A part of a setting that means nothing, and what was expected in its place.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{token:?}: expected {expected}")]
pub struct InvalidRule {
    /// The part as it was written.
    pub token: String,
    /// What is allowed there.
    pub expected: String,
}

impl InvalidRule {
    pub(crate) fn new(token: &str, expected: impl Into<String>) -> Self {
        Self {
            token: token.to_owned(),
            expected: expected.into(),
        }
    }
}

/// The parts of a list with commas, trimmed. A list of nothing has no parts; a part of nothing
/// between others is a slip of the pen that a caller's parser will name.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let is_empty = text.trim().is_empty();
    text.split(',').map(str::trim).filter(move |_| !is_empty)
}

/// A number in plain digits: no sign, no spaces, no leading zero.
pub(crate) fn plain_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain =
        text == "0" || text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0');
    is_plain.then(|| text.parse().ok()).flatten()
}
