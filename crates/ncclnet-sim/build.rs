//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // As the real plugin: its code must stay where its threads run.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
