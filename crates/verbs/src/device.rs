//! [`Device`]: an RDMA device that can be opened.

use std::ffi::{CStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys::{
    IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, IBV_TRANSPORT_UNKNOWN, IBV_TRANSPORT_UNSPECIFIED,
    IBV_TRANSPORT_USNIC, IBV_TRANSPORT_USNIC_UDP, ibv_device,
};

use crate::c_enum::open_enum;
use crate::conv;
use crate::error::Error;
use crate::library::Library;
use crate::operation::Operation;

/// An RDMA device of this machine, not necessarily open (`struct ibv_device`).
///
/// Clones are cheap and mean the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_device>,
    name: String,
    sysfs_path: PathBuf,
    list: Arc<DeviceList>,
}

/// What `ibv_get_device_list` returned. Devices are valid as long as their list.
struct DeviceList {
    raw: NonNull<*mut ibv_device>,
    library: Library,
}

// SAFETY: `ibv_device` is not changed after the list was made, and libibverbs may be called from
// any thread (`Library::from_functions` demands the same of other tables).
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}
// SAFETY: as above; the list is freed once, by whichever thread drops it last.
unsafe impl Send for DeviceList {}
// SAFETY: as above.
unsafe impl Sync for DeviceList {}

open_enum! {
    /// A wire protocol (`enum ibv_transport_type`).
    pub enum Transport(i32) {
        /// The driver does not say.
        NotKnown = IBV_TRANSPORT_UNKNOWN,
        /// InfiniBand, also over Ethernet (RoCE).
        InfiniBand = IBV_TRANSPORT_IB,
        /// iWARP: RDMA over TCP. It has no RDMA write with immediate.
        Iwarp = IBV_TRANSPORT_IWARP,
        /// Cisco usNIC.
        UsNic = IBV_TRANSPORT_USNIC,
        /// Cisco usNIC over UDP.
        UsNicUdp = IBV_TRANSPORT_USNIC_UDP,
        /// A transport of the driver's own, for instance Amazon's EFA.
        Unspecified = IBV_TRANSPORT_UNSPECIFIED,
    }
}

impl Library {
    /// The RDMA devices of this machine, in the order of the kernel (ibv_get_device_list(3)). An
    /// empty list if there are none, also when the kernel has no RDMA support at all.
    ///
    /// # Errors
    ///
    /// The list cannot be read, for example without permission.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let functions = self.functions();
        let mut number = 0;
        // SAFETY: the argument is a valid place for the number.
        let raw = match conv::pointer(|| unsafe { (functions.get_device_list)(&raw mut number) }) {
            Ok(raw) => raw,
            // The kernel has no RDMA support: there are no devices.
            Err(source) if source.raw_os_error() == Some(libc::ENOSYS) => {
                tracing::debug!("the kernel has no RDMA support (ibv_get_device_list: ENOSYS)");
                return Ok(Vec::new());
            }
            Err(source) => {
                return Err(Error {
                    operation: Operation::ListDevices,
                    device: String::new(),
                    source,
                });
            }
        };
        let list = Arc::new(DeviceList {
            raw,
            library: self.clone(),
        });
        let number = usize::try_from(number).unwrap_or(0);
        let devices = (0..number).filter_map(|index| {
            // SAFETY: the list has `number` entries and is alive.
            let raw = NonNull::new(unsafe { raw.add(index).read() })?;
            // SAFETY: the entry is a device of the list.
            let name = unsafe { CStr::from_ptr((functions.get_device_name)(raw.as_ptr())) };
            // SAFETY: as above; the path is a plain array inside the device.
            let sysfs_path = conv::bytes_of(unsafe { &(*raw.as_ptr()).ibdev_path });
            Some(Device(Arc::new(Inner {
                raw,
                name: name.to_string_lossy().into_owned(),
                sysfs_path: PathBuf::from(OsString::from_vec(sysfs_path)),
                list: Arc::clone(&list),
            })))
        });
        Ok(devices.collect())
    }
}

impl Device {
    /// The kernel's name of the device, for example `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The node GUID in host byte order, 0 if it is unknown.
    pub fn guid(&self) -> u64 {
        // SAFETY: the device is valid as long as its list.
        u64::from_be(unsafe { (self.library().functions().get_device_guid)(self.as_raw()) })
    }

    /// The device's directory in sysfs, for example `/sys/class/infiniband/mlx5_0`
    /// (`ibdev_path` of `struct ibv_device`).
    pub fn sysfs_path(&self) -> &Path {
        &self.0.sysfs_path
    }

    /// The kernel's index of the device, which unlike the name never changes while the device
    /// exists. None if libibverbs or the kernel is too old to tell.
    pub fn kernel_index(&self) -> Option<i32> {
        let get_device_index = self.library().functions().get_device_index?;
        // SAFETY: the device is valid as long as its list.
        let index = unsafe { get_device_index(self.as_raw()) };
        (index >= 0).then_some(index)
    }

    /// What the device speaks on the wire (`transport_type` of `struct ibv_device`). RoCE counts
    /// as InfiniBand here: it is its transport over another link layer.
    pub fn transport(&self) -> Transport {
        // SAFETY: the device is valid as long as its list, and the field never changes.
        Transport::from_raw(unsafe { (*self.as_raw()).transport_type })
    }

    /// The library that listed the device.
    pub fn library(&self) -> &Library {
        &self.0.list.library
    }

    /// The C object. It is valid for as long as this `Device` or a clone of it.
    pub fn as_raw(&self) -> *mut ibv_device {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.0.name)
            .field("sysfs_path", &self.0.sysfs_path)
            .finish_non_exhaustive()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from `get_device_list` and is freed once. Every device holds the
        // list, so none is used afterwards; open devices are kept alive by libibverbs.
        unsafe { (self.library.functions().free_device_list)(self.raw.as_ptr()) };
    }
}
