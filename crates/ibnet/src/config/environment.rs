//! What becomes of the variables that are set.
//!
//! Of our own, a value that means nothing is an error that names the variable, the value and what is
//! allowed; of NCCL's, a value that NCCL lives with is a warning that says what is used instead. An
//! empty value counts as unset.

use std::fmt;

use super::misspelt::Unknown;
use super::settings::{Config, ConfigError, Partition, Row, VARIABLES};

impl Config {
    /// The defaults, changed by the process's environment, as
    /// [`from_variables`](Self::from_variables) does it.
    ///
    /// What is named like a setting and is none is told of, too: as a warning if it begins with
    /// `IBNET_` or is like the name of a setting. Any other `NCCL_IB_…` may be meant for NCCL's own
    /// transport.
    ///
    /// # Errors
    /// The first variable whose value is not allowed and cannot be lived without.
    pub fn from_env() -> Result<Self, ConfigError> {
        let config = Self::from_variables(&|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })?;
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for unknown in Unknown::among(names) {
            match unknown.is_mistake() {
                true => tracing::warn!("{unknown}"),
                false => tracing::info!("{unknown}"),
            }
        }
        Ok(config)
    }

    /// The defaults, changed by what `variable` gives for each name. The log has a line for each that
    /// is set: a warning if something else is used in its place.
    ///
    /// # Errors
    /// The first variable whose value is not allowed and cannot be lived without.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let (config, sets) = read(variable)?;
        for set in sets {
            match set.is_replaced {
                true => tracing::warn!("{set}"),
                false => tracing::info!("{set}"),
            }
        }
        Ok(config)
    }
}

/// A variable that is set.
pub(super) struct Set {
    pub(super) variable: &'static str,
    value: String,
    /// Whether something else is used in its place.
    pub(super) is_replaced: bool,
    became: String,
}

/// For the log: `NCCL_IB_TIMEOUT=14 (default 20)`, `NCCL_IB_TIMEOUT=200: 20 is used instead; expected a
/// number from 0 to 31`.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}{}", self.variable, self.value, self.became)
    }
}

/// The settings, and the variables that are set.
pub(super) fn read(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Config, Vec<Set>), ConfigError> {
    let mut config = Config::default();
    let mut sets = Vec::new();
    for row in VARIABLES.iter() {
        let Some(value) = variable(row.variable) else {
            continue;
        };
        let value = value.trim().to_owned();
        let before = (row.show)(&config);
        let why = match apply(row, &mut config, &value) {
            Ok(why) => why,
            Err(expected) => {
                return Err(ConfigError {
                    setting: row.variable,
                    value,
                    expected,
                });
            }
        };
        let now = (row.show)(&config);
        sets.push(Set {
            variable: row.variable,
            value,
            is_replaced: why.is_some(),
            became: match why {
                Some(why) => format!(": {now} is used instead; {why}"),
                None if before == now => " (the default)".to_owned(),
                None => format!(" (default {before})"),
            },
        });
    }
    let index = sets.iter_mut().find(|set| set.variable == "NCCL_IB_PKEY");
    if let (Partition::Value(_), Some(index)) = (config.partition, index) {
        index.is_replaced = false;
        index.became = " is not used: NCCL_IB_PKEY_VALUE is set and wins".to_owned();
    }
    Ok((config, sets))
}

/// Sets what `value` means; and tells why something else is used in its place, if so.
///
/// # Errors
/// What was expected, if it means nothing and NCCL would not go on without it. Nothing is changed
/// then.
fn apply(row: &Row, config: &mut Config, value: &str) -> Result<Option<String>, String> {
    if value.is_empty() {
        return Ok(Some("an empty value counts as unset".to_owned()));
    }
    let expected = match row.reading.read(value) {
        None => row.allowed.clone(),
        Some((text, why)) => match (row.set)(config, &text) {
            Ok(()) => return Ok(why.map(str::to_owned)),
            Err(expected) => expected,
        },
    };
    match row.reading.is_lenient(value) {
        true => Ok(Some(format!("expected {expected}"))),
        false => Err(expected),
    }
}
