//! The kinds of settings: how each is read from a text, strictly, and how it is shown.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::reading::{Reading, leading_number};

/// How a variable sets a field of type [`Target`](Self::Target).
pub(super) trait Kind {
    type Target;

    /// What is allowed, in words; also for the error about anything else.
    fn range(&self) -> String;

    /// How NCCL reads a variable of this kind.
    fn reading(&self) -> Reading;

    /// Sets the field by a text that is not empty, or tells what was expected.
    fn set(&self, target: &mut Self::Target, text: &str) -> Result<(), String>;

    /// The field's value, as a user would write or name it.
    fn show(&self, target: &Self::Target) -> String;
}

/// The range of a kind that is for fields of type `T`, which tells what kind that is.
pub(super) fn range_of<T>(kind: &impl Kind<Target = T>) -> String {
    kind.range()
}

/// How NCCL reads a variable of a kind that is for fields of type `T`.
pub(super) fn reading_of<T>(kind: &impl Kind<Target = T>) -> Reading {
    kind.reading()
}

/// 0 or 1.
pub(super) struct Flag;

impl Kind for Flag {
    type Target = bool;

    fn range(&self) -> String {
        number::<u8>(0, 1).range()
    }

    fn reading(&self) -> Reading {
        Reading::Switch
    }

    fn set(&self, target: &mut bool, text: &str) -> Result<(), String> {
        let mut value = 0_u8;
        number(0, 1).set(&mut value, text)?;
        *target = value == 1;
        Ok(())
    }

    fn show(&self, target: &bool) -> String {
        u8::from(*target).to_string()
    }
}

/// 1 to switch something off.
pub(super) struct OffFlag;

impl Kind for OffFlag {
    type Target = bool;

    fn range(&self) -> String {
        Flag.range()
    }

    fn reading(&self) -> Reading {
        Reading::Switch
    }

    fn set(&self, target: &mut bool, text: &str) -> Result<(), String> {
        let mut is_off = !*target;
        Flag.set(&mut is_off, text)?;
        *target = !is_off;
        Ok(())
    }

    fn show(&self, target: &bool) -> String {
        Flag.show(&!*target)
    }
}

/// A number in a range. Those that do not fit the type, negative ones, leave the default.
pub(super) struct Number<T> {
    least: i64,
    most: i64,
    target: PhantomData<T>,
}

pub(super) const fn number<T>(least: i64, most: i64) -> Number<T> {
    Number {
        least,
        most,
        target: PhantomData,
    }
}

impl<T> Number<T> {
    fn read(&self, text: &str) -> Result<i64, String> {
        match leading_number(text) {
            Some((number, "")) if (self.least..=self.most).contains(&number) => Ok(number),
            _ => Err(self.words()),
        }
    }

    fn words(&self) -> String {
        format!("a number from {} to {}", self.least, self.most)
    }
}

impl<T: TryFrom<i64> + Display> Kind for Number<T> {
    type Target = T;

    fn range(&self) -> String {
        self.words()
    }

    fn reading(&self) -> Reading {
        Reading::Number
    }

    fn set(&self, target: &mut T, text: &str) -> Result<(), String> {
        if let Ok(number) = T::try_from(self.read(text)?) {
            *target = number;
        }
        Ok(())
    }

    fn show(&self, target: &T) -> String {
        target.to_string()
    }
}

/// A number, or a negative one for none.
pub(super) struct Optional<T> {
    pub(super) number: Number<T>,
    /// What none means.
    pub(super) none: &'static str,
}

impl<T: TryFrom<i64> + Display> Kind for Optional<T> {
    type Target = Option<T>;

    fn range(&self) -> String {
        self.number.words()
    }

    fn reading(&self) -> Reading {
        Reading::Number
    }

    fn set(&self, target: &mut Option<T>, text: &str) -> Result<(), String> {
        *target = T::try_from(self.number.read(text)?).ok();
        Ok(())
    }

    fn show(&self, target: &Option<T>) -> String {
        target
            .as_ref()
            .map_or_else(|| self.none.to_owned(), T::to_string)
    }
}

/// A time in seconds, or none.
pub(super) struct Seconds {
    pub(super) number: Number<u32>,
    /// What none means.
    pub(super) none: &'static str,
}

impl Kind for Seconds {
    type Target = Option<Duration>;

    fn range(&self) -> String {
        format!("{} seconds", self.number.words())
    }

    fn reading(&self) -> Reading {
        Reading::Number
    }

    fn set(&self, target: &mut Option<Duration>, text: &str) -> Result<(), String> {
        let seconds = self.number.read(text).map_err(|_| self.range())?;
        *target = Some(Duration::from_secs(seconds.unsigned_abs()));
        Ok(())
    }

    fn show(&self, target: &Option<Duration>) -> String {
        target.map_or_else(|| self.none.to_owned(), |time| time.as_secs().to_string())
    }
}

/// A time in milliseconds.
pub(super) struct Milliseconds(pub(super) Number<u32>);

impl Kind for Milliseconds {
    type Target = Duration;

    fn range(&self) -> String {
        format!("{} milliseconds", self.0.words())
    }

    fn reading(&self) -> Reading {
        Reading::Number
    }

    fn set(&self, target: &mut Duration, text: &str) -> Result<(), String> {
        *target =
            Duration::from_millis(self.0.read(text).map_err(|_| self.range())?.unsigned_abs());
        Ok(())
    }

    fn show(&self, target: &Duration) -> String {
        target.as_millis().to_string()
    }
}

/// One of a few words, each with its value. The default may be none of them.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Target = T;

    fn range(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => words.concat(),
        }
    }

    fn reading(&self) -> Reading {
        let is_number = |(word, _): &(&str, T)| leading_number(word).is_some();
        match self.0.iter().all(is_number) {
            true => Reading::Number,
            false => Reading::Word,
        }
    }

    fn set(&self, target: &mut T, text: &str) -> Result<(), String> {
        let chosen = self.0.iter().find(|(word, _)| *word == text);
        *target = chosen.ok_or_else(|| self.range())?.1;
        Ok(())
    }

    fn show(&self, target: &T) -> String {
        let shown = self.0.iter().find(|(_, value)| value == target);
        shown.map_or("any", |(word, _)| *word).to_owned()
    }
}

/// A path.
pub(super) struct Path {
    /// What is used without.
    pub(super) none: &'static str,
}

impl Kind for Path {
    type Target = Option<PathBuf>;

    fn range(&self) -> String {
        "a path".to_owned()
    }

    fn reading(&self) -> Reading {
        Reading::Text
    }

    fn set(&self, target: &mut Option<PathBuf>, text: &str) -> Result<(), String> {
        *target = Some(PathBuf::from(text));
        Ok(())
    }

    fn show(&self, target: &Option<PathBuf>) -> String {
        match target {
            None => self.none.to_owned(),
            Some(path) => path.display().to_string(),
        }
    }
}

/// Something with a grammar of its own, whose default is the absence of it.
pub(super) struct Grammar<T> {
    pub(super) range: &'static str,
    pub(super) reading: Reading,
    /// What its absence means.
    pub(super) none: &'static str,
    pub(super) parse: fn(&str) -> Result<T, String>,
}

impl<T: Default + PartialEq + Debug> Kind for Grammar<T> {
    type Target = T;

    fn range(&self) -> String {
        self.range.to_owned()
    }

    fn reading(&self) -> Reading {
        self.reading
    }

    fn set(&self, target: &mut T, text: &str) -> Result<(), String> {
        *target = (self.parse)(text)?;
        Ok(())
    }

    fn show(&self, target: &T) -> String {
        if *target == T::default() {
            self.none.to_owned()
        } else {
            format!("{target:?}")
        }
    }
}

/// A part of a larger setting.
pub(super) struct PartOf<T> {
    pub(super) range: &'static str,
    pub(super) reading: Reading,
    pub(super) set: fn(&mut T, &str) -> Result<(), String>,
    pub(super) show: fn(&T) -> String,
}

impl<T> Kind for PartOf<T> {
    type Target = T;

    fn range(&self) -> String {
        self.range.to_owned()
    }

    fn reading(&self) -> Reading {
        self.reading
    }

    fn set(&self, target: &mut T, text: &str) -> Result<(), String> {
        (self.set)(target, text)
    }

    fn show(&self, target: &T) -> String {
        (self.show)(target)
    }
}

/// A rule for choosing GIDs. Of a list, the part that means nothing is named; a whole value is known.
pub(super) fn rule<T: FromStr<Err = ibnet_gid::InvalidRule>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|invalid: ibnet_gid::InvalidRule| {
        if invalid.token.trim() == text.trim() {
            invalid.expected
        } else {
            format!("{} in place of {:?}", invalid.expected, invalid.token)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn set<K: Kind>(kind: &K, mut target: K::Target, text: &str) -> Result<K::Target, String> {
        kind.set(&mut target, text).map(|()| target)
    }

    #[test]
    fn flags_are_0_or_1() {
        assert!(set(&Flag, false, "1").unwrap() && !set(&Flag, true, "0").unwrap());
        assert!(!set(&OffFlag, true, "1").unwrap() && set(&OffFlag, false, "0").unwrap());
        for text in ["2", "-1", "true", "01x"] {
            assert_eq!(set(&Flag, true, text).unwrap_err(), "a number from 0 to 1");
        }
        assert_eq!(
            (Flag.show(&true), OffFlag.show(&true)),
            ("1".into(), "0".into())
        );
    }

    #[test]
    fn negative_numbers_leave_the_default_or_mean_none() {
        assert_eq!(set(&number::<u8>(-1, 15), 3, "-1"), Ok(3));
        assert_eq!(set(&number::<u8>(-1, 15), 3, "15"), Ok(15));
        assert!(set(&number::<u8>(-1, 15), 3, "16").is_err());
        assert!(set(&number::<u8>(-1, 15), 3, "-2").is_err());
        let class = Optional {
            number: number::<u8>(-1, 255),
            none: "0",
        };
        assert_eq!(set(&class, Some(3), "-1"), Ok(None));
        assert_eq!(set(&class, None, "255"), Ok(Some(255)));
        assert_eq!(
            (class.show(&None), class.show(&Some(7))),
            ("0".into(), "7".into())
        );
    }

    #[test]
    fn numbers_are_whole_texts() {
        for (text, value) in [("0x68", 104), ("0150", 104), ("+7", 7)] {
            assert_eq!(set(&number::<u8>(0, 255), 0, text), Ok(value));
        }
        for text in ["08", "0x", "7 s", "x", ""] {
            assert!(set(&number::<u8>(0, 255), 0, text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn choices_are_listed() {
        let choice = Choice(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(set(&choice, 1, "c"), Ok(3));
        assert_eq!(set(&choice, 1, "d").unwrap_err(), "a, b or c");
        assert_eq!(
            (choice.show(&2), choice.show(&9)),
            ("b".into(), "any".into())
        );
    }
}
