//! Where things lie in the checkout, and file names with wildcards.

use std::env;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::failure::{Context, Result};

/// The root of the workspace: of the one that cargo runs this program from. A checkout that was
/// copied with its target folder would otherwise act on the original.
pub(crate) fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().unwrap_or(&here).to_path_buf()
}

/// The folder of everything that is built or cached; `CARGO_TARGET_DIR` moves it as it does
/// cargo's own output.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) if !folder.is_empty() => root().join(folder),
        _ => root().join("target"),
    }
}

/// The folder of the Soft-RoCE machine: kernel cache, console log, and a folder per run.
pub(crate) fn soft_roce() -> PathBuf {
    target().join("soft-roce")
}

/// A file or folder of the plugin's crate.
pub(crate) fn plugin_crate(inside: &str) -> PathBuf {
    root().join("crates/ncclnet-ffi").join(inside)
}

/// Creates the folder and those above it.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))
}

/// Removes the folder and all in it; it may be missing.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.context(|| format!("cannot remove {}", folder.display())),
    }
}

/// All existing files and folders that match an absolute pattern, sorted. A `*` stands for any
/// characters within one component of the path.
pub(crate) fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            continue;
        };
        let name = name.to_string_lossy();
        found = if name.contains('*') {
            found
                .iter()
                .flat_map(|folder| entries_like(folder, &name))
                .collect()
        } else {
            found
                .iter()
                .map(|folder| folder.join(&*name))
                .filter(|path| path.exists())
                .collect()
        };
    }
    found
}

fn entries_like(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| matches(pattern, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether a name matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_within_a_name() {
        for (pattern, name, expected) in [
            ("librxe-rdmav*.so", "librxe-rdmav34.so", true),
            ("librxe-rdmav*.so", "librxe-rdmav.so", true),
            ("librxe-rdmav*.so", "librxe-rdmav34.so.1", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("é*", "éa", true),
            ("plain", "plainer", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_expand_to_what_exists() {
        let manifest = root().join("xtask/Cargo.toml");
        assert_eq!(
            expand(&root().join("xta*/Cargo.*ml")),
            std::slice::from_ref(&manifest)
        );
        assert_eq!(expand(&manifest), [manifest]);
        assert!(expand(&root().join("xtask/nothing-*")).is_empty());
        assert!(expand(&root().join("nothing/*")).is_empty());
    }
}
