//! Reading variables strictly: every failure names the variable, its value and what is allowed.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::{ConfigError, Partition};

pub(super) struct Reader<'a> {
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    /// The trimmed value, unless unset or empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = (self.variable)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The value through `parse`, which gives what is expected as its error; the default if unset.
    pub(super) fn parsed<T: Default>(
        &self,
        variable: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let Some(value) = self.text(variable) else {
            return Ok(T::default());
        };
        parse(&value).map_err(|expected| ConfigError {
            variable,
            value,
            expected,
        })
    }

    /// The value as something that the choice of GIDs is made of.
    pub(super) fn rule<T>(&self, variable: &'static str) -> Result<Option<T>, ConfigError>
    where
        T: FromStr<Err = gid::InvalidRule>,
    {
        self.parsed(variable, |text| {
            text.parse().map(Some).map_err(|invalid: gid::InvalidRule| {
                format!("{} in place of {:?}", invalid.expected, invalid.token)
            })
        })
    }

    /// 0 or 1.
    pub(super) fn flag(&self, variable: &'static str, default: bool) -> Result<bool, ConfigError> {
        Ok(self
            .number(variable, 0, 1)?
            .map_or(default, |number| number == 1))
    }

    /// The partition by index or by value, if either is given.
    pub(super) fn partition(&self) -> Result<Option<Partition>, ConfigError> {
        const INDEX: &str = "NCCL_IB_PKEY";
        const VALUE: &str = "NCCL_IB_PKEY_VALUE";
        let index = self
            .number(INDEX, 0, 65_535)?
            .and_then(|index| u16::try_from(index).ok());
        let value = self.parsed(VALUE, |text| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u16::from_str_radix(digits, 16),
                None => text.parse(),
            };
            match number {
                // Without the membership bit, 0 is no partition (InfiniBand specification, volume
                // 1, section 10.9.1).
                Ok(pkey) if pkey & 0x7fff != 0 => Ok(Some(pkey)),
                _ => Err("a P_Key from 1 to 0xffff, but not 0x8000".to_owned()),
            }
        })?;
        match (index, value) {
            (Some(_), Some(value)) => Err(ConfigError {
                variable: VALUE,
                value: format!("{value:#06x}"),
                expected: format!("it or {INDEX} (an index), not both"),
            }),
            (Some(index), None) => Ok(Some(Partition::Index(index))),
            (None, value) => Ok(value.map(Partition::Value)),
        }
    }

    pub(super) fn number(
        &self,
        variable: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>, ConfigError> {
        self.parsed(variable, |text| match text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(format!("a number from {least} to {most}")),
        })
    }

    /// A count; a negative number, where allowed, counts as unset.
    pub(super) fn count(
        &self,
        variable: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<u32>, ConfigError> {
        Ok(self
            .number(variable, least, most)?
            .and_then(|number| u32::try_from(number).ok()))
    }

    pub(super) fn milliseconds(
        &self,
        variable: &'static str,
        least: i64,
    ) -> Result<Option<Duration>, ConfigError> {
        let milliseconds = self.count(variable, least, 600_000)?;
        Ok(milliseconds.map(|number| Duration::from_millis(number.into())))
    }

    /// A number that fits into a byte; -1, where allowed, counts as unset.
    pub(super) fn byte(
        &self,
        variable: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<u8>, ConfigError> {
        Ok(self
            .number(variable, least, most)?
            .and_then(|number| u8::try_from(number).ok()))
    }
}

/// `first-last`, or one port.
pub(super) fn port_range(text: &str) -> Result<Option<RangeInclusive<u16>>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(Some(first..=last)),
        _ => Err("a range of ports, for instance 30000-30100".to_owned()),
    }
}
