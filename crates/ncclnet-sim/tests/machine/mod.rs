//! A directory that plays `/sys` for simulated devices: cards of their own in PCI slots, and a
//! peer-memory module.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory `name`, made anew.
pub(crate) fn sysfs(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for (device, address) in [("sim0", "0000:3b:00.0"), ("sim1", "0000:3c:00.0")] {
        let function = root.join("devices/pci0000:00").join(address);
        let folder = function.join("infiniband").join(device);
        fs::create_dir_all(&folder).unwrap();
        symlink("../..", folder.join("device")).unwrap();
        let class = root.join("class/infiniband");
        fs::create_dir_all(&class).unwrap();
        symlink(&folder, class.join(device)).unwrap();
    }
    let client = root.join("kernel/mm/memory_peers/nv_mem");
    fs::create_dir_all(&client).unwrap();
    fs::write(client.join("version"), "1.0\n").unwrap();
    root
}
