//! The guest's kernel: given by the user, cached, or fetched as a package of the distribution.
//!
//! Nothing is installed on the host: the packages are unpacked into a folder below `target`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Context, Failure, Result, fail};
use crate::paths;
use crate::process::{command, run};
use crate::progress::Step;
use crate::setup::apt;

/// A kernel image and its modules.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    /// The compressed image.
    pub(super) image: PathBuf,
    /// The folder of its modules, `lib/modules/VERSION`.
    pub(super) modules: PathBuf,
    /// As `uname -r` prints it.
    pub(super) version: String,
}

/// The newest kernel below a folder with `lib/modules/VERSION`, and the image beside the modules or
/// as `boot/vmlinuz-VERSION`. One with the RXE driver is preferred.
pub(super) fn from_folder(folder: &Path) -> Result<Kernel> {
    let folder = folder
        .canonicalize()
        .context(|| format!("cannot find the kernel's folder {}", folder.display()))?;
    let mut kernels: Vec<_> = ["lib/modules/*", "usr/lib/modules/*"]
        .iter()
        .flat_map(|pattern| paths::expand(&folder.join(pattern)))
        .filter_map(|modules| with_image(&folder, modules))
        .collect();
    kernels.sort_by_cached_key(|kernel| (kernel.has_rxe(), version_key(&kernel.version)));
    match kernels.pop() {
        Some(kernel) => Ok(kernel),
        None => fail!(
            "there is no kernel in {}: looked for lib/modules/VERSION with boot/vmlinuz-VERSION",
            folder.display()
        ),
    }
}

/// The cached kernel, or the distribution's current one, which is then cached. `folder` is where it
/// is fetched, on the same file system as the cache.
pub(super) fn cached_or_fetched(folder: &Path) -> Result<Kernel> {
    let cache = paths::soft_roce().join("kernel");
    if let Ok(kernel) = from_folder(&cache) {
        return Ok(kernel);
    }
    let step = Step::begin("fetching a kernel as a package (once; about 70 MB)");
    let fresh = folder.join("kernel");
    fetch(&fresh).map_err(|failure| {
        Failure::new(format!(
            "no kernel for the machine: {failure}\n(`--kernel DIR` takes one from a folder instead)"
        ))
    })?;
    let kernel = from_folder(&fresh)?;
    // Another run may have been quicker, and uses its own already.
    if from_folder(&cache).is_err() {
        paths::remove_folder(&cache)?;
        fs::rename(&fresh, &cache).context(|| format!("cannot make {}", cache.display()))?;
    }
    step.done(&format!("kernel {} is in the cache", kernel.version));
    from_folder(&cache)
}

impl Kernel {
    fn has_rxe(&self) -> bool {
        let driver = self.modules.join("kernel/drivers/infiniband/sw/rxe");
        driver.exists()
    }
}

fn with_image(folder: &Path, modules: PathBuf) -> Option<Kernel> {
    let version = modules.file_name()?.to_string_lossy().into_owned();
    let beside = modules.join("vmlinuz");
    let image = [
        folder.join("boot").join(format!("vmlinuz-{version}")),
        beside,
    ];
    let image = image.into_iter().find(|image| image.exists())?;
    Some(Kernel {
        image,
        modules,
        version,
    })
}

/// Orders versions as people do: numbers by value, the rest by letters.
fn version_key(version: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = version;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (text, tail) = tail.split_at(letters);
        key.push((number.parse().unwrap_or(0), text.to_owned()));
        rest = tail;
    }
    key
}

/// Downloads the current kernel's packages and unpacks them into the folder, which is created.
fn fetch(folder: &Path) -> Result<()> {
    paths::create_folder(folder)?;
    let packages = kernel_packages()?;
    apt::download(&packages, folder)?;
    for package in paths::expand(&folder.join("*.deb")) {
        run(command("dpkg")?.arg("-x").arg(&package).arg(folder))?;
        fs::remove_file(&package).context(|| format!("cannot remove {}", package.display()))?;
    }
    Ok(())
}

/// The names of the packages that hold the current kernel and its modules. The package that always
/// depends on the current image is `linux-image-amd64` on Debian and `linux-image-generic` on
/// Ubuntu.
fn kernel_packages() -> Result<Vec<String>> {
    for current in ["linux-image-amd64", "linux-image-generic"] {
        // An unknown package is an error of apt-cache; the next name may be known.
        let packages = packages_of(&apt::dependencies(current).unwrap_or_default());
        if !packages.is_empty() {
            return Ok(packages);
        }
    }
    fail!(
        "the package lists name no kernel image (linux-image-amd64 or linux-image-generic); \
         `apt-get update` as root renews them"
    )
}

/// Debian has image and modules in one package; Ubuntu has the modules in two others, of which the
/// second has RXE.
fn packages_of(dependencies: &[String]) -> Vec<String> {
    let has_version = |name: &&String| {
        name.strip_prefix("linux-image-")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let Some(image) = dependencies.iter().find(has_version) else {
        return Vec::new();
    };
    let mut packages = vec![image.clone()];
    if image.ends_with("-generic") {
        packages.push(image.replacen("linux-image-", "linux-modules-", 1));
        packages.push(image.replacen("linux-image-", "linux-modules-extra-", 1));
    }
    packages
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::process;

    fn tree(name: &str, files: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", process::id()));
        for file in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        folder.canonicalize().unwrap()
    }

    #[test]
    fn the_newest_kernel_with_rxe_is_chosen() {
        let rxe = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko";
        let folder = tree(
            "kernels",
            &[
                "boot/vmlinuz-6.1.0-9-amd64",
                &format!("lib/modules/6.1.0-9-amd64/{rxe}"),
                "boot/vmlinuz-6.1.0-57-amd64",
                &format!("lib/modules/6.1.0-57-amd64/{rxe}"),
                "boot/vmlinuz-6.1.0-60-cloud-amd64",
                "lib/modules/6.1.0-60-cloud-amd64/modules.builtin",
                &format!("lib/modules/6.9.0-no-image/{rxe}"),
            ],
        );
        let kernel = from_folder(&folder).unwrap();
        assert_eq!(kernel.version, "6.1.0-57-amd64");
        assert_eq!(kernel.image, folder.join("boot/vmlinuz-6.1.0-57-amd64"));
        assert_eq!(kernel.modules, folder.join("lib/modules/6.1.0-57-amd64"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_image_may_lie_beside_the_modules() {
        let folder = tree("beside", &["usr/lib/modules/6.12.1/vmlinuz"]);
        let kernel = from_folder(&folder).unwrap();
        assert_eq!(kernel.image, folder.join("usr/lib/modules/6.12.1/vmlinuz"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_without_a_kernel_is_named() {
        let folder = tree("empty", &["boot/vmlinuz-6.1.0"]);
        let failure = from_folder(&folder).unwrap_err().to_string();
        assert!(failure.contains(&*folder.to_string_lossy()), "{failure}");
        fs::remove_dir_all(folder).unwrap();
        assert!(from_folder(Path::new("/no/such/folder")).is_err());
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        assert!(version_key("6.1.0-57-amd64") > version_key("6.1.0-9-amd64"));
        assert!(version_key("6.10.0") > version_key("6.9.12"));
        assert!(version_key("6.1") < version_key("6.1.1"));
    }

    #[test]
    fn packages_follow_the_distribution() {
        let of = |name: &str| packages_of(&["linux-firmware".to_owned(), name.to_owned()]);
        assert_eq!(
            of("linux-image-6.1.0-57-amd64"),
            ["linux-image-6.1.0-57-amd64"]
        );
        assert_eq!(
            of("linux-image-6.8.0-60-generic"),
            [
                "linux-image-6.8.0-60-generic",
                "linux-modules-6.8.0-60-generic",
                "linux-modules-extra-6.8.0-60-generic"
            ]
        );
        assert!(of("linux-image-amd64").is_empty());
    }
}
