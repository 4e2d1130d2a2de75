//! What the log says of the settings that `init` takes from the environment.
//!
//! Which variables there are and what they mean is `ibnet`'s, which also notes what was set and what
//! that changed, and tells what only looks like a setting.

use ibnet::Config;

/// The settings: those that the program provides, or else from the environment of the process, of
/// which `ibnet` tells what is set for nothing and what is replaced. Says what else was set.
pub(super) fn find(provided: Option<Config>) -> Result<Config, ibnet::Error> {
    let config = match provided {
        Some(config) => config,
        None => Config::from_env()?,
    };
    let set = config.set_variables().iter();
    for setting in set.filter(|setting| !setting.is_replaced()) {
        tracing::info!("{setting}");
    }
    Ok(config)
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
}
