//! The options of `soft-roce-test`, those that `test` and `demo` share with it, and the decision
//! where to run.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::{Flag, Parsed};
use crate::failure::{Result, fail};
use crate::stream::Limits;

/// Options of `soft-roce-test` alone.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        name: "--filter",
        value: Some("NAME"),
        help: "Run only scenarios whose name contains NAME",
    },
    Flag {
        name: "--list",
        value: None,
        help: "Print the names of the scenarios (with --filter, of those) and run nothing",
    },
    Flag {
        name: "--exec",
        value: Some("CMD"),
        help: "Run this shell command instead of the scenarios",
    },
    Flag {
        name: "--shell",
        value: None,
        help: "Open a shell in the machine instead (leave with `exit`)",
    },
    Flag {
        name: "--keep",
        value: None,
        help: "Keep the folder of this run, and say where it is",
    },
];

/// Options of every subcommand that runs something on RDMA devices.
pub(crate) const MACHINE_FLAGS: &[Flag] = &[
    Flag {
        name: "--accel",
        value: Some("KIND"),
        help: "auto (default), tcg, kvm, icount: how to run the machine; host: this host's own RXE",
    },
    Flag {
        name: "--kernel",
        value: Some("DIR"),
        help: "Boot the kernel in DIR (boot/vmlinuz-*, lib/modules/*), not Debian's",
    },
    Flag {
        name: "--memory",
        value: Some("MIB"),
        help: "Memory of the machine (default 6144)",
    },
    Flag {
        name: "--timeout",
        value: Some("SECONDS"),
        help: "Give up after so long (default 1800)",
    },
    Flag {
        name: "--silence",
        value: Some("SECONDS"),
        help: "Give up after so long without any output (default 180)",
    },
];

/// Memory of the guest in MiB: transfers of 1 GiB have two buffers of that size and what they are
/// compared with. The host provides only what is used.
const MEMORY: u32 = 6144;
/// The kernel and the root file system alone need nearly as much.
const LEAST_MEMORY: u32 = 512;
const TIMEOUT: u64 = 1800;
const SILENCE: u64 = 180;

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    /// The scenarios, or those whose name contains the filter.
    Scenarios {
        /// Part of a name.
        filter: Option<String>,
    },
    /// A shell command.
    Command(String),
    /// An interactive shell.
    Shell,
}

/// How the virtual machine runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Accel {
    /// KVM where a trial has shown that it works, else emulation.
    Auto,
    /// Emulation.
    Tcg,
    /// KVM, without a trial.
    Kvm,
    /// One emulated processor whose clock counts instructions.
    Icount,
}

/// Where to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// On this host, on devices that are there (comma-separated names).
    Devices(String),
    /// On this host, on RXE devices made for the run.
    HostRxe,
    /// In the virtual machine.
    Machine(Accel),
}

impl Place {
    /// The devices that are tested there, comma-separated. Those of the machine are made by
    /// `guest/init.sh`, those of the host's own RXE by `guest/host.sh`.
    pub(crate) fn devices(&self) -> &str {
        match self {
            Self::Devices(devices) => devices,
            Self::HostRxe => "ibnet_rxe0,ibnet_rxe1",
            Self::Machine(_) => "rxe0,rxe1",
        }
    }
}

/// Everything that a run needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What to run.
    pub(crate) job: Job,
    /// Where.
    pub(crate) place: Place,
    /// A folder with a kernel, instead of the cached one.
    pub(crate) kernel: Option<PathBuf>,
    /// Memory of the guest in MiB.
    pub(crate) memory: u32,
    /// When to give up.
    pub(crate) limits: Limits,
    /// Keep the run's folder.
    pub(crate) keep: bool,
    /// Further environment variables of the job.
    pub(crate) variables: Vec<(String, String)>,
    /// Further programs and libraries of the job, which are installed as they are.
    pub(crate) extra: Vec<PathBuf>,
    /// Do not show what the job prints: who gets its lines decides.
    pub(crate) quiet: bool,
}

impl Options {
    /// Options for a job from the flags in [`MACHINE_FLAGS`]. `devices` are those that the user
    /// names, comma-separated.
    pub(crate) fn new(parsed: &Parsed, job: Job, devices: Option<String>) -> Result<Self> {
        let place = decide(parsed.value("--accel"), devices)?;
        if !matches!(place, Place::Machine(_)) {
            for flag in ["--kernel", "--memory"] {
                if parsed.has(flag) {
                    fail!(
                        "`{flag}` is about the virtual machine, but this runs on the host itself"
                    );
                }
            }
            if job == Job::Shell {
                fail!("`--shell` opens the virtual machine; on the host itself you are in a shell");
            }
        }
        let memory = parsed.positive("--memory")?.unwrap_or(MEMORY);
        if memory < LEAST_MEMORY {
            fail!("`--memory {memory}`: the machine needs at least {LEAST_MEMORY} MiB to boot");
        }
        let timeout = parsed.positive::<u64>("--timeout")?;
        let silence = parsed.positive::<u64>("--silence")?;
        // Nobody is rushed in an interactive shell unless they ask for it.
        let (timeout, silence) = if job == Job::Shell {
            if silence.is_some() {
                fail!("`--silence` has no meaning with `--shell`");
            }
            (timeout, None)
        } else {
            (
                Some(timeout.unwrap_or(TIMEOUT)),
                Some(silence.unwrap_or(SILENCE)),
            )
        };
        Ok(Self {
            job,
            place,
            kernel: parsed.value("--kernel").map(PathBuf::from),
            memory,
            limits: Limits {
                silence: silence.map(Duration::from_secs),
                total: timeout.map(Duration::from_secs),
            },
            keep: false,
            variables: Vec::new(),
            extra: Vec::new(),
            quiet: false,
        })
    }
}

/// The job that the flags in [`FLAGS`] ask for.
pub(super) fn job(parsed: &Parsed) -> Result<Job> {
    for flag in ["--filter", "--exec"] {
        if parsed
            .value(flag)
            .is_some_and(|value| value.trim().is_empty())
        {
            fail!("the value of `{flag}` is empty");
        }
    }
    let filter = parsed.value("--filter").map(str::to_owned);
    let command = parsed.value("--exec").map(str::to_owned);
    match (filter, command, parsed.has("--shell")) {
        (filter, None, false) => Ok(Job::Scenarios { filter }),
        (None, Some(command), false) => Ok(Job::Command(command)),
        (None, None, true) => Ok(Job::Shell),
        _ => fail!("only one of `--filter`, `--exec` and `--shell` can be given"),
    }
}

/// The devices that the user names in the environment for tests on this host.
pub(crate) fn devices_from_environment() -> Option<String> {
    env::var("IBNET_TEST_DEVICES")
        .ok()
        .filter(|devices| !devices.trim().is_empty())
}

/// `auto` never changes the host: without devices that the user names it is always the machine,
/// which also has links that can be cut. RXE on the host itself is for those who ask for it.
fn decide(accel: Option<&str>, devices: Option<String>) -> Result<Place> {
    Ok(match (accel.unwrap_or("auto"), devices) {
        ("auto" | "host", Some(devices)) => Place::Devices(devices),
        ("auto", None) => Place::Machine(Accel::Auto),
        ("host", None) => Place::HostRxe,
        ("tcg", _) => Place::Machine(Accel::Tcg),
        ("kvm", _) => Place::Machine(Accel::Kvm),
        ("icount", _) => Place::Machine(Accel::Icount),
        (other, _) => fail!("`--accel {other}`: the value must be auto, tcg, kvm, icount or host"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::args::{Request, parse};

    fn parsed(line: &str) -> Parsed {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse("soft-roce-test", &[FLAGS, MACHINE_FLAGS], &words).unwrap() {
            Request::Run(parsed) => parsed,
            Request::Help => panic!("help"),
        }
    }

    fn options(line: &str, devices: Option<&str>) -> Result<Options> {
        let parsed = parsed(line);
        Options::new(&parsed, job(&parsed)?, devices.map(str::to_owned))
    }

    #[test]
    fn the_place_follows_the_flag_and_the_devices() {
        let mlx = || Some("mlx5_0,mlx5_1".to_owned());
        let given = Place::Devices("mlx5_0,mlx5_1".to_owned());
        assert_eq!(decide(None, None).unwrap(), Place::Machine(Accel::Auto));
        assert_eq!(decide(Some("auto"), mlx()).unwrap(), given);
        assert_eq!(decide(Some("host"), mlx()).unwrap(), given);
        assert_eq!(decide(Some("host"), None).unwrap(), Place::HostRxe);
        assert_eq!(
            decide(Some("tcg"), mlx()).unwrap(),
            Place::Machine(Accel::Tcg)
        );
        assert_eq!(
            decide(Some("kvm"), None).unwrap(),
            Place::Machine(Accel::Kvm)
        );
        assert_eq!(
            decide(Some("icount"), mlx()).unwrap(),
            Place::Machine(Accel::Icount)
        );
        assert!(
            decide(Some("hvf"), None)
                .unwrap_err()
                .to_string()
                .contains("hvf")
        );
    }

    #[test]
    fn there_is_one_job() {
        let job = |line| job(&parsed(line));
        assert_eq!(job("").unwrap(), Job::Scenarios { filter: None });
        assert_eq!(
            job("--filter x").unwrap(),
            Job::Scenarios {
                filter: Some("x".into())
            }
        );
        assert_eq!(job("--exec=ls").unwrap(), Job::Command("ls".into()));
        assert_eq!(job("--shell").unwrap(), Job::Shell);
        assert!(job("--shell --exec=ls").is_err());
        assert!(job("--filter x --exec=ls").is_err());
        assert!(job("--exec=").is_err());
        assert!(job("--filter=").is_err());
    }

    #[test]
    fn limits_have_defaults_except_in_a_shell() {
        let limits = options("", None).unwrap().limits;
        assert_eq!(limits.total, Some(Duration::from_secs(TIMEOUT)));
        assert_eq!(limits.silence, Some(Duration::from_secs(SILENCE)));
        let limits = options("--timeout 5 --silence 2", None).unwrap().limits;
        assert_eq!(limits.total, Some(Duration::from_secs(5)));
        assert_eq!(limits.silence, Some(Duration::from_secs(2)));
        let limits = options("--shell", None).unwrap().limits;
        assert_eq!((limits.total, limits.silence), (None, None));
        assert!(options("--shell --silence 4", None).is_err());
    }

    #[test]
    fn options_of_the_machine_are_refused_on_the_host() {
        assert!(options("--kernel /k", None).is_ok());
        for line in ["--kernel /k", "--memory 2048", "--shell"] {
            assert!(options(line, Some("mlx5_0")).is_err(), "{line}");
        }
    }

    #[test]
    fn a_machine_has_room_to_boot() {
        assert_eq!(options("", None).unwrap().memory, MEMORY);
        assert_eq!(options("--memory 512", None).unwrap().memory, 512);
        let failure = options("--memory 511", None).unwrap_err().to_string();
        assert!(failure.contains("512 MiB"), "{failure}");
    }
}
