//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // NCCL unloads its plugins with the last communicator, but tells those of API versions before 11
    // nothing: a thread of ours would then run in memory that is gone.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libnccl-net-ibnet.so");
}
