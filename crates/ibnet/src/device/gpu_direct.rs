//! Whether devices can reach the memory of GPUs without a copy through the host's.
//!
//! Two ways: a peer-memory client, which is a kernel module that translates a GPU's addresses for
//! `ibv_reg_mr`; and DMA-BUFs, by which a GPU's driver hands memory to the adapter's.

use std::fs;
use std::path::Path;

use ibnet_verbs::ProtectionDomain;

/// Where kernels show the peer-memory clients, one directory for each: Linux with the patch of the
/// OFED drivers has the first; modules of newer kernels have one of the others.
const CLIENT_FOLDERS: [&str; 3] = [
    "kernel/mm/memory_peers",
    "kernel/memory_peers",
    "memory_peers",
];

/// NVIDIA's module for kernels that show no clients.
const NVIDIA_MODULE: &str = "module/nvidia_peermem/version";

/// The peer-memory client that is loaded, if one is, as a path below `sysfs`.
///
/// That the kernel could have a client (the symbol `ib_register_peer_memory_client`) does not
/// count: many kernels have the symbol and no client.
pub(super) fn peer_memory_client(sysfs: &Path) -> Option<String> {
    if sysfs.join(NVIDIA_MODULE).exists() {
        return Some(NVIDIA_MODULE.to_owned());
    }
    CLIENT_FOLDERS.iter().find_map(|folder| {
        let clients = fs::read_dir(sysfs.join(folder)).ok()?;
        let mut names: Vec<String> = clients
            .flatten()
            .filter(|client| client.path().is_dir())
            .map(|client| client.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.first().map(|name| format!("{folder}/{name}"))
    })
}

/// Whether the device of `pd` can register DMA-BUFs, as it answers itself.
pub(super) fn can_register_dmabuf(pd: &ProtectionDomain) -> bool {
    match pd.probe_dmabuf() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("no DMA-BUF: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::test_folder::TestFolder;

    #[test]
    fn every_place_and_every_vendor_counts() {
        // Not only NVIDIA's module at a path that one kernel has.
        for (file, expected) in [
            (
                "kernel/mm/memory_peers/nv_mem/version",
                "kernel/mm/memory_peers/nv_mem",
            ),
            (
                "kernel/mm/memory_peers/nv_mem_nc/version",
                "kernel/mm/memory_peers/nv_mem_nc",
            ),
            (
                "module/nvidia_peermem/version",
                "module/nvidia_peermem/version",
            ),
            (
                "kernel/mm/memory_peers/amdkfd/version",
                "kernel/mm/memory_peers/amdkfd",
            ),
            (
                "kernel/memory_peers/amdkfd/num_alloc_mrs",
                "kernel/memory_peers/amdkfd",
            ),
            ("memory_peers/amdkfd/version", "memory_peers/amdkfd"),
        ] {
            let root = TestFolder::new();
            assert_eq!(peer_memory_client(root.path()), None);
            root.write(file, "1.0");
            assert_eq!(peer_memory_client(root.path()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_kernel_that_could_is_none_that_does() {
        let root = TestFolder::new();
        root.write("kernel/mm/memory_peers/README", "no client is registered");
        root.write("module/nvidia/version", "550");
        assert_eq!(peer_memory_client(root.path()), None);
        assert_eq!(peer_memory_client(Path::new("/nonexistent")), None);
    }
}
