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
        promise: "exports ncclNetPlugin_v* and nothing else",
        options: &["--wide", "--dyn-syms"],
        violation: wrong_exports,
    },
    Check {
        promise: "needs no libibverbs to be loaded",
        options: &["--wide", "--dynamic"],
        violation: needs_libibverbs,
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
    let is_plugin = |name: &&str| {
        name.strip_prefix("ncclNetPlugin_v").is_some_and(|version| {
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let others: Vec<_> = exports(table).filter(|name| !is_plugin(name)).collect();
    if !others.is_empty() {
        return Some(format!("it also exports {}", others.join(", ")));
    }
    (exports(table).next().is_none()).then(|| "it exports nothing".to_owned())
}

fn needs_libibverbs(dynamic: &str) -> Option<String> {
    let needed = dynamic
        .lines()
        .find(|line| line.contains("(NEEDED)") && line.contains("libibverbs"));
    needed.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
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

    const GOOD: &str = "\
Symbol table '.dynsym' contains 5 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND malloc@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     3: 00000000000a7010   160 OBJECT  GLOBAL DEFAULT   25 ncclNetPlugin_v8
     4: 00000000000a70b0   168 OBJECT  GLOBAL DEFAULT   25 ncclNetPlugin_v12
";

    #[test]
    fn exports_are_the_plugin_and_nothing_else() {
        assert_eq!(
            exports(GOOD).collect::<Vec<_>>(),
            ["ncclNetPlugin_v8", "ncclNetPlugin_v12"]
        );
        assert_eq!(wrong_exports(GOOD), None);
        for extra in [
            "     5: 00000000000a7158     4 FUNC    GLOBAL DEFAULT   12 rust_eh_personality\n",
            "     5: 00000000000a7158     4 FUNC    WEAK   PROTECTED 12 ncclNetPlugin_vX\n",
            "     5: 00000000000a7158     4 OBJECT  GLOBAL DEFAULT   12 ncclNetPlugin_v\n",
        ] {
            assert!(
                wrong_exports(&format!("{GOOD}{extra}")).is_some(),
                "{extra}"
            );
        }
        let hidden = "     5: 00000000000a7158     4 FUNC    GLOBAL HIDDEN   12 inner\n";
        assert_eq!(wrong_exports(&format!("{GOOD}{hidden}")), None);
        let without: String = GOOD
            .lines()
            .take(5)
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(
            wrong_exports(&without).as_deref(),
            Some("it exports nothing")
        );
    }

    #[test]
    fn the_dynamic_section_is_checked() {
        let libc = " 0x0000000000000001 (NEEDED)   Shared library: [libc.so.6]\n";
        let ibverbs = " 0x0000000000000001 (NEEDED)   Shared library: [libibverbs.so.1]\n";
        assert_eq!(needs_libibverbs(libc), None);
        assert!(needs_libibverbs(&format!("{libc}{ibverbs}")).is_some());

        let nodelete = " 0x000000006ffffffb (FLAGS_1)            Flags: NOW NODELETE\n";
        let now = " 0x000000006ffffffb (FLAGS_1)            Flags: NOW\n";
        assert_eq!(can_be_unloaded(nodelete), None);
        assert!(can_be_unloaded(now).is_some());
        assert!(can_be_unloaded(libc).is_some());
    }
}
