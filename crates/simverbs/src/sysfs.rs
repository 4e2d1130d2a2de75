//! [`Sysfs`]: a directory that looks like what the kernel shows of the devices.
//!
//! Programs look there for what verbs do not tell: which PCI device an adapter is, and on old
//! libraries the types of GIDs. The tree is made of plain files and links:
//!
//! ```text
//! class/infiniband/NAME            -> the device's directory
//! devices/pci0000:00/ADDRESS/infiniband/NAME     (or devices/virtual/infiniband/NAME)
//!     device                       -> ../..      (PCI devices only)
//!     node_guid, sys_image_guid, fw_ver, node_type
//!     ports/N/state, phys_state, link_layer, lid
//!     ports/N/gids/I, gid_attrs/types/I, gid_attrs/ndevs/I, pkeys/I
//! devices/pci0000:00/ADDRESS/physfn              (virtual functions only)
//! devices/pci0000:00/ADDRESS                     (Data Direct functions: an empty directory)
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ibnet_verbs::{Gid, GidType};

use crate::engine::device::{Device, Port};
use crate::spec::{DeviceSpec, GidSlot};

/// The directory of a fabric. Removed on drop.
pub(crate) struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// Makes an empty directory of its own, below the system's directory for temporary files.
    pub(crate) fn create(number: usize) -> io::Result<Self> {
        let name = format!("simverbs-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a process of the same number left behind when it was killed.
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(root.join("class/infiniband"))?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a device (`ibdev_path`).
    pub(crate) fn device_path(&self, name: &str) -> PathBuf {
        self.root.join("class/infiniband").join(name)
    }

    /// Adds a device.
    pub(crate) fn add(&self, device: &Device) -> io::Result<()> {
        let spec = &device.spec;
        let parent = match &spec.pci {
            Some(address) => self.pci_path(address),
            None => self.root.join("devices/virtual"),
        };
        let directory = parent.join("infiniband").join(&spec.name);
        fs::create_dir_all(&directory)?;
        if spec.pci.is_some() {
            symlink("../..", directory.join("device"))?;
        }
        symlink(&directory, self.device_path(&spec.name))?;
        self.link_functions(spec, &parent)?;
        if let Some(address) = &spec.data_direct {
            fs::create_dir_all(self.pci_path(address))?;
        }

        let write = |name: &str, text: String| fs::write(directory.join(name), text + "\n");
        write("node_guid", guid_text(device.guid))?;
        write("sys_image_guid", guid_text(device.system_guid))?;
        write("fw_ver", spec.firmware.clone())?;
        write("node_type", "1: CA".to_owned())?;
        for (index, port) in device.ports.iter().enumerate() {
            self.write_port(&spec.name, index, port)?;
        }
        Ok(())
    }

    fn pci_path(&self, address: &str) -> PathBuf {
        self.root.join(pci_directory(address))
    }

    /// Links a virtual function and its physical one with each other.
    fn link_functions(&self, spec: &DeviceSpec, own: &Path) -> io::Result<()> {
        let (Some(address), Some(physical)) = (&spec.pci, &spec.physical_function) else {
            return Ok(());
        };
        let parent = self.pci_path(physical);
        fs::create_dir_all(&parent)?;
        symlink(format!("../{physical}"), own.join("physfn"))?;
        let free = (0..).map(|number| parent.join(format!("virtfn{number}")));
        // There are more numbers than entries of a directory.
        match free
            .into_iter()
            .find(|path| path.symlink_metadata().is_err())
        {
            Some(link) => symlink(format!("../{address}"), link),
            None => Ok(()),
        }
    }

    /// Writes what is to be seen of a port now.
    pub(crate) fn write_port(&self, device: &str, index: usize, port: &Port) -> io::Result<()> {
        let ports = self.device_path(device).join("ports");
        let directory = ports.join((index + 1).to_string());
        for name in ["gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys"] {
            fs::create_dir_all(directory.join(name))?;
        }
        let write = |name: &str, text: String| fs::write(directory.join(name), text + "\n");
        let (state, physical) = match port.is_up {
            true => ("4: ACTIVE", "5: LinkUp"),
            false => ("1: DOWN", "3: Disabled"),
        };
        write("state", state.to_owned())?;
        write("phys_state", physical.to_owned())?;
        write("lid", format!("{:#x}", port.lid))?;
        let link_layer = match port.is_ethernet() {
            true => "Ethernet",
            false => "InfiniBand",
        };
        write("link_layer", link_layer.to_owned())?;
        for (index, pkey) in port.spec.pkeys.iter().enumerate() {
            write(&format!("pkeys/{index}"), format!("{pkey:#06x}"))?;
        }
        for (index, slot) in port.gids.iter().enumerate() {
            write_gid(&directory, index, slot)?;
        }
        Ok(())
    }
}

/// The directory of a PCI function, below the root.
pub(crate) fn pci_directory(address: &str) -> PathBuf {
    Path::new("devices/pci0000:00").join(address)
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(root = %self.root.display(), %error, "cannot remove a directory");
        }
    }
}

/// Writes one place of a GID table. As plain files cannot fail to be read, the type and interface
/// of an empty or unreadable place are missing.
fn write_gid(port: &Path, index: usize, slot: &GidSlot) -> io::Result<()> {
    let file = |name: &str| port.join(name).join(index.to_string());
    let gid = slot.gid().unwrap_or_default();
    fs::write(file("gids"), gid_text(&gid) + "\n")?;
    let (types, interfaces) = (file("gid_attrs/types"), file("gid_attrs/ndevs"));
    let GidSlot::Entry {
        gid_type, netdev, ..
    } = slot
    else {
        return remove(&types).and_then(|()| remove(&interfaces));
    };
    let text = match *gid_type {
        GidType::RoceV2 => "RoCE v2\n",
        _ => "IB/RoCE v1\n",
    };
    fs::write(types, text)?;
    match netdev.and_then(interface_name) {
        Some(name) => fs::write(interfaces, name + "\n"),
        None => remove(&interfaces),
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Eight groups of four digits, as the kernel writes it.
fn gid_text(gid: &Gid) -> String {
    let groups = gid.to_ipv6().segments().map(|group| format!("{group:04x}"));
    groups.join(":")
}

/// Four groups of four digits, as the kernel writes it.
fn guid_text(guid: u64) -> String {
    let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", guid >> shift & 0xffff));
    groups.join(":")
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer is as long as the call demands.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let length = name.iter().position(|&byte| byte == 0)?;
    String::from_utf8(name[..length].to_vec()).ok()
}
