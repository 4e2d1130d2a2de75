//! Devices as NCCL sees them: how many, what each is, and virtual devices made of several.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use ibnet::{DeviceInfo, MAX_GROUP, Transport};

use super::names::{permanent, unique_name, unique_port};
use super::{abilities, lifecycle};
use crate::abi::{
    MAX_COLLNET_SIZE, MAX_NET_DEVICES, MAX_NET_SIZE_BYTES, NET_DEVICE_HOST,
    NET_DEVICE_INVALID_VERSION,
};
use crate::fault::Fault;

/// What NCCL is told of a device whose speed is not known, in Mb/s: that of the slowest link that is
/// still in use, so that it never takes the place of a device that is known to be fast.
const UNKNOWN_SPEED_MBPS: u32 = 10_000;

/// The properties of a device, in the newest version's terms.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
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
    /// The physical devices that it is made of: a physical one of itself.
    members: Vec<c_int>,
}

impl Properties {
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

    /// How many physical devices it is made of, and which, for an API version that has room for `N`.
    pub(crate) fn members<const N: usize>(&self) -> Result<(c_int, [c_int; N]), Fault> {
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

/// `devices`.
pub(crate) fn count() -> Result<c_int, Fault> {
    let transport = lifecycle::current()?;
    Ok(to_int(visible(&transport).len()))
}

/// `getProperties`.
pub(crate) fn properties(index: c_int) -> Result<Properties, Fault> {
    let transport = lifecycle::current()?;
    let devices = visible(&transport);
    let position = check_index(index, devices.len())?;
    let info = &devices[position];

    let named: Vec<(&str, u8)> = devices
        .iter()
        .map(|info| (info.name.as_str(), info.port))
        .collect();
    let linked: Vec<(u64, u8)> = devices.iter().map(|info| (info.guid, info.port)).collect();
    let pci_path = match &info.pci_path {
        Some(path) => Some(permanent(&path.to_string_lossy())?),
        None => None,
    };
    let speed = if info.speed_mbps == 0 {
        UNKNOWN_SPEED_MBPS
    } else {
        info.speed_mbps
    };
    let (rail_id, plane_id) = abilities::rail_and_plane(info);
    let members = abilities::members(info, position);
    Ok(Properties {
        name: permanent(&unique_name(&named, position))?,
        pci_path,
        guid: info.guid,
        pointer_support: abilities::pointer_support(info),
        registration_is_global: abilities::registration_is_global(),
        force_flush: abilities::force_flush(info),
        speed: to_int(speed as usize),
        port: unique_port(&linked, position),
        latency: 0.0,
        max_comms: to_int(info.max_connections as usize),
        max_receives: to_int(MAX_GROUP),
        device_type: NET_DEVICE_HOST,
        device_version: NET_DEVICE_INVALID_VERSION,
        max_p2p_bytes: info.max_message.min(MAX_NET_SIZE_BYTES),
        max_collective_bytes: info.max_message.min(MAX_COLLNET_SIZE),
        max_multi_request_size: 1,
        rail_id,
        plane_id,
        members: members.into_iter().map(to_int).collect(),
    })
}

/// `makeVDevice`: the index of the device made of `members`. Nothing is changed unless it succeeds.
///
/// A device made of one device is that device.
pub(crate) fn make_virtual(members: &[c_int]) -> Result<c_int, Fault> {
    let transport = lifecycle::current()?;
    let devices = visible(&transport);
    let members = distinct(members, devices.len())?;
    if let [single] = members[..] {
        return Ok(to_int(single));
    }
    // NCCL has arrays of so many, and does not check.
    if devices.len() == MAX_NET_DEVICES {
        return Err(Fault::usage(format!(
            "there are {MAX_NET_DEVICES} devices, and NCCL has room for no more"
        )));
    }
    let made = abilities::merge(&transport, &members)?;
    tracing::info!("device [{made}] is made of {members:?}");
    Ok(to_int(made))
}

/// The members of a virtual device, checked before anything else is done with them (pitfall 16).
fn distinct(members: &[c_int], devices: usize) -> Result<Vec<usize>, Fault> {
    let mut distinct = Vec::with_capacity(members.len());
    for member in members {
        let member = check_index(*member, devices).map_err(|fault| Fault::usage(fault.text))?;
        if !distinct.contains(&member) {
            distinct.push(member);
        }
    }
    if distinct.is_empty() {
        return Err(Fault::usage("a virtual device needs at least one device"));
    }
    Ok(distinct)
}

/// The devices that NCCL may see: it has room for so many, and does not check.
pub(super) fn visible(transport: &Transport) -> Vec<DeviceInfo> {
    let mut devices = transport.devices();
    devices.truncate(MAX_NET_DEVICES);
    devices
}

/// A device index from C, checked against the number of devices.
pub(super) fn check_index(index: c_int, devices: usize) -> Result<usize, Fault> {
    usize::try_from(index)
        .ok()
        .filter(|index| *index < devices)
        .ok_or_else(|| {
            Fault::argument(format!(
                "there is no device {index}; there are {devices} devices"
            ))
        })
}

/// Tells the log by which numbers NCCL will call the devices, which the transport has described.
pub(super) fn announce(transport: &Transport) {
    let devices = visible(transport);
    let list: Vec<String> = devices
        .iter()
        .enumerate()
        .map(|(index, info)| format!("[{index}] {}:{}", info.name, info.port))
        .collect();
    tracing::info!("devices: {}", list.join(" "));
    for info in devices.iter().filter(|info| info.speed_mbps == 0) {
        tracing::info!(
            "{}:{}: the speed is not known; NCCL is told {UNKNOWN_SPEED_MBPS} Mb/s",
            info.name,
            info.port
        );
    }
    let hidden = transport.devices().len() - devices.len();
    if hidden > 0 {
        tracing::warn!(
            "NCCL has room for {MAX_NET_DEVICES} devices: the last {hidden} are left out; choose \
             with NCCL_IB_HCA"
        );
    }
}

/// A number for C, as large as it can be.
fn to_int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::NcclResult;

    #[test]
    fn indices_are_checked() {
        assert_eq!(check_index(0, 2), Ok(0));
        assert_eq!(check_index(1, 2), Ok(1));
        for index in [-1, 2, c_int::MAX, c_int::MIN] {
            assert!(check_index(index, 2).is_err());
        }
        assert!(check_index(0, 0).is_err());
    }

    #[test]
    fn members_are_checked_and_named_once() {
        assert_eq!(distinct(&[1], 2), Ok(vec![1]));
        assert_eq!(distinct(&[1, 0, 1, 1], 2), Ok(vec![1, 0]));
        for (members, says) in [
            (&[][..], "at least one"),
            (&[0, 2], "no device 2"),
            (&[-1], "no device -1"),
        ] {
            let fault = distinct(members, 2).err();
            assert!(
                fault
                    .as_ref()
                    .is_some_and(|fault| fault.code == NcclResult::INVALID_USAGE
                        && fault.text.contains(says)),
                "{members:?}: {fault:?}"
            );
        }
    }

    #[test]
    fn members_fit_the_version_or_are_refused() {
        let device = Properties {
            name: c"fused",
            pci_path: None,
            guid: 0,
            pointer_support: 0,
            registration_is_global: false,
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
            members: vec![3, 1, 4, 2, 5],
        };
        assert_eq!(device.members::<8>(), Ok((5, [3, 1, 4, 2, 5, 0, 0, 0])));
        let fault = device.members::<4>().err();
        assert!(
            fault
                .as_ref()
                .is_some_and(|fault| fault.text.contains("room for 4")),
            "{fault:?}"
        );
        assert_eq!(device.pci_path_to_free(), Ok(ptr::null_mut()));
    }

    #[test]
    fn numbers_for_c_are_cut_and_never_negative() {
        assert_eq!(to_int(5), 5);
        assert_eq!(to_int(usize::MAX), c_int::MAX);
    }
}
