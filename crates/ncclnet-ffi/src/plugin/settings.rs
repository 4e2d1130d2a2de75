//! The settings that `init` takes from the environment, and what the log says of them.
//!
//! Which variables there are and what they mean is `ibnet`'s: [`Config::from_variables`] asks for each by
//! its name. Here it is noted what was asked for and found, so that the log can tell which variables
//! have changed something, and which ones of ours look like a setting and are none.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;

use ibnet::Config;

use crate::fault::Fault;

/// Names that begin like this are settings of the transport, or of NCCL's own one.
const PREFIXES: [&str; 2] = ["NCCL_IB_", "IBNET_"];

/// The settings, from the environment of the process. Says what was set.
pub(super) fn from_environment() -> Result<Config, Fault> {
    let variables: Vec<(String, String)> = env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    let (config, lines) = read(&variables);
    for line in lines {
        tracing::info!("{line}");
    }
    config
}

/// The settings among these variables, and what is to be said of them, whether they are valid or not.
fn read(variables: &[(String, String)]) -> (Result<Config, Fault>, Vec<String>) {
    let asked = RefCell::new(BTreeSet::new());
    let config = Config::from_variables(&|name| {
        asked.borrow_mut().insert(name.to_owned());
        value_of(variables, name)
    });
    let asked = asked.into_inner();

    let mut lines = Vec::new();
    let default = format!("{:?}", Config::default());
    for name in &asked {
        let Some(value) = value_of(variables, name).filter(|value| !value.trim().is_empty()) else {
            continue;
        };
        let alone = Config::from_variables(&|asked| (asked == name).then(|| value.clone()));
        lines.push(match alone {
            Ok(config) if format!("{config:?}") == default => {
                format!("{name}={value} is set, which is the default")
            }
            Ok(_) => format!("{name}={value} is set"),
            // The caller's error says what is wrong.
            Err(_) => continue,
        });
    }
    // An error ends the questions early: what was not asked for may still be a setting.
    if config.is_ok() {
        let mut others: Vec<&str> = variables
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            .filter(|name| !asked.contains(*name))
            .collect();
        others.sort_unstable();
        if !others.is_empty() {
            lines.push(format!(
                "set, but no settings of this plugin: {}",
                others.join(" ")
            ));
        }
    }
    (
        config.map_err(|error| ibnet::Error::from(error).into()),
        lines,
    )
}

fn value_of(variables: &[(String, String)], name: &str) -> Option<String> {
    variables
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn said(variables: &[(&str, &str)]) -> (Result<Config, Fault>, Vec<String>) {
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        read(&variables)
    }

    #[test]
    fn what_is_set_is_said_and_what_is_not_is_not() {
        let (config, lines) = said(&[
            ("NCCL_IB_TIMEOUT", "14"),
            ("PATH", "/bin"),
            ("NCCL_IB_SL", ""),
        ]);
        assert_eq!(config.unwrap().timeout, 14);
        assert_eq!(lines, ["NCCL_IB_TIMEOUT=14 is set"]);
        assert_eq!(said(&[("NCCL_DEBUG", "INFO")]).1, [""; 0]);
    }

    #[test]
    fn a_default_that_is_set_is_called_one() {
        let (_, lines) = said(&[("NCCL_IB_TIMEOUT", "20"), ("NCCL_IB_HCA", "mlx5_0")]);
        assert_eq!(
            lines,
            [
                "NCCL_IB_HCA=mlx5_0 is set",
                "NCCL_IB_TIMEOUT=20 is set, which is the default"
            ]
        );
    }

    #[test]
    fn what_looks_like_a_setting_and_is_none_is_said() {
        let (config, lines) = said(&[
            ("IBNET_CONECT_TIMEOUT", "5"),
            ("NCCL_IB_NO_SUCH_THING", "1"),
            ("IBNET_CONNECT_TIMEOUT", "5"),
        ]);
        assert!(config.is_ok());
        assert_eq!(
            lines,
            [
                "IBNET_CONNECT_TIMEOUT=5 is set",
                "set, but no settings of this plugin: IBNET_CONECT_TIMEOUT NCCL_IB_NO_SUCH_THING"
            ]
        );
    }

    #[test]
    fn a_wrong_value_is_the_only_thing_that_is_said_of_it() {
        let (config, lines) = said(&[("NCCL_IB_TIMEOUT", "99"), ("NCCL_IB_HCA", "mlx5_0")]);
        assert!(config.is_err_and(|fault| fault.text.contains("NCCL_IB_TIMEOUT=99")));
        assert_eq!(lines, ["NCCL_IB_HCA=mlx5_0 is set"]);
    }
}
