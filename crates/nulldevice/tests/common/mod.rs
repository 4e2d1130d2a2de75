//! Makes the shared library of the null device, for tests. Those of `ncclnet-bench` use it, too.
#![allow(clippy::unwrap_used)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Links the library as `libibverbs.so.1` and `libibverbs.so` into a folder of this name, and returns
/// the folder. The C compiler is the one that Rust links with.
pub(crate) fn link(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nulldevice/libibverbs.map");
    for file in ["libibverbs.so.1", "libibverbs.so"] {
        let output = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .arg("-shared")
            .arg("-o")
            .arg(folder.join(file))
            .arg(format!("-Wl,-soname,{file}"))
            .arg(format!("-Wl,--version-script={}", map.display()))
            .arg("-Wl,--gc-sections,--whole-archive")
            .arg(archive())
            .arg("-Wl,--no-whole-archive")
            .args(["-lgcc_s", "-lpthread", "-ldl", "-lm"])
            .output()
            .expect("a C compiler is needed, as it is for linking Rust programs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
    folder
}

/// The static library that was built for the running test: cargo puts both into one folder, and a
/// number into the name. Those of earlier builds may be there still.
fn archive() -> PathBuf {
    let test = env::current_exe().unwrap();
    let entries = std::fs::read_dir(test.parent().unwrap()).unwrap();
    let archives = entries.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libibnet_nulldevice") && name.ends_with(".a")
    });
    let age = |path: &PathBuf| -> SystemTime { path.metadata().unwrap().modified().unwrap() };
    archives
        .max_by_key(age)
        .expect("libibnet_nulldevice was not built")
}
