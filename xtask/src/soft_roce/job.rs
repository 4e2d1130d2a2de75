//! The job as a script: its environment and its command, in the machine and on the host.

use std::env;
use std::path::Path;

use crate::process::shell_quote;

use super::options::Job;
use super::programs;

/// Pairs of devices of the guest, joined by a link that their packets really cross.
pub(super) const GUEST_PAIRS: &str = "a0:b0,a1:b1";

/// Environment variables of a job.
#[derive(Debug, Default)]
pub(super) struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// The variables that the tests look at, for programs installed below `folder`.
    pub(super) fn new(folder: &Path, with_driver: bool, devices: &str) -> Self {
        let mut environment = Self::default();
        environment.set("IBNET_TEST_DEVICES", devices);
        environment.set(
            "IBNET_TEST_PLUGIN",
            &programs::plugin_in(folder).to_string_lossy(),
        );
        environment.set(
            "IBNET_TEST_CONFORMANCE",
            &programs::conformance_in(folder).to_string_lossy(),
        );
        if with_driver {
            environment.set(
                "IBNET_TEST_DRIVER",
                &programs::driver_in(folder).to_string_lossy(),
            );
        }
        environment
    }

    /// Sets a variable, whatever it was.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Takes over those of this process's variables that configure the tested programs, so that
    /// for example `NCCL_DEBUG=INFO` works for the guest too. What is set already stays.
    pub(super) fn forward(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, value) in variables {
            let known = self.variables.iter().any(|(known, _)| *known == name);
            if is_forwarded(&name) && !known {
                self.variables.push((name, value));
            }
        }
    }

    /// Lines of shell that export the variables.
    pub(super) fn script(&self) -> String {
        let lines = self.variables.iter();
        lines
            .map(|(name, value)| format!("export {name}={}\n", shell_quote(value)))
            .collect()
    }
}

/// This process's variables that are text.
pub(super) fn own_variables() -> impl Iterator<Item = (String, String)> {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn is_forwarded(name: &str) -> bool {
    let ours = ["NCCL_", "RCCL_", "IBNET_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    (ours && !name.starts_with("IBNET_TEST_")) || matches!(name, "RUST_LOG" | "RUST_BACKTRACE")
}

/// The job's command as a line of shell; a shell needs none.
pub(super) fn command(job: &Job) -> String {
    match job {
        Job::Scenarios { filter: None } => "exec ibnet-scenarios\n".to_owned(),
        Job::Scenarios {
            filter: Some(filter),
        } => {
            format!("exec ibnet-scenarios --filter {}\n", shell_quote(filter))
        }
        Job::Command(command) => format!("{command}\n"),
        Job::Shell => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        list.iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
            .into_iter()
    }

    #[test]
    fn the_environment_names_devices_plugin_and_driver() {
        let script = Environment::new(Path::new("/opt/ibnet"), true, "rxe0").script();
        assert_eq!(
            script,
            "export IBNET_TEST_DEVICES='rxe0'\n\
             export IBNET_TEST_PLUGIN='/opt/ibnet/lib/libnccl-net-ibnet.so'\n\
             export IBNET_TEST_CONFORMANCE='/opt/ibnet/bin/verbs-conformance'\n\
             export IBNET_TEST_DRIVER='/opt/ibnet/bin/driver'\n"
        );
        let script = Environment::new(Path::new("/x"), false, "rxe0").script();
        assert!(!script.contains("IBNET_TEST_DRIVER"));
    }

    #[test]
    fn settings_are_forwarded_but_do_not_override() {
        let mut environment = Environment::default();
        environment.set("NCCL_SOCKET_IFNAME", "lo");
        environment.forward(pairs(&[
            ("NCCL_SOCKET_IFNAME", "eth0"),
            ("NCCL_DEBUG", "INFO"),
            ("IBNET_TEST_DEVICES", "mlx5_0"),
            ("IBNET_RETRY", "it's"),
            ("PATH", "/bin"),
        ]));
        assert_eq!(
            environment.script(),
            "export NCCL_SOCKET_IFNAME='lo'\nexport NCCL_DEBUG='INFO'\nexport IBNET_RETRY='it'\\''s'\n"
        );
    }

    #[test]
    fn a_filter_is_one_word() {
        let job = Job::Scenarios {
            filter: Some("two words".to_owned()),
        };
        assert_eq!(command(&job), "exec ibnet-scenarios --filter 'two words'\n");
    }
}
