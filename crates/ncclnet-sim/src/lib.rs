//! The plugin of `ncclnet-ffi` on simulated devices, as a shared library for tests.
//!
//! It exports the same tables, and its user finds the devices of a simulated fabric instead
//! of the machine's: `sim0` and `sim1`, both RoCE, or those that `NCCLNET_SIM_DEVICES` names
//! (`sim0,sim1`; a name may be followed by `:roce` or `:infiniband`). They belong to the process that
//! loads the library, so both ends of a connection must be in it.
//!
//! They take any file that can be mapped for a DMA-BUF. What sysfs shows of them is in the directory that
//! `NCCLNET_SIM_SYSFS` names: their PCI addresses, and whether a peer-memory module is loaded, so that GPU
//! memory can be registered, which host memory plays. Without the variable it is the machine's own.
//!
//! Jobs do not need this. The real plugin has no trace of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ibnet_simverbs::{DeviceSpec, Fabric};

// Linked for its exported tables.
pub use ncclnet_ffi::ncclNetPlugin_v12;

/// The variable that names the devices.
const DEVICES: &str = "NCCLNET_SIM_DEVICES";

/// The variable that names the directory in place of `/sys`.
const SYSFS: &str = "NCCLNET_SIM_SYSFS";

/// Lives as long as the process: a fabric takes its devices along.
static FABRIC: OnceLock<Fabric> = OnceLock::new();

/// Called by the dynamic linker before dlopen(3) returns, and therefore before any `init`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = provide_devices;

extern "C" fn provide_devices() {
    let names = std::env::var(DEVICES).unwrap_or_else(|_| "sim0,sim1".to_owned());
    let sysfs = std::env::var_os(SYSFS).map(PathBuf::from);
    if let Some(root) = &sysfs {
        ncclnet_ffi::use_sysfs(root.clone());
    }
    match fabric(&names, sysfs.as_deref()) {
        Ok(fabric) => ncclnet_ffi::use_library(FABRIC.get_or_init(|| fabric).library()),
        Err(problem) => {
            // There is no caller to return an error to, and going on would end on real devices.
            eprintln!("{DEVICES}={names}: {problem}");
            std::process::abort();
        }
    }
}

/// A free-running fabric with the devices of this list, whose directories are in `sysfs`, if they are
/// anywhere.
fn fabric(names: &str, sysfs: Option<&Path>) -> Result<Fabric, String> {
    let mut builder = Fabric::builder();
    for item in names.split(',') {
        let mut device = match item.split_once(':').unwrap_or((item, "roce")) {
            (name, "roce") => DeviceSpec::roce(name),
            (name, "infiniband") => DeviceSpec::infiniband(name),
            (_, other) => return Err(format!("{other} is neither roce nor infiniband")),
        };
        if let Some(root) = sysfs {
            let name = item.split(':').next().unwrap_or(item);
            device = device.sysfs_path(root.join("class/infiniband").join(name));
        }
        builder = builder.device(device);
    }
    builder.build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(list: &str) -> Vec<String> {
        let devices = fabric(list, None).unwrap().library().devices().unwrap();
        devices
            .iter()
            .map(|device| device.name().to_string())
            .collect()
    }

    #[test]
    fn devices_are_those_of_the_list() {
        assert_eq!(names("sim0,sim1"), ["sim0", "sim1"]);
        assert_eq!(names("a:infiniband,b:roce,c"), ["a", "b", "c"]);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for (list, named) in [("", "name"), ("a,a", "a"), ("a:token_ring", "token_ring")] {
            let problem = fabric(list, None).unwrap_err();
            assert!(problem.contains(named), "{list}: {problem}");
        }
    }
}
