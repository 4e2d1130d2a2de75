//! What NCCL is told of a device, in the newest version's terms.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use ibnet::{DeviceInfo, MAX_GROUP};

use super::names::{Link, permanent, unique_link, unique_name};
use crate::abi::{
    MAX_COLLNET_SIZE, MAX_NET_SIZE_BYTES, NET_DEVICE_HOST, NET_DEVICE_INVALID_VERSION,
    NET_ID_UNDEFINED, PTR_CUDA, PTR_DMABUF, PTR_HOST, VIRTUAL_PLANE,
};
use crate::fault::Fault;

/// What NCCL is told of a device whose speed is not known, in Mb/s: that of the slowest link that is
/// still in use, so that it never takes the place of a device that is known to be fast.
pub(super) const UNKNOWN_SPEED_MBPS: u32 = 10_000;

/// The properties of a device. They do not change for as long as the devices are open.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    /// The transport's own number of the device.
    pub(crate) device: usize,
    /// Unique among all devices.
    pub(crate) name: &'static CStr,
    /// The PCI device's folder in sysfs.
    pub(crate) pci_path: Option<&'static CStr>,
    pub(crate) guid: u64,
    /// `PTR_*` bits.
    pub(crate) pointer_support: c_int,
    pub(crate) registration_is_global: bool,
    pub(crate) force_flush: bool,
    /// Mb/s.
    pub(crate) speed: c_int,
    pub(crate) port: c_int,
    /// Microseconds; 0 is NCCL's default.
    pub(crate) latency: f32,
    pub(crate) max_comms: c_int,
    pub(crate) max_receives: c_int,
    pub(crate) device_type: c_int,
    pub(crate) device_version: c_int,
    /// Bytes.
    pub(crate) max_p2p_bytes: usize,
    /// Bytes.
    pub(crate) max_collective_bytes: usize,
    pub(crate) max_multi_request_size: c_int,
    pub(crate) rail_id: i16,
    pub(crate) plane_id: i16,
    /// The numbers of the physical devices that it is made of: a physical one of itself.
    members: Vec<c_int>,
}

impl Properties {
    /// Those of device `device` of `devices`, which is a physical one, or one made of physical ones
    /// that NCCL calls by the same numbers as the transport.
    pub(super) fn of(devices: &[DeviceInfo], device: usize) -> Result<Self, Fault> {
        let info = &devices[device];
        let physical = || devices.iter().filter(|info| !info.is_virtual());
        let name = if info.is_virtual() {
            info.name.clone()
        } else {
            let named: Vec<_> = physical()
                .map(|info| (info.name.as_str(), info.port))
                .collect();
            unique_name(&named, device)
        };
        let links: Vec<_> = physical().map(Link::of).collect();
        // A virtual device has the links of its members, and shows itself as the first of them.
        let first = info.members.first().copied().unwrap_or(device);
        let (guid, port) = unique_link(&links, first);
        let pci_path = match &info.pci_path {
            Some(path) => Some(permanent(&path.to_string_lossy())?),
            None => None,
        };
        let speed = if info.speed_mbps == 0 {
            UNKNOWN_SPEED_MBPS
        } else {
            info.speed_mbps
        };
        Ok(Self {
            device,
            name: permanent(&name)?,
            pci_path,
            guid,
            pointer_support: pointer_support(info),
            // The cache of registrations finds one that covers what is asked for.
            registration_is_global: true,
            force_flush: info.force_flush,
            speed: to_int(speed as usize),
            port,
            latency: 0.0,
            max_comms: to_int(info.max_connections as usize),
            max_receives: to_int(MAX_GROUP),
            device_type: NET_DEVICE_HOST,
            device_version: NET_DEVICE_INVALID_VERSION,
            max_p2p_bytes: whole_pages(info.max_message.min(MAX_NET_SIZE_BYTES)),
            max_collective_bytes: whole_pages(info.max_message.min(MAX_COLLNET_SIZE)),
            max_multi_request_size: 1,
            rail_id: info.rail.map_or(NET_ID_UNDEFINED, i16::from),
            plane_id: plane_id(devices, device),
            members: info.members.iter().copied().map(to_int).collect(),
        })
    }

    /// The PCI path for C: null if there is none.
    pub(crate) fn pci_path(&self) -> *const c_char {
        self.pci_path.map_or(ptr::null(), CStr::as_ptr)
    }

    /// The PCI path as a string that the caller frees with `free`: null if there is none.
    pub(crate) fn pci_path_to_free(&self) -> Result<*mut c_char, Fault> {
        let Some(path) = self.pci_path else {
            return Ok(ptr::null_mut());
        };
        // SAFETY: a C string.
        let copy = unsafe { libc::strdup(path.as_ptr()) };
        if copy.is_null() {
            return Err(Fault::internal("no memory for a path"));
        }
        Ok(copy)
    }

    /// `pointer_support` of API versions 2 to 5, which have no `regMrDmaBuf`.
    pub(crate) fn pointer_support_without_dmabuf(&self) -> c_int {
        self.pointer_support & !PTR_DMABUF
    }

    /// The numbers of the physical devices that it is made of.
    pub(crate) fn members(&self) -> &[c_int] {
        &self.members
    }

    /// How many physical devices it is made of, and which, for an API version that has room for `N`.
    pub(crate) fn members_for_c<const N: usize>(&self) -> Result<(c_int, [c_int; N]), Fault> {
        let mut members = [0; N];
        let count = self.members.len();
        let Some(room) = members.get_mut(..count) else {
            return Err(Fault::usage(format!(
                "{} is made of {count} devices; this version of the interface has room for {N}",
                self.name.to_string_lossy()
            )));
        };
        room.copy_from_slice(&self.members);
        Ok((to_int(count), members))
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
pub(super) mod tests {
    use super::*;

    /// A device with these members, and nothing else that matters.
    pub(in crate::plugin) fn made_of(members: Vec<c_int>) -> Properties {
        Properties {
            device: 0,
            name: c"fused",
            pci_path: None,
            guid: 0,
            pointer_support: PTR_HOST | PTR_CUDA | PTR_DMABUF,
            registration_is_global: true,
            force_flush: false,
            speed: 0,
            port: 1,
            latency: 0.0,
            max_comms: 1,
            max_receives: 8,
            device_type: NET_DEVICE_HOST,
            device_version: NET_DEVICE_INVALID_VERSION,
            max_p2p_bytes: 1,
            max_collective_bytes: 1,
            max_multi_request_size: 1,
            rail_id: -1,
            plane_id: -1,
            members,
        }
    }

    #[test]
    fn members_fit_the_version_or_are_refused() {
        let device = made_of(vec![3, 1, 4, 2, 5]);
        assert_eq!(
            device.members_for_c::<8>(),
            Ok((5, [3, 1, 4, 2, 5, 0, 0, 0]))
        );
        let fault = device.members_for_c::<4>().err();
        assert!(
            fault
                .as_ref()
                .is_some_and(|fault| fault.text().contains("room for 4")),
            "{fault:?}"
        );
        assert_eq!(device.pci_path_to_free(), Ok(ptr::null_mut()));
    }

    #[test]
    fn what_a_version_does_not_know_it_is_not_told() {
        let device = made_of(vec![0]);
        assert_eq!(device.pointer_support_without_dmabuf(), PTR_HOST | PTR_CUDA);
    }

    #[test]
    fn numbers_for_c_are_cut_and_never_negative() {
        assert_eq!(to_int(5), 5);
        assert_eq!(to_int(usize::MAX), c_int::MAX);
    }
}
