//! `cargo xtask dist`: the plugin as a library to give away, under every name that NCCL and RCCL
//! look for, and checked.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::args::Parsed;
use crate::cargo;
use crate::counts::Counts;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process;
use crate::progress::note;
use crate::setup::{self, Group};

/// The one file; `NCCL_NET_PLUGIN=ibnet` has NCCL look for it.
const FILE: &str = "libnccl-net-ibnet.so";

/// Further names, which are links to the file: what NCCL looks for where `NCCL_NET_PLUGIN` is not
/// set, and what RCCL looks for in the two cases. Links, because one of several copies could be
/// replaced alone.
const LINKS: &[&str] = &["libnccl-net.so", "librccl-net-ibnet.so", "librccl-net.so"];

/// One property that the library must have: its name, and how what `readelf` prints with these
/// options violates it (`None`: not at all).
struct Check {
    promise: &'static str,
    options: &'static [&'static str],
    violation: fn(&str) -> Option<String>,
}

const CHECKS: &[Check] = &[
    Check {
        promise: "exports ncclNetPlugin_v2 to _v12 and nothing else",
        options: &["--wide", "--dyn-syms"],
        violation: wrong_exports,
    },
    Check {
        promise: "needs nothing but parts of glibc and libgcc to be loaded",
        options: &["--wide", "--dynamic"],
        violation: needs_others,
    },
    Check {
        promise: "works with glibc 2.28 and later",
        options: &["--wide", "--version-info"],
        violation: needs_newer_glibc,
    },
    Check {
        promise: "has a name of its own (SONAME)",
        options: &["--wide", "--dynamic"],
        violation: wrong_name,
    },
    Check {
        promise: "stays loaded (NODELETE)",
        options: &["--wide", "--dynamic"],
        violation: can_be_unloaded,
    },
];

/// Entry point of the subcommand.
pub(crate) fn command(_: &Parsed) -> Result<u8> {
    Ok(u8::from(build_and_check()?.failed > 0))
}

/// Builds the plugin into its folder, and says which checks it passes.
pub(crate) fn build_and_check() -> Result<Counts> {
    setup::ensure(&[Group::Build])?;
    let library = build()?;
    let mut counts = Counts::default();
    for check in CHECKS {
        let readelf = process::capture(
            process::command("readelf")?
                .args(check.options)
                .arg(&library),
        )?;
        let violation = (check.violation)(&readelf);
        counts += Counts::one(violation.is_none());
        match violation {
            None => note(&format!("{FILE} {}: ok", check.promise)),
            Some(violation) => note(&format!("{FILE} {}: FAILED: {violation}", check.promise)),
        }
    }
    Ok(counts)
}

fn build() -> Result<PathBuf> {
    let artifacts = cargo::build_release(&["ncclnet-ffi"])?;
    let [library] = artifacts.libraries.as_slice() else {
        fail!(
            "the build of ncclnet-ffi has made {} shared libraries, not one",
            artifacts.libraries.len()
        );
    };
    let folder = paths::target().join("dist");
    paths::remove_folder(&folder)?;
    paths::create_folder(&folder)?;
    let file = folder.join(FILE);
    fs::copy(library, &file).context(|| format!("cannot write {}", file.display()))?;
    note(&format!(
        "{} ({:.1} MiB)",
        file.display(),
        size_in_mib(&file)
    ));
    for name in LINKS {
        let link = folder.join(name);
        symlink(FILE, &link).context(|| format!("cannot make the link {}", link.display()))?;
        note(&format!("{} -> {FILE}", link.display()));
    }
    Ok(file)
}

fn size_in_mib(file: &Path) -> f64 {
    file.metadata()
        .map_or(0.0, |found| found.len() as f64 / f64::from(1 << 20))
}

/// Symbols that others can see, in the table of `readelf --dyn-syms`: number, value, size, type,
/// binding, visibility, section, name.
fn exports(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [number, _, _, _, binding, visibility, section, name, ..] = columns.as_slice() else {
            return None;
        };
        let is_entry = number.trim_end_matches(':').parse::<u32>().is_ok();
        let is_visible = *binding != "LOCAL" && matches!(*visibility, "DEFAULT" | "PROTECTED");
        // A symbol's version, if any, follows an `@`.
        let name = name.split('@').next().unwrap_or(name);
        (is_entry && is_visible && *section != "UND").then_some(name)
    })
}

fn wrong_exports(table: &str) -> Option<String> {
    let tables: Vec<String> = (2..=12).map(|v| format!("ncclNetPlugin_v{v}")).collect();
    let found: Vec<&str> = exports(table).collect();
    let others: Vec<&str> = found
        .iter()
        .copied()
        .filter(|name| !tables.iter().any(|table| table == name))
        .collect();
    if !others.is_empty() {
        return Some(format!("it also exports {}", others.join(", ")));
    }
    let missing: Vec<&str> = tables
        .iter()
        .map(String::as_str)
        .filter(|table| !found.contains(table))
        .collect();
    (!missing.is_empty()).then(|| format!("it does not export {}", missing.join(", ")))
}

/// Libraries that are on every host with glibc, as their names begin.
const EVERYWHERE: &[&str] = &[
    "ld-linux",
    "libc.so.",
    "libdl.so.",
    "libgcc_s.so.",
    "libm.so.",
    "libpthread.so.",
];

fn needs_others(dynamic: &str) -> Option<String> {
    let others: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .map(|line| bracketed(line).unwrap_or(line))
        .filter(|library| !EVERYWHERE.iter().any(|name| library.starts_with(name)))
        .collect();
    (!others.is_empty()).then(|| format!("it needs {}", others.join(", ")))
}

/// The newest glibc whose symbols may be needed (`crates/ncclnet-ffi/link/glibc.c` sees to it).
const NEWEST_GLIBC: (u32, u32) = (2, 28);

fn needs_newer_glibc(versions: &str) -> Option<String> {
    // Lines as `  0x0070:   Name: GLIBC_2.34  Flags: none  Version: 8`.
    let mut newer: Vec<&str> = versions
        .lines()
        .filter_map(|line| line.split_once("Name: GLIBC_")?.1.split_whitespace().next())
        .filter(|version| glibc_version(version).is_none_or(|version| version > NEWEST_GLIBC))
        .collect();
    newer.sort_unstable();
    newer.dedup();
    (!newer.is_empty()).then(|| {
        format!(
            "it needs symbols of glibc {}; `readelf --dyn-syms` shows which",
            newer.join(", ")
        )
    })
}

/// Major and minor number of `2.34` or `2.2.5`.
fn glibc_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn wrong_name(dynamic: &str) -> Option<String> {
    let name = dynamic
        .lines()
        .find(|line| line.contains("(SONAME)"))
        .and_then(bracketed);
    match name {
        Some(FILE) => None,
        Some(other) => Some(format!("it is named {other}")),
        None => Some("it has none".to_owned()),
    }
}

/// The part of a line between `[` and `]`.
fn bracketed(line: &str) -> Option<&str> {
    Some(line.split_once('[')?.1.split_once(']')?.0)
}

fn can_be_unloaded(dynamic: &str) -> Option<String> {
    let flags = dynamic.lines().find(|line| line.contains("(FLAGS_1)"));
    match flags {
        Some(flags) if flags.contains("NODELETE") => None,
        Some(flags) => Some(flags.split_whitespace().collect::<Vec<_>>().join(" ")),
        None => Some("the library has no FLAGS_1; it must be linked with -z nodelete".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: impl IntoIterator<Item = String>) -> String {
        let mut table = "\
Symbol table '.dynsym' contains 15 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND malloc@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
"
        .to_owned();
        for name in names {
            table.push_str(&format!(
                "     3: 00000000000a7010   160 OBJECT  GLOBAL DEFAULT   25 {name}\n"
            ));
        }
        table
    }

    fn plugins(versions: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = String> {
        versions.map(|version| format!("ncclNetPlugin_v{version}"))
    }

    #[test]
    fn exports_are_all_tables_and_nothing_else() {
        let good = table(plugins(2..=12));
        assert_eq!(exports(&good).count(), 11);
        assert_eq!(wrong_exports(&good), None);
        for extra in [
            "     5: 00000000000a7158     4 FUNC    GLOBAL DEFAULT   12 rust_eh_personality\n",
            "     5: 00000000000a7158     4 FUNC    WEAK   PROTECTED 12 ncclNetPlugin_vX\n",
            "     5: 00000000000a7158     4 OBJECT  GLOBAL DEFAULT   12 ncclNetPlugin_v13\n",
        ] {
            assert!(
                wrong_exports(&format!("{good}{extra}")).is_some(),
                "{extra}"
            );
        }
        let hidden = "     5: 00000000000a7158     4 FUNC    GLOBAL HIDDEN   12 dlopen\n";
        assert_eq!(wrong_exports(&format!("{good}{hidden}")), None);
        assert_eq!(
            wrong_exports(&table(plugins(3..=12))).as_deref(),
            Some("it does not export ncclNetPlugin_v2")
        );
        assert!(wrong_exports(&table([])).is_some());
    }

    #[test]
    fn needs_are_bounded() {
        let needed = |library| format!(" 0x01 (NEEDED)   Shared library: [{library}]\n");
        let usual = needed("libc.so.6") + &needed("libgcc_s.so.1") + &needed("libdl.so.2");
        assert_eq!(needs_others(&usual), None);
        let ibverbs = needs_others(&(usual + &needed("libibverbs.so.1")));
        assert_eq!(ibverbs.as_deref(), Some("it needs libibverbs.so.1"));

        let version = |version| format!("  0x0030:   Name: {version}  Flags: none  Version: 3\n");
        let old = version("GLIBC_2.2.5") + &version("GLIBC_2.28") + &version("GCC_4.2.0");
        assert_eq!(needs_newer_glibc(&old), None);
        for newer in ["GLIBC_2.29", "GLIBC_2.34", "GLIBC_3.0", "GLIBC_PRIVATE"] {
            let violation = needs_newer_glibc(&(old.clone() + &version(newer)));
            assert!(
                violation.is_some_and(|text| text.contains(&newer[6..])),
                "{newer}"
            );
        }
    }

    #[test]
    fn the_dynamic_section_is_checked() {
        let libc = " 0x0000000000000001 (NEEDED)   Shared library: [libc.so.6]\n";
        let named = |name| format!(" 0x0e (SONAME)             Library soname: [{name}]\n");
        assert_eq!(wrong_name(&named("libnccl-net-ibnet.so")), None);
        assert!(wrong_name(&named("libncclnet_ffi.so")).is_some());
        assert!(wrong_name(libc).is_some());

        let nodelete = " 0x000000006ffffffb (FLAGS_1)            Flags: NOW NODELETE\n";
        let now = " 0x000000006ffffffb (FLAGS_1)            Flags: NOW\n";
        assert_eq!(can_be_unloaded(nodelete), None);
        assert!(can_be_unloaded(now).is_some());
        assert!(can_be_unloaded(libc).is_some());
    }
}
