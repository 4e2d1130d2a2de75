//! Where a device sits: its PCI function, and the card that the function is a part of.
//!
//! One card shows up as several PCI functions: one for each port, and any number of virtual ones.
//! They share the card's link to the host, which NCCL must know: so it is told the same path for
//! all of them. What belongs together is read from sysfs, never guessed from the text of a path: in
//! virtual machines and on root complexes unrelated devices have neighbouring addresses.

use std::fs;
use std::path::{Path, PathBuf};

use super::pci::PciAddress;

/// A PCI function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) address: PciAddress,
    /// Its directory in sysfs, resolved.
    path: PathBuf,
    /// Of a virtual function, the address of the physical one that it belongs to.
    pub(super) physical: Option<PciAddress>,
    /// The directory of that one. None if the link leads nowhere, as in a container that is shown less than the
    /// machine has.
    physical_path: Option<PathBuf>,
}

impl Function {
    /// The function of the RDMA device whose directory in sysfs is `device`. None for software
    /// devices, and for those on no PCI bus.
    pub(super) fn of_device(device: &Path) -> Option<Self> {
        Self::above(&device.join("device").canonicalize().ok()?)
    }

    /// The function at `path`, or the nearest that it is below: sub-functions (scalable functions)
    /// of a card are devices of their own below its PCI function.
    pub(super) fn above(path: &Path) -> Option<Self> {
        let (path, address) = path
            .ancestors()
            .find_map(|path| Some((path, address_of(path)?)))?;
        let link = path.join("physfn");
        let physical = fs::read_link(&link).ok().as_deref().and_then(address_of);
        Some(Self {
            address,
            path: path.to_owned(),
            physical,
            physical_path: physical.and_then(|_| link.canonicalize().ok()),
        })
    }

    /// The directory in sysfs of the function that stands for the whole card. With `merge_vfs` a
    /// virtual function is a part of its physical one's card; without, it stands for itself.
    pub(super) fn card(&self, merge_vfs: bool) -> PathBuf {
        match (self.physical, &self.physical_path) {
            (None, _) => first_function(&self.path, self.address),
            (Some(address), Some(path)) if merge_vfs => first_function(path, address),
            _ => self.path.clone(),
        }
    }
}

fn address_of(path: &Path) -> Option<PciAddress> {
    path.file_name()?.to_str()?.parse().ok()
}

/// The directory of function 0 of the card of `path`, if that is another port of the same card: of
/// the same vendor and kind. A virtual machine may have anything there.
fn first_function(path: &Path, address: PciAddress) -> PathBuf {
    let first = PciAddress {
        function: 0,
        ..address
    };
    let sibling = path.with_file_name(first.to_string());
    let is_same = |file: &str| {
        let text = |function: &Path| fs::read_to_string(function.join(file)).ok();
        text(path).is_some() && text(path) == text(&sibling)
    };
    if is_same("vendor") && is_same("device") {
        sibling
    } else {
        path.to_owned()
    }
}
