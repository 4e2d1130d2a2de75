//! What becomes of the variables that are set.
//!
//! Of our own, a value that means nothing is an error that names the variable, the value and what is
//! allowed; of NCCL's, a value that NCCL lives with is a warning that says what is used instead. An
//! empty value counts as unset.

use super::settings::{Config, ConfigError, VARIABLES};
use super::values::Partition;
use super::variable::Variable;

/// How the names of this transport's own settings begin.
const OURS: &str = "IBNET_";

/// How the names begin that it shares with NCCL's transport.
const NCCL: &str = "NCCL_IB_";

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
        let mut unknown: Vec<_> = names.filter_map(|name| unknown(&name)).collect();
        unknown.sort();
        unknown.iter().for_each(Line::tell);
        Ok(config)
    }

    /// The defaults, changed by what `value_of` gives for each name of a variable. The log has a line for
    /// each that is set: a warning if something else is used in its place.
    ///
    /// # Errors
    /// The first variable whose value is not allowed and cannot be lived without.
    pub fn from_variables(value_of: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let (config, lines) = read(value_of)?;
        lines.iter().for_each(Line::tell);
        Ok(config)
    }
}

/// A line about a variable, for the log.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) is_warning: bool,
}

impl Line {
    fn tell(&self) {
        match self.is_warning {
            true => tracing::warn!("{}", self.text),
            false => tracing::info!("{}", self.text),
        }
    }
}

/// The settings, and for each variable that is set a line: `NCCL_IB_TIMEOUT=14 (default 20)`, or
/// `NCCL_IB_TIMEOUT=200: 20 is used instead; expected a number from 0 to 31`.
pub(super) fn read(
    value_of: &dyn Fn(&str) -> Option<String>,
) -> Result<(Config, Vec<Line>), ConfigError> {
    let mut config = Config::default();
    let mut lines = Vec::new();
    for variable in VARIABLES.iter() {
        let Some(value) = value_of(variable.name) else {
            continue;
        };
        let value = value.trim();
        let mut say = |is_warning, became: String| {
            let text = format!("{}={value}{became}", variable.name);
            lines.push(Line { text, is_warning });
        };
        if let ("NCCL_IB_PKEY", Partition::Value(_)) = (variable.name, config.partition) {
            say(
                false,
                " is not used: NCCL_IB_PKEY_VALUE is set and wins".to_owned(),
            );
            continue;
        }
        let before = variable.show(&config);
        let instead = apply(variable, &mut config, value).map_err(|expected| ConfigError {
            setting: variable.name,
            value: value.to_owned(),
            expected,
        })?;
        let now = variable.show(&config);
        match instead {
            Some(why) => say(true, format!(": {now} is used instead; {why}")),
            None if before == now => say(false, " (the default)".to_owned()),
            None => say(false, format!(" (default {before})")),
        }
    }
    Ok((config, lines))
}

/// Sets what `value` means; and tells why something else is used in its place, if so.
///
/// # Errors
/// What was expected, if it means nothing and NCCL would not go on without it. Nothing is changed
/// then.
fn apply(
    variable: &Variable<Config>,
    config: &mut Config,
    value: &str,
) -> Result<Option<String>, String> {
    if value.is_empty() {
        return Ok(Some("an empty value counts as unset".to_owned()));
    }
    match variable.set(config, value) {
        Ok(why) => Ok(why.map(str::to_owned)),
        Err(expected) if variable.is_lenient(value) => Ok(Some(format!("expected {expected}"))),
        Err(expected) => Err(expected),
    }
}

/// What is told of the variable `name`, if it is named like a setting and is none:
/// `IBNET_CONECT_TIMEOUT is no setting; is IBNET_CONNECT_TIMEOUT meant?` A warning if it is a slip of the
/// pen: `NCCL_IB_…` may be a setting of NCCL's own transport, `IBNET_…` can be nothing else.
pub(super) fn unknown(name: &str) -> Option<Line> {
    /// What other programs of this project take from the environment.
    const OTHERS: [&str; 3] = ["IBNET_TEST_", "IBNET_SEED", "IBNET_EXAMPLES_"];
    let is_like_one = name.starts_with(OURS) || name.starts_with(NCCL);
    let is_known = VARIABLES.iter().any(|variable| variable.name == name)
        || OTHERS.iter().any(|other| name.starts_with(other));
    if !is_like_one || is_known {
        return None;
    }
    let nearest = nearest(name);
    let meant = nearest.map(|nearest| format!("; is {nearest} meant?"));
    Some(Line {
        text: format!("{name} is no setting{}", meant.unwrap_or_default()),
        is_warning: name.starts_with(OURS) || nearest.is_some(),
    })
}

/// The variable whose name is most like `name`, if one is rather like it: at most a quarter of the
/// letters behind the common beginning differ, or one.
fn nearest(name: &str) -> Option<&'static str> {
    let beginning = [OURS, NCCL]
        .into_iter()
        .find(|begin| name.starts_with(begin));
    let own_letters = name.len() - beginning.map_or(0, str::len);
    VARIABLES
        .iter()
        .map(|variable| (strsim::levenshtein(name, variable.name), variable.name))
        .min()
        .filter(|(distance, _)| *distance <= (own_letters / 4).max(1))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> Option<String> {
        unknown(name).map(|line| line.text)
    }

    #[test]
    fn slips_of_the_pen_are_found_with_what_was_meant() {
        let text = "IBNET_CONECT_TIMEOUT is no setting; is IBNET_CONNECT_TIMEOUT meant?";
        assert_eq!(said("IBNET_CONECT_TIMEOUT").as_deref(), Some(text));
        let text = "IBNET_TC is no setting; is NCCL_IB_TC meant?";
        assert_ne!(
            said("IBNET_TC").as_deref(),
            Some(text),
            "too far to be sure"
        );
        let text = "NCCL_IB_TIMEOUTS is no setting; is NCCL_IB_TIMEOUT meant?";
        assert_eq!(said("NCCL_IB_TIMEOUTS").as_deref(), Some(text));
        assert_eq!(
            said("NCCL_IB_TIMOUT").as_deref(),
            Some("NCCL_IB_TIMOUT is no setting; is NCCL_IB_TIMEOUT meant?")
        );
        assert_eq!(
            said("IBNET_QWERTY").as_deref(),
            Some("IBNET_QWERTY is no setting")
        );
    }

    #[test]
    fn what_may_be_for_another_transport_is_no_mistake() {
        let is_mistake = |name: &str| unknown(name).is_some_and(|line| line.is_warning);
        assert!(is_mistake("NCCL_IB_TIMOUT") && is_mistake("IBNET_QWERTY"));
        assert!(!is_mistake("NCCL_IB_CUDA_SUPPORT") && !is_mistake("NCCL_IB_OOO_RQ"));
        assert!(!is_mistake("NCCL_IB_TIMEOUT"), "a setting");
    }

    #[test]
    fn what_is_a_setting_or_somebody_elses_is_not_said() {
        for name in [
            "PATH",
            "NCCL_DEBUG",
            "IBNET_MIN_PART",
            "IBNET_TEST_DEVICES",
            "IBNET_SEEDS",
        ] {
            assert_eq!(said(name), None);
        }
    }
}
