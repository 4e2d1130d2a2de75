//! How NCCL reads a variable of its own, and so which values it lives with.
//!
//! A job that runs with such a value must not lose its network here: what NCCL lives with is a
//! warning. NCCL reads numbers by `ncclLoadParam`: `strtoll` with base 0, as far as the text is a
//! number; what begins with none, or is too large, counts as unset. It checks no range: a number
//! that is too large for its field loses its upper bits on the way to the device, which is no one's
//! wish, so it counts as unset here.

use std::borrow::Cow;

/// How NCCL reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Number,
    Switch,
    Word,
    NumberOrList,
    Text,
}

/// What a text is read as; and why, if that is not what it says.
type Read<'a> = (Cow<'a, str>, Option<&'static str>);

impl Reading {
    /// The text that NCCL's reading comes to, for the parsers of [`form`](super::form). None if
    /// the text is none that is read so.
    pub(super) fn read(self, text: &str) -> Option<Read<'_>> {
        match self {
            Self::Word | Self::Text => Some((text.into(), None)),
            Self::NumberOrList if is_list(text) => Some((text.into(), None)),
            Self::Number | Self::NumberOrList => {
                let (number, why) = read_number(text)?;
                Some((number.to_string().into(), why))
            }
            Self::Switch => Some(match read_number(text)? {
                (0, why) => ("0".into(), why),
                (1, why) => ("1".into(), why),
                _ => ("1".into(), Some("any number but 0 means 1, as in NCCL")),
            }),
        }
    }

    /// Whether NCCL goes on as if the variable were unset when its value is not allowed.
    pub(super) fn is_lenient(self, text: &str) -> bool {
        match self {
            Self::Number | Self::Switch | Self::Word => true,
            Self::NumberOrList => !is_list(text),
            Self::Text => false,
        }
    }
}

/// A list has an index for each device: `mlx5_0=3`.
fn is_list(text: &str) -> bool {
    text.contains('=')
}

fn read_number(text: &str) -> Option<(i64, Option<&'static str>)> {
    let (number, rest) = leading_number(text)?;
    let is_octal = text.trim_start_matches(['+', '-']).starts_with('0')
        && !text.contains(['x', 'X'])
        && text.parse() != Ok(number);
    let why = if !rest.is_empty() {
        Some("what follows the number is not read, as in NCCL")
    } else if is_octal {
        Some("a leading 0 makes a number octal, as in NCCL")
    } else {
        None
    };
    Some((number, why))
}

/// The number that a text begins with, and what follows it: `strtoll` with base 0. `0x` begins a
/// hexadecimal one, another `0` an octal one.
pub(super) fn leading_number(text: &str) -> Option<(i64, &str)> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
        .filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let length = digits.find(|c: char| !c.is_digit(radix));
    let (digits, rest) = digits.split_at(length.unwrap_or(digits.len()));
    let number = i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtoll_does() {
        for (text, read) in [
            ("104", Some((104, ""))),
            ("0x68", Some((104, ""))),
            ("0X68", Some((104, ""))),
            ("0150", Some((104, ""))),
            ("+7", Some((7, ""))),
            ("-1", Some((-1, ""))),
            ("-0x10", Some((-16, ""))),
            ("0", Some((0, ""))),
            ("00", Some((0, ""))),
            ("08", Some((0, "8"))),
            ("019", Some((1, "9"))),
            ("0x", Some((0, "x"))),
            ("0x-1", Some((0, "x-1"))),
            ("7 s", Some((7, " s"))),
            ("7é", Some((7, "é"))),
            ("9223372036854775807", Some((i64::MAX, ""))),
            ("-9223372036854775808", Some((i64::MIN, ""))),
            ("9223372036854775808", None),
            ("--1", None),
            ("+-1", None),
            ("x68", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(leading_number(text), read, "{text:?}");
        }
    }
}
