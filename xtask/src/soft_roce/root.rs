//! A root file system under construction: files of this host at the same places, with the shared
//! libraries that they need.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::failure::{Context, Failure, Result, fail};
use crate::paths;
use crate::process::{command, describe};

/// The folder that becomes the guest's `/`.
pub(super) struct Root {
    folder: PathBuf,
    libraries: HashSet<PathBuf>,
}

impl Root {
    /// An empty root with the usual folders; `/bin`, `/sbin` and `/lib*` point into `/usr`, as on
    /// today's distributions.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let root = Self {
            folder: folder.to_path_buf(),
            libraries: HashSet::new(),
        };
        for name in ["bin", "sbin", "lib", "lib64", "lib32"] {
            root.folder(&format!("usr/{name}"))?;
            root.link(&format!("usr/{name}"), &format!("/{name}"))?;
        }
        for name in ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
            root.folder(name)?;
        }
        Ok(root)
    }

    /// The path on the host of a path in the root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    /// Whether there is something at the path, if only a link.
    pub(super) fn has(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// Creates a folder and those above it.
    pub(super) fn folder(&self, path: &str) -> Result<PathBuf> {
        let folder = self.at(path);
        paths::create_folder(&folder)?;
        Ok(folder)
    }

    /// Writes a file; `mode` is its permissions.
    pub(super) fn write(&self, path: &str, text: &str, mode: u32) -> Result<()> {
        let file = self.at(path);
        fs::write(&file, text)
            .and_then(|()| fs::set_permissions(&file, Permissions::from_mode(mode)))
            .context(|| format!("cannot write {}", file.display()))
    }

    /// Makes a symbolic link at `path` to `target`.
    pub(super) fn link(&self, target: &str, path: &str) -> Result<()> {
        let link = self.at(path);
        symlink(target, &link).context(|| format!("cannot make the link {}", link.display()))
    }

    /// Copies a file of the host to the same path.
    pub(super) fn copy(&self, file: &Path) -> Result<PathBuf> {
        let copy = self.at(&file.to_string_lossy());
        if let Some(folder) = copy.parent() {
            paths::create_folder(folder)?;
        }
        fs::copy(file, &copy)
            .context(|| format!("cannot copy {} to {}", file.display(), copy.display()))?;
        Ok(copy)
    }

    /// Copies a program or shared library of the host, and the libraries that it needs.
    pub(super) fn copy_binary(&mut self, file: &Path) -> Result<()> {
        self.copy(file)?;
        self.copy_libraries_of(file)
    }

    /// Copies the shared libraries that a file needs.
    pub(super) fn copy_libraries_of(&mut self, file: &Path) -> Result<()> {
        for library in libraries_of(file)? {
            if self.libraries.insert(library.clone()) {
                self.copy(&library)?;
            }
        }
        Ok(())
    }
}

fn libraries_of(file: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = command("ldd")?;
    // What it says of static programs is recognised by its words.
    ldd.arg(file).env("LC_ALL", "C");
    let output = ldd
        .output()
        .context(|| format!("cannot run `{}`", describe(&ldd)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !errors.contains("not a dynamic executable") {
        fail!(
            "`{}` failed: {} {}",
            describe(&ldd),
            text.trim(),
            errors.trim()
        );
    }
    parse_ldd(&text).map_err(|missing| {
        Failure::new(format!(
            "{} needs the library {missing}, which is not on this host",
            file.display()
        ))
    })
}

/// The paths that `ldd` prints, or the name of the first library that it has not found.
fn parse_ldd(text: &str) -> std::result::Result<Vec<PathBuf>, String> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            return Err(name.to_owned());
        }
        // The kernel's own linux-vdso has no file; lines about static programs have no path.
        if let Some((path, _)) = place.split_once(" (0x")
            && path.starts_with('/')
        {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_output_of_ldd_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibibverbs.so.1 => /lib/x86_64-linux-gnu/libibverbs.so.1 (0x00007f8f)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f8e)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f90)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libibverbs.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(text).unwrap(), expected.map(PathBuf::from));
    }

    #[test]
    fn static_programs_need_nothing_and_missing_libraries_are_named() {
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
        let text = "\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\tlibx.so.2 => not found\n";
        assert_eq!(parse_ldd(text), Err("libx.so.2".to_owned()));
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let folder = std::env::temp_dir().join(format!("xtask-root-{}", std::process::id()));
        let mut root = Root::create(&folder).unwrap();
        root.copy_binary(Path::new("/bin/sh")).unwrap();
        assert!(root.at("/usr/bin/sh").exists());
        let libraries = libraries_of(Path::new("/bin/sh")).unwrap();
        assert!(!libraries.is_empty());
        for library in libraries {
            assert!(
                root.at(&library.to_string_lossy()).exists(),
                "{}",
                library.display()
            );
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
