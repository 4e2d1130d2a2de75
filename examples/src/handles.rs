//! Handles as text, to be carried by hand.

use ibnet::Handle;

/// The handle in hexadecimal digits.
pub fn to_text(handle: &Handle) -> String {
    let bytes = handle.to_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The handle that [`to_text`] wrote.
///
/// # Errors
/// It is none.
pub fn from_text(text: &str) -> Result<Handle, String> {
    let text = text.trim();
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    let bytes = bytes.filter(|bytes| bytes.len() == Handle::SIZE);
    let bytes = bytes.ok_or_else(|| {
        let digits = 2 * Handle::SIZE;
        format!(
            "{text:?} is no handle: expected the {digits} hexadecimal digits that --listen prints"
        )
    })?;
    Handle::from_bytes(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_no_handle_is_refused() {
        for text in ["", "0", "zz", "0102", "ä", &"00".repeat(Handle::SIZE)] {
            assert!(from_text(text).is_err(), "{text}");
        }
        let problem = from_text("zz").unwrap_err();
        assert!(problem.contains("128 hexadecimal digits"), "{problem}");
    }
}
