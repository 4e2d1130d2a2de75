//! [`Context`]: an open device, and what can be asked of it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys::{ibv_context, ibv_device_attr, ibv_gid, ibv_port_attr};

use crate::conv;
use crate::device::Device;
use crate::device_attr::DeviceAttributes;
use crate::error::{self, Error};
use crate::fork::{count_forks, forks};
use crate::functions::Functions;
use crate::gid::Gid;
use crate::layout::VerbsContext;
use crate::library::Library;
use crate::operation::Operation;
use crate::port::PortAttributes;

/// An open device (`struct ibv_context`).
///
/// Clones are cheap and mean the same open device, which is closed when the last clone and
/// everything made from it are gone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_context>,
    /// Which process has opened it.
    forks: u32,
    /// Dropped after the context is closed.
    device: Device,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the context is closed once, by whichever thread drops it last.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Device {
    /// Opens the device (ibv_open_device(3)). The descriptor of its asynchronous events is set to
    /// non-blocking.
    ///
    /// # Errors
    ///
    /// Usually there is no permission for `/dev/infiniband/uverbs*`, or the container was not given
    /// that file.
    pub fn open(&self) -> Result<Context, Error> {
        let failed = |source| Error {
            operation: Operation::OpenDevice,
            device: self.name().to_owned(),
            source,
        };
        count_forks();
        let open_device = self.library().functions().open_device;
        // SAFETY: the device is valid as long as `self`.
        let raw = conv::pointer(|| unsafe { open_device(self.as_raw()) }).map_err(failed)?;
        // From here on the context is closed if anything fails.
        let context = Context(Arc::new(Inner {
            raw,
            forks: forks(),
            device: self.clone(),
        }));
        // SAFETY: the context was just opened.
        if unsafe { (*raw.as_ptr()).async_fd } < 0 {
            let source = io::Error::other("the driver gave no descriptor for asynchronous events");
            return Err(failed(source));
        }
        set_non_blocking(context.async_fd()).map_err(failed)?;
        Ok(context)
    }
}

impl Context {
    /// The kernel's name of the device, for example `mlx5_0`.
    pub fn device_name(&self) -> &str {
        self.device().name()
    }

    /// The library that opened the device.
    pub fn library(&self) -> &Library {
        self.device().library()
    }

    /// The device that was opened.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The C object. It is valid for as long as this `Context`, a clone of it, or anything made
    /// from it.
    pub fn as_raw(&self) -> *mut ibv_context {
        self.0.raw.as_ptr()
    }

    pub(crate) fn functions(&self) -> &Functions {
        self.library().functions()
    }

    /// What went wrong on this device.
    pub(crate) fn error(&self, operation: Operation, source: io::Error) -> Error {
        Error {
            operation,
            device: self.device_name().to_owned(),
            source,
        }
    }

    /// Whether this process is a forked child of the one that opened the device. Then nothing that
    /// was made from it may be used, and dropping it gives nothing back: it is the parent's.
    pub fn is_inherited(&self) -> bool {
        self.0.forks != forks()
    }

    /// Whether both mean the same open device, not merely the same device opened twice.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The attributes and limits of the device (ibv_query_device(3)).
    pub fn attributes(&self) -> Result<DeviceAttributes, Error> {
        let mut raw = ibv_device_attr::default();
        // SAFETY: the context is open, and the argument is a valid place for the attributes.
        conv::returned(|| unsafe { (self.functions().query_device)(self.as_raw(), &raw mut raw) })
            .map_err(|source| self.error(Operation::QueryDevice, source))?;
        Ok(DeviceAttributes::from(&raw))
    }

    /// The attributes of a port (ibv_query_port(3)). Ports count from 1.
    ///
    /// The extended operation of the context is used where the library has it, because the
    /// exported function leaves the newer fields (XDR speeds, more capability bits) empty.
    pub fn port(&self, port: u8) -> Result<PortAttributes, Error> {
        let mut raw = ibv_port_attr::default();
        let attributes = &raw mut raw;
        // SAFETY: the context is open and laid out as its `abi_compat` says: libibverbs
        // guarantees that, and `Library::from_functions` demands it.
        let extended = unsafe { VerbsContext::query_port_of(self.as_raw()) };
        conv::returned(|| match extended {
            // SAFETY: the context is open, and the attributes have the size that is given.
            Some(query_port) => unsafe {
                query_port(self.as_raw(), port, attributes, size_of::<ibv_port_attr>())
            },
            // SAFETY: the context is open; the function fills a prefix of the attributes, the
            // rest of which is zero.
            None => unsafe {
                (self.functions().query_port)(self.as_raw(), port, attributes.cast())
            },
        })
        .map_err(|source| self.error(Operation::QueryPort { port }, source))?;
        Ok(PortAttributes::from(&raw))
    }

    /// The effective data rate of a port in Mb/s, as the driver knows it (ibv_query_port_speed(3)):
    /// also rates that are no multiple of a lane's, such as a bonded port's. None if the library or
    /// the driver cannot tell; [`PortAttributes::speed`] then can.
    pub fn port_speed(&self, port: u8) -> Result<Option<u64>, Error> {
        let Some(query_port_speed) = self.functions().query_port_speed else {
            return Ok(None);
        };
        let mut hundreds = 0;
        // SAFETY: the context is open, and the argument is a valid place for the speed.
        let result = conv::returned(|| unsafe {
            query_port_speed(self.as_raw(), port.into(), &raw mut hundreds)
        });
        match result {
            Ok(()) => Ok(hundreds.checked_mul(100).filter(|&speed| speed != 0)),
            Err(source) if source.raw_os_error().is_some_and(error::is_unsupported) => Ok(None),
            Err(source) => Err(self.error(Operation::QueryPortSpeed { port }, source)),
        }
    }

    /// An entry of a port's P_Key table, in host byte order (ibv_query_pkey(3)). An empty entry
    /// is 0.
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        let mut pkey = 0;
        // SAFETY: the context is open, and the argument is a valid place for the P_Key.
        conv::count(|| unsafe {
            (self.functions().query_pkey)(self.as_raw(), port, index.into(), &raw mut pkey) as isize
        })
        .map_err(|source| self.error(Operation::QueryPkey { port, index }, source))?;
        Ok(u16::from_be(pkey))
    }

    /// Where a P_Key (in host byte order) is in a port's table (ibv_get_pkey_index(3)).
    ///
    /// # Errors
    ///
    /// Also if it is not there.
    pub fn pkey_index(&self, port: u8, pkey: u16) -> Result<u16, Error> {
        let failed = |source| self.error(Operation::FindPkey { port, pkey }, source);
        let absent = || failed(io::Error::from_raw_os_error(libc::ENOENT));
        let Some(get_pkey_index) = self.functions().get_pkey_index else {
            let mut table = 0..self.port(port)?.pkey_table_len;
            let is_it = |index: &u16| self.pkey(port, *index).is_ok_and(|entry| entry == pkey);
            return table.find(is_it).ok_or_else(absent);
        };
        // SAFETY: the context is open.
        let index =
            conv::count(|| unsafe { get_pkey_index(self.as_raw(), port, pkey.to_be()) as isize })
                .map_err(failed)?;
        u16::try_from(index).map_err(|_| absent())
    }

    /// An entry of a port's GID table (ibv_query_gid(3)). An empty entry is a GID of zeros.
    pub fn gid(&self, port: u8, index: u32) -> Result<Gid, Error> {
        self.read_gid(port, index)
            .map_err(|source| self.error(Operation::QueryGid { port, index }, source))
    }

    pub(crate) fn read_gid(&self, port: u8, index: u32) -> io::Result<Gid> {
        let index = index
            .try_into()
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mut raw = ibv_gid::default();
        // SAFETY: the context is open, and the argument is a valid place for the GID.
        conv::count(|| unsafe {
            (self.functions().query_gid)(self.as_raw(), port, index, &raw mut raw) as isize
        })?;
        Ok(Gid::from_raw(&raw))
    }

    /// The descriptor that becomes readable when an asynchronous event is pending. It is
    /// non-blocking. To be waited on with poll(2) or epoll(7), never to be read directly.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and so is its descriptor, which is not negative (checked
        // when the context was opened).
        unsafe { BorrowedFd::borrow_raw((*self.as_raw()).async_fd) }
    }
}

impl AsFd for Context {
    /// The descriptor of asynchronous events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.device_name()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.forks != forks() {
            return;
        }
        let close = self.device.library().functions().close_device;
        // SAFETY: everything made from the context holds it, so this is its last use.
        if let Err(error) = conv::returned(|| unsafe { close(self.raw.as_ptr()) }) {
            let device = self.device.name();
            tracing::warn!(device, %error, "ibv_close_device failed; leaked");
        }
    }
}

/// Makes reads from a descriptor return `EAGAIN` instead of waiting.
pub(crate) fn set_non_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: the descriptor is open, and these commands take and give plain numbers.
    let flags = conv::count(|| unsafe { libc::fcntl(fd, libc::F_GETFL) as isize })?;
    // The value came from an int.
    let flags = flags as libc::c_int | libc::O_NONBLOCK;
    // SAFETY: as above.
    conv::count(|| unsafe { libc::fcntl(fd, libc::F_SETFL, flags) as isize })?;
    Ok(())
}
