//! What of the environment was a setting, and what only looked like one.

use std::fmt;

use super::VARIABLES;

/// How the names of this transport's own settings begin.
const OURS: &str = "IBNET_";

/// How the names begin that it shares with NCCL's transport.
const NCCL: &str = "NCCL_IB_";

/// A variable that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
    /// What is used without it.
    pub default: String,
    /// Whether it changed anything.
    pub changes: bool,
    /// What became of it.
    pub effect: Effect,
}

/// What became of a variable that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// It is used as it is.
    AsSet,
    /// Something else is used: NCCL would go on with such a value, too.
    Instead {
        /// What is used.
        used: String,
        /// Why.
        why: String,
    },
    /// It is not used, because this variable is set, too, and wins.
    Overruled(&'static str),
}

impl Setting {
    /// Whether something else is used in its place.
    pub fn is_replaced(&self) -> bool {
        matches!(self.effect, Effect::Instead { .. })
    }
}

/// For a log: `NCCL_IB_TIMEOUT=14 (default 20)`, `NCCL_IB_TIMEOUT=200: 20 is used instead; expected a
/// number from 0 to 31`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.variable, self.value)?;
        match &self.effect {
            Effect::AsSet if self.changes => write!(f, " (default {})", self.default),
            Effect::AsSet => f.write_str(" (the default)"),
            Effect::Instead { used, why } => write!(f, ": {used} is used instead; {why}"),
            Effect::Overruled(winner) => write!(f, " is not used: {winner} is set and wins"),
        }
    }
}

/// A variable that is named like a setting and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The setting that may have been meant.
    pub nearest: Option<&'static str>,
}

/// For a log: `IBNET_CONECT_TIMEOUT is no setting; is IBNET_CONNECT_TIMEOUT meant?`
impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no setting", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; is {nearest} meant?"),
            None => Ok(()),
        }
    }
}

impl UnknownVariable {
    /// The variable `name`, if it is named like a setting and is none. `NCCL_IB_…` may be a setting
    /// of NCCL's own transport, or a slip of the pen; `IBNET_…` can only be the latter.
    pub(super) fn of(name: &str) -> Option<Self> {
        /// What other programs of this project take from the environment.
        const OTHERS: [&str; 3] = ["IBNET_TEST_", "IBNET_SEED", "IBNET_EXAMPLES_"];
        let is_like_one = name.starts_with(OURS) || name.starts_with(NCCL);
        let is_known = VARIABLES.iter().any(|row| row.name == name)
            || OTHERS.iter().any(|other| name.starts_with(other));
        (is_like_one && !is_known).then(|| Self {
            name: name.to_owned(),
            nearest: nearest(name),
        })
    }

    /// Whether it is a slip of the pen rather than a setting of somebody else.
    pub(super) fn is_mistake(&self) -> bool {
        self.name.starts_with(OURS) || self.nearest.is_some()
    }
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
        .map(|row| (distance(name, row.name), row.name))
        .min()
        .filter(|(distance, _)| *distance <= (own_letters / 4).max(1))
        .map(|(_, name)| name)
}

/// How many letters must be inserted, removed or replaced to make one text of the other
/// (Levenshtein's distance).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Of the letters so far to each beginning of the other.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, counterpart) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *counterpart);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
        assert_eq!(distance("abc", ""), 3);
    }

    fn said(name: &str) -> Option<String> {
        UnknownVariable::of(name).map(|unknown| unknown.to_string())
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
        let is_mistake = |name: &str| UnknownVariable::of(name).is_some_and(|it| it.is_mistake());
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
