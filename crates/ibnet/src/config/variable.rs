//! [`Variable`]: a variable of the environment: how it is written, how NCCL reads it, and what it sets.
//!
//! A job that runs with NCCL must not lose its network here: what NCCL lives with is a warning. NCCL reads
//! numbers by `ncclLoadParam`: `strtoll` with base 0, as far as the text is a number; what begins with none, or
//! is too large, counts as unset. It checks no range: a number that is too large for its field loses its upper
//! bits on the way to the device, which is no one's wish, so it counts as unset here.

use std::ops::RangeInclusive;

/// A variable that sets a field of `C`, the configuration, or a part of one.
pub(super) struct Variable<C> {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
    pub(super) form: Form<C>,
    /// What the default is called; nothing where its value says it.
    pub(super) unset: &'static str,
    /// The value of the field, for errors of programs.
    pub(super) debug: fn(&C) -> String,
    /// How it differs in NCCL.
    #[cfg(test)]
    pub(super) differs: &'static str,
    /// What it is for; nothing where the documentation of the field says it.
    #[cfg(test)]
    pub(super) meaning: &'static str,
}

/// How a value is written, and which are allowed; and what gets and sets it. The value is not changed by what
/// means nothing.
pub(super) enum Form<C> {
    /// A number in a range, and its unit if it has one. None is a value that no variable asks for.
    Number(
        RangeInclusive<i64>,
        &'static str,
        fn(&C) -> Option<i64>,
        fn(&mut C, i64),
    ),
    /// 0 or 1.
    Switch(fn(&C) -> bool, fn(&mut C, bool)),
    /// A text in a grammar of its own, which the words tell, or what was expected in place of a part.
    Text(
        Reading,
        &'static str,
        fn(&mut C, &str) -> Result<(), String>,
    ),
}

/// How NCCL reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Number,
    Switch,
    /// One of a few words.
    Word,
    NumberOrList,
    /// A text that NCCL takes as it is, or a variable that NCCL does not have.
    Text,
}

impl<C: Default> Variable<C> {
    /// How NCCL reads it.
    pub(super) fn reading(&self) -> Reading {
        match self.form {
            _ if !self.name.starts_with("NCCL_") => Reading::Text,
            Form::Number(..) => Reading::Number,
            Form::Switch(..) => Reading::Switch,
            Form::Text(reading, ..) => reading,
        }
    }

    /// Whether NCCL goes on as if the variable were unset when its value is not allowed.
    pub(super) fn is_lenient(&self, text: &str) -> bool {
        match self.reading() {
            Reading::Number | Reading::Switch | Reading::Word => true,
            Reading::NumberOrList => !is_list(text),
            Reading::Text => false,
        }
    }

    /// What is allowed, in words.
    pub(super) fn allowed(&self) -> String {
        match &self.form {
            Form::Number(range, unit, ..) => {
                let gap = if unit.is_empty() { "" } else { " " };
                format!(
                    "a number from {} to {}{gap}{unit}",
                    range.start(),
                    range.end()
                )
            }
            Form::Switch(..) => "a number from 0 to 1".to_owned(),
            Form::Text(_, allowed, _) => (*allowed).to_owned(),
        }
    }

    /// Sets what a text means; and tells why, if that is not what it says.
    ///
    /// # Errors
    /// What was expected. Nothing is changed then.
    pub(super) fn set(&self, config: &mut C, text: &str) -> Result<Option<&'static str>, String> {
        let reads_as_nccl = self.name.starts_with("NCCL_");
        let number = || {
            read_number(text)
                .filter(|(_, why)| reads_as_nccl || why.is_none())
                .ok_or_else(|| self.allowed())
        };
        match &self.form {
            Form::Number(range, _, _, set) => {
                let (number, why) = number()?;
                if !range.contains(&number) {
                    return Err(self.allowed());
                }
                set(config, number);
                Ok(why)
            }
            Form::Switch(_, set) => {
                let (number, why) = number()?;
                set(config, number != 0);
                let is_other = !(0..=1).contains(&number);
                Ok(if is_other {
                    Some("any number but 0 means 1, as in NCCL")
                } else {
                    why
                })
            }
            Form::Text(reading, _, set) => match reading {
                Reading::NumberOrList if is_list(text) => set(config, text).map(|()| None),
                Reading::Number | Reading::NumberOrList => {
                    let (number, why) = number()?;
                    set(config, &number.to_string()).map(|()| why)
                }
                _ => set(config, text).map(|()| None),
            },
        }
    }

    /// The value as a user would write or name it.
    pub(super) fn show(&self, config: &C) -> String {
        let debug = (self.debug)(config);
        if !self.unset.is_empty() && debug == (self.debug)(&C::default()) {
            return self.unset.to_owned();
        }
        match &self.form {
            Form::Number(_, _, get, _) => get(config).map_or(debug, |number| number.to_string()),
            Form::Switch(get, _) => u8::from(get(config)).to_string(),
            Form::Text(..) => debug,
        }
    }

    /// Whether a value that a program has set is a number that is not allowed.
    pub(super) fn is_out_of_range(&self, config: &C) -> bool {
        match &self.form {
            Form::Number(range, _, get, _) => {
                get(config).is_some_and(|number| !range.contains(&number))
            }
            _ => false,
        }
    }
}

/// A list has an index for each device: `mlx5_0=3`.
fn is_list(text: &str) -> bool {
    text.contains('=')
}

/// The number that NCCL reads; and why, if that is not what the text says.
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
fn leading_number(text: &str) -> Option<(i64, &str)> {
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
