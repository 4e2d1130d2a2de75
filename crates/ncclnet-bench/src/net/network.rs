//! A network that was initialised: its devices, listening and connecting, whatever the version of the
//! interface. What is done with connections is in [`super::comm`].

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::rc::Rc;

use ncclnet_ffi::abi::{
    CommConfig, HANDLE_MAX_SIZE, NcclResult, NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12,
    TRAFFIC_CLASS_UNDEFINED, VirtualDeviceV9, VirtualDeviceV12,
};

use super::comm::{Comm, Kind, MAX_GROUP, Request};
use super::loader::{self, Source};
use super::logger::logger;
use super::table::{Accept, Cold, Hot, Table, check, field};
use super::{Error, Properties, Result};

/// A network that is ready. Cloning means the same one.
#[derive(Clone)]
pub(crate) struct Network(pub(super) Rc<Inner>);

pub(super) struct Inner {
    table: Table,
    pub(super) hot: Hot,
    pub(super) cold: Cold,
    context: *mut c_void,
    symbol: String,
    nccl: Option<String>,
}

/// The bytes that a peer connects with.
pub(crate) type Handle = [u8; HANDLE_MAX_SIZE];

/// Something that listens for one connection; stops on drop.
pub(crate) struct Listener {
    network: Network,
    raw: *mut c_void,
    /// For the peer.
    pub(crate) handle: Handle,
}

impl Network {
    /// Loads the library and initialises the network.
    pub(crate) fn open(source: &Source) -> Result<Self> {
        let loaded = loader::load(source)?;
        let table = loaded.table;
        let (hot, cold) = (Hot::new(table)?, Cold::new(table)?);
        let mut context = ptr::null_mut();
        let mut config = CommConfig {
            traffic_class: TRAFFIC_CLASS_UNDEFINED,
        };
        let missing = || Error::Missing("init");
        let result = match table {
            Table::V6(NetV6 { init, .. })
            | Table::V7(NetV7 { init, .. })
            | Table::V8(NetV8 { init, .. })
            | Table::V9(NetV9 { init, .. }) => {
                let init = init.ok_or_else(missing)?;
                // SAFETY: by the table's version the function has this type.
                unsafe { init(logger()) }
            }
            Table::V10(NetV10 { init, .. }) => {
                let init = init.ok_or_else(missing)?;
                // SAFETY: as above.
                unsafe { init(logger(), None) }
            }
            Table::V11(NetV11 { init, .. }) | Table::V12(NetV12 { init, .. }) => {
                let init = init.ok_or_else(missing)?;
                let (context, config) = (&raw mut context, &raw mut config);
                // SAFETY: as above, and the arguments are valid places.
                unsafe { init(context, 1, config, logger(), None) }
            }
        };
        check("init", result)?;
        Ok(Self(Rc::new(Inner {
            table,
            hot,
            cold,
            context,
            symbol: loaded.symbol,
            nccl: loaded.nccl,
        })))
    }

    /// The network's own name.
    pub(crate) fn name(&self) -> String {
        let name = self.0.table.name();
        if name.is_null() {
            return String::from("?");
        }
        // SAFETY: by the interface a C string that lives as long as the table.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }

    /// The version of the interface.
    pub(crate) fn version(&self) -> u32 {
        self.0.table.version()
    }

    /// The symbol of the table.
    pub(crate) fn symbol(&self) -> &str {
        &self.0.symbol
    }

    /// The version of NCCL, if it is NCCL's.
    pub(crate) fn nccl(&self) -> Option<&str> {
        self.0.nccl.as_deref()
    }

    /// Its devices, in order.
    pub(crate) fn devices(&self) -> Result<Vec<Properties>> {
        let devices = field!(self.0.table, devices)?;
        let mut number = 0;
        // SAFETY: the argument is a place for the number.
        check("devices", unsafe { devices(&raw mut number) })?;
        (0..number)
            .map(|device| self.0.table.properties(device))
            .collect()
    }

    /// What one device is, a virtual one included.
    pub(crate) fn properties(&self, device: i32) -> Result<Properties> {
        self.0.table.properties(device)
    }

    /// Makes one device of several, and returns its number.
    pub(crate) fn merge(&self, devices: &[i32]) -> Result<i32> {
        let missing =
            || Error::Refused("several devices cannot be one here (no makeVDevice)".into());
        let mut number = -1;
        let too_many = || Error::Refused(format!("{} devices are too many", devices.len()));
        macro_rules! merge {
            ($function:expr, $type:ident) => {{
                let function = $function.ok_or_else(missing)?;
                let mut wanted = $type {
                    count: c_int::try_from(devices.len()).map_err(|_| too_many())?,
                    devices: Default::default(),
                };
                let places = wanted.devices.get_mut(..devices.len()).ok_or_else(too_many)?;
                places.copy_from_slice(devices);
                // SAFETY: by the table's version the function has this type; the arguments are valid
                // places.
                unsafe { function(&raw mut number, &raw mut wanted) }
            }};
        }
        let result = match self.0.table {
            Table::V6(_) | Table::V7(_) | Table::V8(_) => return Err(missing()),
            Table::V9(table) => merge!(table.make_vdevice, VirtualDeviceV9),
            Table::V10(table) => merge!(table.make_vdevice, VirtualDeviceV9),
            Table::V11(table) => merge!(table.make_vdevice, VirtualDeviceV9),
            Table::V12(table) => merge!(table.make_vdevice, VirtualDeviceV12),
        };
        check("makeVDevice", result)?;
        Ok(number)
    }

    /// Starts listening on a device.
    pub(crate) fn listen(&self, device: i32) -> Result<Listener> {
        let mut handle = [0_u8; HANDLE_MAX_SIZE];
        let mut raw = ptr::null_mut();
        let missing = || Error::Missing("listen");
        let (place, comm) = (handle.as_mut_ptr().cast(), &raw mut raw);
        let context = self.0.context;
        let result = match self.0.table {
            Table::V6(NetV6 { listen, .. })
            | Table::V7(NetV7 { listen, .. })
            | Table::V8(NetV8 { listen, .. })
            | Table::V9(NetV9 { listen, .. })
            | Table::V10(NetV10 { listen, .. }) => {
                let listen = listen.ok_or_else(missing)?;
                // SAFETY: by the table's version the function has this type; the handle has the size
                // of the interface.
                unsafe { listen(device, place, comm) }
            }
            Table::V11(NetV11 { listen, .. }) | Table::V12(NetV12 { listen, .. }) => {
                let listen = listen.ok_or_else(missing)?;
                // SAFETY: as above.
                unsafe { listen(context, device, place, comm) }
            }
        };
        check("listen", result)?;
        Ok(Listener {
            network: self.clone(),
            raw,
            handle,
        })
    }

    /// One step of connecting; `None` means: again. The handle is always the same place, because
    /// networks keep the state of connecting in it.
    pub(crate) fn connect(&self, device: i32, handle: &mut Handle) -> Result<Option<Comm>> {
        let mut raw = ptr::null_mut();
        let mut config = CommConfig {
            traffic_class: TRAFFIC_CLASS_UNDEFINED,
        };
        let missing = || Error::Missing("connect");
        let (place, comm) = (handle.as_mut_ptr().cast(), &raw mut raw);
        let context = self.0.context;
        let mut device_handle = ptr::null_mut();
        let for_gpu = &raw mut device_handle;
        let result = match self.0.table {
            Table::V6(NetV6 { connect, .. }) => {
                let connect = connect.ok_or_else(missing)?;
                // SAFETY: by the table's version the function has this type; the handle has the size
                // of the interface.
                unsafe { connect(device, place, comm) }
            }
            Table::V7(NetV7 { connect, .. })
            | Table::V8(NetV8 { connect, .. })
            | Table::V9(NetV9 { connect, .. }) => {
                let connect = connect.ok_or_else(missing)?;
                // SAFETY: by the table's version the function has this type; the handle has the size
                // of the interface.
                unsafe { connect(device, place, comm, for_gpu) }
            }
            Table::V10(NetV10 { connect, .. }) => {
                let connect = connect.ok_or_else(missing)?;
                // SAFETY: as above.
                unsafe { connect(device, &raw mut config, place, comm, for_gpu) }
            }
            Table::V11(NetV11 { connect, .. }) | Table::V12(NetV12 { connect, .. }) => {
                let connect = connect.ok_or_else(missing)?;
                // SAFETY: as above.
                unsafe { connect(context, device, place, comm, for_gpu) }
            }
        };
        check("connect", result)?;
        Ok(self.comm(raw, Kind::Send))
    }

    fn comm(&self, raw: *mut c_void, kind: Kind) -> Option<Comm> {
        (!raw.is_null()).then(|| Comm::new(self.clone(), raw, kind))
    }

    /// Whether a request is done. `sizes` has room for as many sizes as the request has buffers.
    ///
    /// # Safety
    ///
    /// The request is under way: the network gave it, and has not said yet that it is done.
    #[inline]
    pub(crate) unsafe fn test(
        &self,
        request: Request,
        sizes: &mut [c_int; MAX_GROUP],
    ) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the caller's request; the places are valid for as many sizes as a receive has.
        let result = unsafe { (self.0.hot.test)(request, &raw mut done, sizes.as_mut_ptr()) };
        check("test", result)?;
        Ok(done != 0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let finalize = match self.table {
            Table::V11(NetV11 { finalize, .. }) | Table::V12(NetV12 { finalize, .. }) => *finalize,
            _ => None,
        };
        if let Some(finalize) = finalize {
            // SAFETY: the context came from `init`, and nothing of it is in use: whatever is holds
            // the network.
            report("finalize", unsafe { finalize(self.context) });
        }
    }
}

impl Listener {
    /// One step of accepting; `None` means: again.
    pub(crate) fn accept(&self) -> Result<Option<Comm>> {
        let mut raw = ptr::null_mut();
        let mut device_handle = ptr::null_mut();
        let result = match self.network.0.cold.accept {
            // SAFETY: the listener is open; the places are valid.
            Accept::V2(accept) => unsafe { accept(self.raw, &raw mut raw) },
            // SAFETY: as above.
            Accept::V7(accept) => unsafe { accept(self.raw, &raw mut raw, &raw mut device_handle) },
        };
        check("accept", result)?;
        Ok(self.network.comm(raw, Kind::Receive))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: the listener is open, and used for the last time.
        report("closeListen", unsafe {
            (self.network.0.cold.close_listen)(self.raw)
        });
    }
}

/// Ends report their errors where they cannot be taken.
pub(super) fn report(call: &'static str, result: NcclResult) {
    if let Err(error) = check(call, result) {
        eprintln!("ncclnet-bench: {error}");
    }
}
