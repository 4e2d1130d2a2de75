//! Link arguments of the shared library.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link/glibc.c");
    // NCCL unloads its plugins with the last communicator, but tells those of API versions before 11
    // nothing: a thread of ours would then run in memory that is gone.
    link_argument("-Wl,-z,nodelete");
    link_argument("-Wl,-soname,libnccl-net-ibnet.so");
    work_with_old_glibc();
}

/// Has the library be loadable with glibc 2.28 and later, whatever it is linked with.
fn work_with_old_glibc() {
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let known = ["x86_64", "aarch64"].contains(&target("ARCH").as_str());
    if target("OS") != "linux" || target("ENV") != "gnu" || !known {
        return;
    }
    let objects = cc::Build::new()
        .file("link/glibc.c")
        .warnings(false)
        .pic(true)
        .cargo_metadata(false)
        .compile_intermediates();
    for object in objects {
        link_argument(&object.display().to_string());
    }
    // Where the functions are before glibc 2.34; after it, empty files that are still there.
    link_argument("-Wl,--push-state,--no-as-needed");
    link_argument("-l:libpthread.so.0");
    link_argument("-l:libdl.so.2");
    link_argument("-Wl,--pop-state");
}

fn link_argument(argument: &str) {
    println!("cargo::rustc-link-arg-cdylib={argument}");
}
