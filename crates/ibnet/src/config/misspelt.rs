//! What is named like a setting and is none.

use std::fmt;

use super::settings::VARIABLES;

/// How the names of this transport's own settings begin.
const OURS: &str = "IBNET_";

/// How the names begin that it shares with NCCL's transport.
const NCCL: &str = "NCCL_IB_";

/// A variable that is named like a setting and is none. `NCCL_IB_…` may be a setting of NCCL's own
/// transport, or a slip of the pen; `IBNET_…` can only be the latter.
pub(super) struct Unknown {
    name: String,
    /// The setting that may have been meant.
    nearest: Option<&'static str>,
}

/// For the log: `IBNET_CONECT_TIMEOUT is no setting; is IBNET_CONNECT_TIMEOUT meant?`
impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no setting", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; is {nearest} meant?"),
            None => Ok(()),
        }
    }
}

impl Unknown {
    /// Those among `names`, in order.
    pub(super) fn among(names: impl Iterator<Item = String>) -> Vec<Self> {
        let mut unknown: Vec<_> = names.filter_map(|name| Self::of(&name)).collect();
        unknown.sort_by(|one, other| one.name.cmp(&other.name));
        unknown
    }

    fn of(name: &str) -> Option<Self> {
        /// What other programs of this project take from the environment.
        const OTHERS: [&str; 3] = ["IBNET_TEST_", "IBNET_SEED", "IBNET_EXAMPLES_"];
        let is_like_one = name.starts_with(OURS) || name.starts_with(NCCL);
        let is_known = VARIABLES.iter().any(|row| row.variable == name)
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
        .map(|row| (strsim::levenshtein(name, row.variable), row.variable))
        .min()
        .filter(|(distance, _)| *distance <= (own_letters / 4).max(1))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> Option<String> {
        Unknown::of(name).map(|unknown| unknown.to_string())
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
        let is_mistake = |name: &str| Unknown::of(name).is_some_and(|it| it.is_mistake());
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

    #[test]
    fn they_are_told_of_in_order() {
        let names = ["IBNET_Z", "PATH", "NCCL_IB_TIMEOUT", "IBNET_MIN_PARTS"];
        let unknown = Unknown::among(names.into_iter().map(str::to_owned));
        let lines: Vec<_> = unknown.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "IBNET_MIN_PARTS is no setting; is IBNET_MIN_PART meant?",
                "IBNET_Z is no setting"
            ]
        );
    }
}
