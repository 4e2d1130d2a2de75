//! What the log says of the settings that `init` takes from the environment.
//!
//! Which variables there are and what they mean is `ibnet`'s, which also notes what was set, what that
//! changed, and what only looks like a setting.

use ibnet::Config;

use crate::fault::Fault;

/// The settings, from the environment of the process. Says what was set.
pub(super) fn from_environment() -> Result<Config, Fault> {
    let config = Config::from_env().map_err(ibnet::Error::from)?;
    for line in lines(&config) {
        tracing::info!("{line}");
    }
    Ok(config)
}

/// What is to be said: a line for each setting, and one of what is set for nothing here. `NCCL_IB_…`
/// may be meant for NCCL's own transport.
fn lines(config: &Config) -> Vec<String> {
    let set = config.set_variables().iter().map(ToString::to_string);
    let mut lines: Vec<String> = set.collect();
    let unknown = config.unknown_variables().iter();
    let others: Vec<&str> = unknown.map(|unknown| unknown.name.as_str()).collect();
    if !others.is_empty() {
        lines.push(format!(
            "set, but no settings of this plugin: {}",
            others.join(" ")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_setting_is_on_the_manual_page() {
        let page = include_str!("../../../../docs/plugin.md");
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        Config::from_variables(&|name| {
            asked.borrow_mut().insert(name.to_owned());
            None
        })
        .unwrap();
        let missing: Vec<_> = asked
            .into_inner()
            .into_iter()
            .filter(|name| !page.contains(&format!("\n| `{name}` |")))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn what_is_set_is_said_with_what_it_changes() {
        let said = |variables: &[(&str, &str)]| {
            let config = Config::from_variables(&|name| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            lines(&config.unwrap())
        };
        assert_eq!(
            said(&[
                ("NCCL_IB_TIMEOUT", "14"),
                ("NCCL_IB_RETRY_CNT", "7"),
                ("NCCL_IB_SL", "")
            ]),
            [
                "NCCL_IB_TIMEOUT=14 (default 20)",
                "NCCL_IB_RETRY_CNT=7 (the default)"
            ]
        );
        assert_eq!(said(&[("NCCL_DEBUG", "INFO")]), [""; 0]);
    }
}
