//! [`Form`]: how a setting is written in a variable of the environment.

use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use super::reading::{Reading, leading_number};

/// What makes a value of a text.
pub(super) type Read<T> = dyn Fn(&str) -> Result<T, String> + Send + Sync;

/// What tells something of a value.
pub(super) type Of<T, R> = dyn Fn(&T) -> R + Send + Sync;

/// How values of type `T` are written, and which of them are allowed.
pub(super) struct Form<T> {
    /// What is allowed, in words.
    pub(super) allowed: String,
    /// How NCCL reads a variable of this form.
    pub(super) reading: Reading,
    /// The value of a text that is not empty; or what was expected.
    pub(super) read: Box<Read<T>>,
    /// Whether a value, which a program may have set, is allowed.
    pub(super) allows: Box<Of<T, bool>>,
    /// A value as a user would write or name it.
    pub(super) show: Box<Of<T, String>>,
}

impl<T: 'static> Form<T> {
    /// The form of what is made of a `T` by `to`, and is one again by `from`.
    pub(super) fn map<U: 'static>(self, to: fn(T) -> U, from: fn(&U) -> T) -> Form<U> {
        let Self {
            read, allows, show, ..
        } = self;
        Form {
            allowed: self.allowed,
            reading: self.reading,
            read: Box::new(move |text| read(text).map(to)),
            allows: Box::new(move |value| allows(&from(value))),
            show: Box::new(move |value| show(&from(value))),
        }
    }

    /// The same, with the unit of its numbers.
    pub(super) fn unit(self, unit: &str) -> Self {
        let allowed = format!("{} {unit}", self.allowed);
        let (read, expected) = (self.read, allowed.clone());
        Self {
            allowed,
            read: Box::new(move |text| read(text).map_err(|_| expected.clone())),
            ..self
        }
    }

    /// The same, or none, which is called `words` and no variable asks for.
    pub(super) fn or_none(self, words: &'static str) -> Form<Option<T>> {
        let Self {
            read, allows, show, ..
        } = self;
        Form {
            allowed: self.allowed,
            reading: self.reading,
            read: Box::new(move |text| read(text).map(Some)),
            allows: Box::new(move |value| value.as_ref().is_none_or(&allows)),
            show: Box::new(move |value| value.as_ref().map_or_else(|| words.to_owned(), &show)),
        }
    }

    /// The same, where the default is called `words`.
    pub(super) fn unset(self, words: &'static str) -> Self
    where
        T: Default + PartialEq,
    {
        let show = self.show;
        Self {
            show: Box::new(move |value| match *value == T::default() {
                true => words.to_owned(),
                false => show(value),
            }),
            ..self
        }
    }
}

/// A number in a range.
pub(super) fn number<T>(range: RangeInclusive<T>) -> Form<T>
where
    T: Copy + Debug + Display + PartialOrd + TryFrom<i64> + Send + Sync + 'static,
{
    let allowed = format!("a number from {} to {}", range.start(), range.end());
    let (expected, within) = (allowed.clone(), range.clone());
    Form {
        allowed,
        reading: Reading::Number,
        read: Box::new(move |text| {
            match leading_number(text) {
                Some((number, "")) => T::try_from(number).ok(),
                _ => None,
            }
            .filter(|number| within.contains(number))
            .ok_or_else(|| expected.clone())
        }),
        allows: Box::new(move |number| range.contains(number)),
        show: Box::new(T::to_string),
    }
}

/// A number up to `most`, or -1 for none.
pub(super) fn number_or_none(most: u8) -> Form<Option<u8>> {
    number(-1..=i64::from(most)).map(
        |number| u8::try_from(number).ok(),
        |value| value.map_or(-1, i64::from),
    )
}

/// 0 or 1.
pub(super) fn flag() -> Form<bool> {
    let number = number::<u8>(0..=1).map(|number| number == 1, |flag| u8::from(*flag));
    Form {
        reading: Reading::Switch,
        ..number
    }
}

/// One of a few words, each with its value. The default may be none of them.
pub(super) fn choice<T>(reading: Reading, words: &'static [(&'static str, T)]) -> Form<T>
where
    T: Copy + PartialEq + Sync,
{
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let allowed = match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    };
    let expected = allowed.clone();
    Form {
        allowed,
        reading,
        read: Box::new(move |text| {
            let chosen = words.iter().find(|(word, _)| *word == text);
            chosen
                .map(|(_, value)| *value)
                .ok_or_else(|| expected.clone())
        }),
        allows: Box::new(|_| true),
        show: Box::new(move |value| {
            let shown = words.iter().find(|(_, other)| other == value);
            shown.map_or("any", |(word, _)| *word).to_owned()
        }),
    }
}

/// What `read` makes of a text in a grammar of its own.
pub(super) fn text<T: Debug>(
    allowed: &str,
    read: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
) -> Form<T> {
    Form {
        allowed: allowed.to_owned(),
        reading: Reading::Text,
        read: Box::new(read),
        allows: Box::new(|_| true),
        show: Box::new(|value| format!("{value:?}")),
    }
}
