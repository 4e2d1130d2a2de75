//! The table of what building and testing need, and how each thing is recognised.
//!
//! Things are looked for by their files, not by package names: that is quick, works on every
//! distribution, and accepts what was installed another way.

use std::env;
use std::path::Path;

use crate::paths::expand;
use crate::process::find_program;

/// What a need is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Compiling the workspace, the C driver, and checking the plugin.
    Build,
    /// The virtual machine: the emulator and the programs that go inside.
    Machine,
    /// RXE devices on this host itself.
    HostRxe,
}

/// Where libibverbs keeps the user-space driver of RXE, which it loads by itself.
pub(crate) const RXE_PROVIDERS: &[&str] = &[
    "/usr/lib/*/libibverbs/librxe-rdmav*.so",
    "/usr/lib64/libibverbs/librxe-rdmav*.so",
    "/usr/lib/libibverbs/librxe-rdmav*.so",
];

const LIBCLANG: &[&str] = &[
    "/usr/lib/llvm-*/lib/libclang*.so*",
    "/usr/lib64/libclang*.so*",
    "/usr/lib64/llvm*/lib/libclang*.so*",
    "/usr/lib/libclang*.so*",
];

const CLANG_HEADERS: &[&str] = &[
    "/usr/lib/llvm-*/lib/clang/*/include/stddef.h",
    "/usr/lib/clang/*/include/stddef.h",
    "/usr/lib64/clang/*/include/stddef.h",
];

/// How a need is recognised.
#[derive(Debug)]
enum Probe {
    /// All of these programs can be found.
    Programs(&'static [&'static str]),
    /// In each of these lists, one pattern matches a file.
    Files(&'static [&'static [&'static str]]),
    /// libclang with its headers, or `LIBCLANG_PATH` set by the user.
    Libclang,
}

/// One thing that must be there.
#[derive(Debug)]
pub(super) struct Need {
    /// The Debian package that has it.
    pub(super) package: &'static str,
    purpose: &'static str,
    groups: &'static [Group],
    probe: Probe,
}

const NEEDS: &[Need] = &[
    Need {
        package: "build-essential",
        purpose: "C compiler, linker, binary tools",
        groups: &[Group::Build],
        probe: Probe::Programs(&["cc", "c++", "make", "readelf", "strip"]),
    },
    Need {
        package: "libc6-dev",
        purpose: "headers of the C library",
        groups: &[Group::Build],
        probe: Probe::Files(&[&["/usr/include/stdio.h"]]),
    },
    Need {
        package: "cmake",
        purpose: "configures the headers that ibverbs-sys brings",
        groups: &[Group::Build],
        probe: Probe::Programs(&["cmake"]),
    },
    Need {
        package: "python3",
        purpose: "asked for by the same configuration",
        groups: &[Group::Build],
        probe: Probe::Programs(&["python3"]),
    },
    Need {
        package: "pkg-config",
        purpose: "finds libnl for the same",
        groups: &[Group::Build],
        probe: Probe::Programs(&["pkg-config"]),
    },
    Need {
        package: "libclang-dev",
        purpose: "reads the C headers of libibverbs",
        groups: &[Group::Build],
        probe: Probe::Libclang,
    },
    Need {
        package: "libibverbs-dev",
        purpose: "libibverbs and libnl to build against",
        groups: &[Group::Build],
        probe: Probe::Files(&[
            &["/usr/include/infiniband/verbs.h"],
            &["/usr/include/libnl3/netlink/netlink.h"],
        ]),
    },
    Need {
        package: "qemu-system-x86",
        purpose: "the virtual machine",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["qemu-system-x86_64"]),
    },
    Need {
        package: "busybox-static",
        purpose: "small tools inside the machine",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["busybox"]),
    },
    Need {
        package: "bash",
        purpose: "the shell inside the machine",
        groups: &[Group::Machine, Group::HostRxe],
        probe: Probe::Programs(&["bash"]),
    },
    Need {
        package: "cpio",
        purpose: "packs the machine's files",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["cpio"]),
    },
    Need {
        package: "gzip",
        purpose: "compresses them",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["gzip"]),
    },
    Need {
        package: "xz-utils",
        purpose: "unpacks kernel modules (.ko.xz)",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["xz"]),
    },
    Need {
        package: "zstd",
        purpose: "unpacks kernel modules (.ko.zst)",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["zstd"]),
    },
    Need {
        package: "kmod",
        purpose: "modprobe, and modinfo to order kernel modules",
        groups: &[Group::Machine, Group::HostRxe],
        probe: Probe::Programs(&["modinfo", "modprobe"]),
    },
    Need {
        package: "iproute2",
        purpose: "makes links and RXE devices",
        groups: &[Group::Machine, Group::HostRxe],
        probe: Probe::Programs(&["ip", "tc", "rdma"]),
    },
    Need {
        package: "ibverbs-providers",
        purpose: "user-space driver of RXE",
        groups: &[Group::Machine, Group::HostRxe],
        probe: Probe::Files(&[RXE_PROVIDERS]),
    },
    Need {
        package: "ibverbs-utils",
        purpose: "ibv_devinfo and small ping-pongs",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["ibv_devinfo", "ibv_rc_pingpong"]),
    },
    Need {
        package: "perftest",
        purpose: "ib_write_lat and ib_write_bw to compare with",
        groups: &[Group::Machine],
        probe: Probe::Programs(&["ib_write_lat", "ib_write_bw"]),
    },
];

/// What of these groups is not there.
pub(super) fn missing(groups: &[Group]) -> Vec<&'static Need> {
    NEEDS
        .iter()
        .filter(|need| need.groups.iter().any(|group| groups.contains(group)))
        .filter(|need| !need.probe.holds())
        .collect()
}

/// A list for people: one line for each need, with what was looked for.
pub(super) fn describe(needs: &[&Need]) -> String {
    let lines = needs.iter().map(|need| {
        format!(
            "  {} ({}): {}",
            need.package,
            need.purpose,
            need.probe.describe()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Probe {
    fn holds(&self) -> bool {
        match self {
            Self::Programs(names) => names.iter().all(|name| find_program(name).is_some()),
            Self::Files(lists) => lists.iter().all(|patterns| any_exists(patterns)),
            Self::Libclang => {
                env::var_os("LIBCLANG_PATH").is_some()
                    || any_exists(LIBCLANG) && any_exists(CLANG_HEADERS)
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Programs(names) => format!("programs {}", names.join(", ")),
            Self::Files(lists) => {
                let lists: Vec<_> = lists.iter().map(|patterns| patterns.join(" or ")).collect();
                format!("files {}", lists.join(", and "))
            }
            Self::Libclang => {
                format!(
                    "files {}, or LIBCLANG_PATH",
                    [LIBCLANG, CLANG_HEADERS].concat().join(" or ")
                )
            }
        }
    }
}

fn any_exists(patterns: &[&str]) -> bool {
    patterns
        .iter()
        .any(|pattern| !expand(Path::new(pattern)).is_empty())
}

/// The need that a package meets.
#[cfg(test)]
pub(super) fn sample(package: &str) -> &'static Need {
    NEEDS
        .iter()
        .find(|need| need.package == package)
        .expect("the package is in the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_files_are_recognised() {
        assert!(Probe::Programs(&["sh", "ls"]).holds());
        assert!(!Probe::Programs(&["sh", "no-such-program-here"]).holds());
        assert!(Probe::Files(&[&["/nowhere", "/et*/passwd"], &["/etc/group"]]).holds());
        assert!(!Probe::Files(&[&["/etc/passwd"], &["/nowhere/*"]]).holds());
    }

    #[test]
    fn every_package_is_listed_once_and_every_group_has_needs() {
        for (index, need) in NEEDS.iter().enumerate() {
            assert!(!need.groups.is_empty(), "{}", need.package);
            assert!(
                NEEDS[index + 1..]
                    .iter()
                    .all(|other| other.package != need.package)
            );
        }
        for group in [Group::Build, Group::Machine, Group::HostRxe] {
            assert!(
                NEEDS.iter().any(|need| need.groups.contains(&group)),
                "{group:?}"
            );
        }
    }

    #[test]
    fn descriptions_say_what_was_looked_for() {
        let need = Need {
            package: "thing",
            purpose: "does it",
            groups: &[Group::Build],
            probe: Probe::Files(&[&["/a", "/b*"], &["/c"]]),
        };
        assert_eq!(
            describe(&[&need]),
            "  thing (does it): files /a or /b*, and /c"
        );
    }
}
