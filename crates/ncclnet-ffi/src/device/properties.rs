//! A device as NCCL is told of it.

use std::ffi::c_int;
use std::ptr;

use ibnet::{DeviceInfo, MAX_GROUP};

use super::names::{Link, permanent, unique_link, unique_name};
use crate::abi::{
    MAX_COLLNET_SIZE, MAX_DEVICES_PER_NIC_V12, MAX_NET_SIZE_BYTES, NET_DEVICE_HOST,
    NET_DEVICE_INVALID_VERSION, NET_ID_UNDEFINED, PTR_CUDA, PTR_DMABUF, PTR_HOST, PropertiesV12,
    VIRTUAL_PLANE, VirtualDeviceV12,
};
use crate::fault::Fault;

/// What NCCL is told of a device whose speed is not known, in Mb/s: that of the slowest link that is
/// still in use, so that it never takes the place of a device that is known to be fast.
pub(super) const UNKNOWN_SPEED_MBPS: u32 = 10_000;

/// A device, which does not change for as long as the devices are open.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// The transport's own number of the device.
    pub(crate) index: usize,
    /// What NCCL is told, in the newest version's terms. Strings live as long as the process.
    pub(crate) properties: PropertiesV12,
}

// SAFETY: the pointers are to strings that are never freed or changed.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Device `index` of `devices`, which is a physical one, or one made of physical ones that NCCL calls
    /// by the same numbers as the transport.
    pub(super) fn of(devices: &[DeviceInfo], index: usize) -> Result<Self, Fault> {
        let info = &devices[index];
        let physical = || devices.iter().filter(|info| !info.is_virtual());
        let name = if info.is_virtual() {
            info.name.clone()
        } else {
            let named: Vec<_> = physical()
                .map(|info| (info.name.as_str(), info.port))
                .collect();
            unique_name(&named, index)
        };
        let links: Vec<_> = physical().map(Link::of).collect();
        // A virtual device has the links of its members, and shows itself as the first of them.
        let first = info.members.first().copied().unwrap_or(index);
        let (guid, port) = unique_link(&links, first);
        let pci_path = match &info.pci_path {
            Some(path) => permanent(&path.to_string_lossy())?.as_ptr(),
            None => ptr::null(),
        };
        let speed = match info.speed_mbps {
            0 => UNKNOWN_SPEED_MBPS,
            known => known,
        };
        let properties = PropertiesV12 {
            name: permanent(&name)?.as_ptr(),
            pci_path,
            guid,
            pointer_support: pointer_support(info),
            // The cache of registrations finds one that covers what is asked for.
            registration_is_global: 1,
            force_flush: info.force_flush.into(),
            speed: to_int(speed as usize),
            port,
            latency: 0.0,
            max_comms: to_int(info.max_connections as usize),
            max_receives: to_int(MAX_GROUP),
            device_type: NET_DEVICE_HOST,
            device_version: NET_DEVICE_INVALID_VERSION,
            virtual_device: members(info),
            max_p2p_bytes: whole_pages(info.max_message.min(MAX_NET_SIZE_BYTES)),
            max_collective_bytes: whole_pages(info.max_message.min(MAX_COLLNET_SIZE)),
            max_multi_request_size: 1,
            rail_id: info.rail.map_or(NET_ID_UNDEFINED, i16::from),
            plane_id: plane_id(devices, index),
        };
        Ok(Self { index, properties })
    }

    /// The numbers of the physical devices that it is made of.
    pub(crate) fn members(&self) -> &[c_int] {
        let VirtualDeviceV12 { count, devices } = &self.properties.virtual_device;
        &devices[..*count as usize]
    }

    /// `pointer_support` of API versions 2 to 5, which have no `regMrDmaBuf`.
    pub(crate) fn pointer_support_without_dmabuf(&self) -> c_int {
        self.properties.pointer_support & !PTR_DMABUF
    }
}

/// The physical devices that a device is made of: of a physical one itself. The transport makes none of more than
/// NCCL has room for.
fn members(info: &DeviceInfo) -> VirtualDeviceV12 {
    let mut devices = [0; MAX_DEVICES_PER_NIC_V12];
    let count = info.members.len().min(devices.len());
    for (place, member) in devices.iter_mut().zip(&info.members) {
        *place = to_int(*member);
    }
    VirtualDeviceV12 {
        count: to_int(count),
        devices,
    }
}

/// `bytes`, less what does not fill a page, unless it is less than one: NCCL cuts messages to this
/// size, and each piece is to begin at a page as the first does.
fn whole_pages(bytes: usize) -> usize {
    // SAFETY: the call takes a number and gives one.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    match bytes / page * page {
        0 => bytes,
        whole => whole,
    }
}

/// The plane of a device for NCCL: its number. Of a virtual device a mask with a bit for each of its
/// members' planes, by their places among all that are in use, the undefined one included; undefined
/// if there are more planes than bits.
fn plane_id(devices: &[DeviceInfo], device: usize) -> i16 {
    let info = &devices[device];
    if !info.is_virtual() {
        return info.plane.map_or(NET_ID_UNDEFINED, i16::from);
    }
    let mut planes: Vec<Option<u8>> = Vec::new();
    for physical in devices.iter().filter(|info| !info.is_virtual()) {
        if !planes.contains(&physical.plane) {
            planes.push(physical.plane);
        }
    }
    let mask = info.members.iter().try_fold(0, |mask, &member| {
        let plane = devices[member].plane;
        let place = planes.iter().position(|other| *other == plane)?;
        let bit = 1_i16.checked_shl(u32::try_from(place).ok()?)?;
        (0 < bit && bit < VIRTUAL_PLANE).then_some(mask | bit)
    });
    mask.map_or(NET_ID_UNDEFINED, |mask| mask | VIRTUAL_PLANE)
}

/// Which memory can be registered on a device: `PTR_*` bits. NCCL stages what it cannot.
fn pointer_support(info: &DeviceInfo) -> c_int {
    let mut bits = PTR_HOST;
    if info.peer_memory {
        bits |= PTR_CUDA;
    }
    if info.dmabuf {
        bits |= PTR_DMABUF;
    }
    bits
}

/// A number for C, as large as it can be.
pub(super) fn to_int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_c_are_cut_and_never_negative() {
        assert_eq!(to_int(5), 5);
        assert_eq!(to_int(usize::MAX), c_int::MAX);
    }
}
