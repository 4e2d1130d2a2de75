//! Kernel modules for the guest: those that are wanted and those that they need, unpacked, in the
//! order in which they load.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::failure::{Context, Result, fail};
use crate::process::{capture, command, run};

use super::kernel::Kernel;

/// Modules that the guest cannot do without.
const WANTED: &[&str] = &["ib_uverbs", "rdma_rxe", "dummy", "veth", "sch_netem"];

/// Parameters of modules: by itself, dummy makes a link `dummy0` as soon as it is loaded.
const PARAMETERS: &[(&str, &str)] = &[("dummy", "numdummies=0")];

/// Modules that come first where the kernel has them: RXE asks the crypto layer for its checksum by
/// name, which no dependency between modules shows. Newer kernels have it built in.
const CHECKSUMS: &[&str] = &["crc32_generic", "crc32c_generic"];

/// Copies the modules into a folder and writes the list of their files, in load order, to `order`
/// beside them.
pub(super) fn install(kernel: &Kernel, folder: &Path) -> Result<()> {
    let available = Available::of(kernel)?;
    let checksums = CHECKSUMS
        .iter()
        .filter(|name| available.files.contains_key(**name));
    let wanted: Vec<&str> = checksums.chain(WANTED).copied().collect();
    let order = load_order(&wanted, &mut |name| {
        if available.built_in.contains(name) {
            return Ok(None);
        }
        let Some(file) = available.files.get(name) else {
            fail!(
                "kernel {} has no module {name}: kernels for clouds leave RDMA out, and Ubuntu's \
                 needs its package linux-modules-extra",
                kernel.version
            );
        };
        let copy = unpack(file, &folder.join(format!("{name}.ko")))?;
        let needed = capture(command("modinfo")?.args(["-F", "depends"]).arg(copy))?;
        Ok(Some(parse_names(&needed)))
    })?;
    let list: String = order.iter().map(|name| order_line(name)).collect();
    let file = folder.join("order");
    fs::write(&file, list).context(|| format!("cannot write {}", file.display()))
}

/// A line of the list: the file, and parameters.
fn order_line(name: &str) -> String {
    match PARAMETERS.iter().find(|(module, _)| *module == name) {
        Some((_, parameters)) => format!("{name}.ko {parameters}\n"),
        None => format!("{name}.ko\n"),
    }
}

/// The modules of a kernel, by name.
struct Available {
    files: HashMap<String, PathBuf>,
    built_in: HashSet<String>,
}

impl Available {
    fn of(kernel: &Kernel) -> Result<Self> {
        let mut files = HashMap::new();
        collect(&kernel.modules.join("kernel"), &mut files)?;
        // The list is missing only where nothing is built in as a module would be.
        let built_in = fs::read_to_string(kernel.modules.join("modules.builtin"));
        let built_in = built_in.unwrap_or_default();
        let built_in = built_in
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, built_in })
    }
}

fn collect(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// A module's name from that of its file: `a-b.ko.xz` holds `a_b`.
fn module_name(file: &Path) -> Option<String> {
    let file = file.file_name()?.to_str()?;
    let (name, packing) = file.split_once(".ko")?;
    matches!(packing, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

fn parse_names(list: &str) -> Vec<String> {
    let names = list.trim().split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

/// The modules and all that they need, each after what it needs. `needs` tells what a module needs,
/// or `None` for one that is part of the kernel itself.
fn load_order(
    wanted: &[&str],
    needs: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>,
) -> Result<Vec<String>> {
    let mut order = Vec::new();
    let mut seen = HashSet::new();
    for name in wanted {
        visit(name, needs, &mut seen, &mut order)?;
    }
    Ok(order)
}

fn visit(
    name: &str,
    needs: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>,
    seen: &mut HashSet<String>,
    order: &mut Vec<String>,
) -> Result<()> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    if let Some(needed) = needs(name)? {
        for other in needed {
            visit(&other, needs, seen, order)?;
        }
        order.push(name.to_owned());
    }
    Ok(())
}

/// Copies a module without its compression, which the guest's small tools may not know.
fn unpack(module: &Path, copy: &Path) -> Result<PathBuf> {
    let packing = module.extension().unwrap_or_default().to_string_lossy();
    let tool = match &*packing {
        "xz" => "xz",
        "zst" => "zstd",
        "gz" => "gzip",
        _ => {
            fs::copy(module, copy).context(|| format!("cannot copy {}", module.display()))?;
            return Ok(copy.to_path_buf());
        }
    };
    let output = File::create(copy).context(|| format!("cannot create {}", copy.display()))?;
    run(command(tool)?.arg("-dc").arg(module).stdout(output))?;
    Ok(copy.to_path_buf())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn modules_come_after_what_they_need_and_only_once() {
        let mut asked = Vec::new();
        let order = load_order(&["rxe", "veth", "core"], &mut |name| {
            asked.push(name.to_owned());
            Ok(match name {
                "rxe" => Some(vec!["uverbs".into(), "tunnel".into(), "core".into()]),
                "uverbs" => Some(vec!["core".into()]),
                "tunnel" => None,
                _ => Some(vec![]),
            })
        });
        assert_eq!(order.unwrap(), ["core", "uverbs", "rxe", "veth"]);
        asked.sort();
        assert_eq!(asked, ["core", "rxe", "tunnel", "uverbs", "veth"]);
    }

    #[test]
    fn modules_that_need_each_other_do_not_hang() {
        let order = load_order(&["a"], &mut |name| {
            Ok(Some(vec![if name == "a" { "b" } else { "a" }.to_owned()]))
        });
        assert_eq!(order.unwrap(), ["b", "a"]);
    }

    #[test]
    fn a_missing_module_ends_the_search() {
        let order = load_order(&["a"], &mut |name| {
            if name == "a" {
                Ok(Some(vec!["b".into()]))
            } else {
                fail!("no {name}")
            }
        });
        assert_eq!(order.unwrap_err().to_string(), "no b");
    }

    #[test]
    fn parameters_follow_the_file() {
        assert_eq!(order_line("dummy"), "dummy.ko numdummies=0\n");
        assert_eq!(order_line("veth"), "veth.ko\n");
    }

    #[test]
    fn names_come_from_files() {
        let name = |file| module_name(Path::new(file));
        assert_eq!(
            name("/k/crypto/crc32-pclmul.ko"),
            Some("crc32_pclmul".to_owned())
        );
        assert_eq!(name("kernel/rdma_rxe.ko.xz"), Some("rdma_rxe".to_owned()));
        assert_eq!(name("dummy.ko.zst"), Some("dummy".to_owned()));
        assert_eq!(name("modules.order"), None);
        assert_eq!(name("x.ko.sig"), None);
        assert_eq!(
            parse_names("ib-core,udp_tunnel\n"),
            ["ib_core", "udp_tunnel"]
        );
        assert!(parse_names("\n").is_empty());
    }
}
