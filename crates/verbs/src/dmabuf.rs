//! Registering memory of other devices, such as GPUs, by DMA-BUF: by the common verb, or by mlx5's
//! Data Direct.
//!
//! An adapter with Data Direct has a second PCI function, by which it reaches memory of a GPU
//! without passing through the CPU. The provider's own library tells where that function is, and
//! registers memory for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ibverbs_sys::ibv_mr;

use crate::access::Access;
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::functions::Mlx5Functions;
use crate::mr::{MemoryRegion, range_problem};
use crate::object::Object;
use crate::operation::Operation;
use crate::pd::ProtectionDomain;

/// `MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT` of `mlx5dv.h`.
const ACCESS_DATA_DIRECT: c_int = 1;

/// By which function a DMA-BUF is registered.
#[derive(Clone, Copy)]
enum Way {
    Verbs,
    DataDirect,
}

/// Part of a DMA-BUF.
#[derive(Clone, Copy)]
struct Part {
    fd: c_int,
    /// Where it starts in the DMA-BUF, in bytes.
    offset: u64,
    length: usize,
    /// The address of its first byte for the device and peers.
    iova: u64,
    access: Access,
}

impl ProtectionDomain {
    /// Registers part of a DMA-BUF, for example memory of a GPU, with the device
    /// (ibv_reg_dmabuf_mr(3)).
    ///
    /// `offset` is where the part starts in the DMA-BUF and `iova` the address that the device
    /// and peers use for its first byte. Both must have the same offset within a page.
    ///
    /// # Errors
    ///
    /// Also if the library has no such function (before IBVERBS_1.12). A range that is empty or too
    /// large, or whose offset and address do not agree within a page, is refused without a call.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register), for the memory behind the DMA-BUF. The descriptor
    /// itself may be closed afterwards.
    pub unsafe fn register_dmabuf(
        &self,
        offset: u64,
        length: usize,
        iova: u64,
        fd: impl AsRawFd,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let part = Part::of(offset, length, iova, fd, access);
        // SAFETY: passed on to the caller.
        unsafe { self.register_part(part, Way::Verbs) }
    }

    /// The same by mlx5's Data Direct function (mlx5dv_reg_dmabuf_mr(3)). For devices that have one:
    /// see [`Context::data_direct_path`].
    ///
    /// # Errors
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf); also if the device is none of mlx5's or
    /// its library is too old (before MLX5_1.25).
    ///
    /// # Safety
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf).
    pub unsafe fn register_dmabuf_data_direct(
        &self,
        offset: u64,
        length: usize,
        iova: u64,
        fd: impl AsRawFd,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let part = Part::of(offset, length, iova, fd, access);
        // SAFETY: passed on to the caller.
        unsafe { self.register_part(part, Way::DataDirect) }
    }

    /// Asks whether DMA-BUFs can be registered at all: by registering none, and looking at how that
    /// is refused.
    ///
    /// # Errors
    ///
    /// They cannot: the library has no such function, or what the system answered.
    pub fn probe_dmabuf(&self) -> Result<(), Error> {
        self.probe(Way::Verbs)
    }

    /// The same for mlx5's Data Direct function.
    ///
    /// # Errors
    ///
    /// As for [`probe_dmabuf`](Self::probe_dmabuf).
    pub fn probe_dmabuf_data_direct(&self) -> Result<(), Error> {
        self.probe(Way::DataDirect)
    }

    /// A driver that can register DMA-BUFs looks at the descriptor and finds it bad (`EBADF`). One
    /// that cannot says so before that, by one errno or another.
    fn probe(&self, way: Way) -> Result<(), Error> {
        let none = Part::of(0, 1, 0, -1, Access::empty());
        // SAFETY: there is no such descriptor, hence no memory.
        match unsafe { self.call(none, way) } {
            Err(error) if error.errno() == Some(libc::EBADF) => Ok(()),
            Err(error) => Err(error),
            // Against all expectation something was registered. It is given back.
            Ok(_) => Ok(()),
        }
    }

    /// # Safety
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf).
    unsafe fn register_part(&self, part: Part, way: Way) -> Result<MemoryRegion, Error> {
        if let Some(problem) = part.problem() {
            let device = self.context().device_name();
            return Err(Error::invalid(part.operation(), device, problem));
        }
        // SAFETY: passed on to the caller.
        let object = unsafe { self.call(part, way) }?;
        Ok(MemoryRegion::new(object, part.iova, part.length, self))
    }

    /// # Safety
    ///
    /// As for [`register_dmabuf`](Self::register_dmabuf), unless there is no such descriptor.
    unsafe fn call(&self, part: Part, way: Way) -> Result<Object<ibv_mr>, Error> {
        let context = self.context();
        let functions = context.functions();
        let (pd, access) = (self.as_raw(), part.access.bits().cast_signed());
        let Part {
            fd,
            offset,
            length,
            iova,
            ..
        } = part;
        let unsupported =
            |missing| Error::unsupported(part.operation(), context.device_name(), missing);
        let object = match way {
            Way::Verbs => {
                let register = functions.reg_dmabuf_mr;
                let register = register.ok_or_else(|| unsupported("ibv_reg_dmabuf_mr"))?;
                Object::create(context, || {
                    // SAFETY: the domain is alive; about the memory see the caller.
                    unsafe { register(pd, offset, length, iova, fd, access) }
                })
            }
            Way::DataDirect => {
                let functions = mlx5(context);
                let functions = functions.ok_or_else(|| unsupported("mlx5dv_reg_dmabuf_mr"))?;
                let register = functions.reg_dmabuf_mr;
                Object::create(context, || {
                    // SAFETY: as above.
                    unsafe { register(pd, offset, length, iova, fd, access, ACCESS_DATA_DIRECT) }
                })
            }
        };
        object.map_err(|source| context.error(part.operation(), source))
    }
}

impl Part {
    fn of(offset: u64, length: usize, iova: u64, fd: impl AsRawFd, access: Access) -> Self {
        Self {
            fd: fd.as_raw_fd(),
            offset,
            length,
            iova,
            access,
        }
    }

    fn operation(self) -> Operation {
        Operation::RegisterDmabuf {
            fd: self.fd,
            offset: self.offset,
            length: self.length,
            iova: self.iova,
            access: self.access,
        }
    }

    /// What is wrong with it, whatever the device.
    fn problem(self) -> Option<String> {
        let Self { offset, iova, .. } = self;
        let page = page_size();
        let apart = || {
            (offset % page != iova % page).then(|| {
                format!(
                    "offset {offset:#x} and address {iova:#x} differ within a page of {page} bytes"
                )
            })
        };
        range_problem(iova, self.length)
            .or_else(|| range_problem(offset, self.length))
            .or_else(apart)
    }
}

impl Context {
    /// The directory in sysfs of the device's second PCI function, if it has mlx5's Data Direct
    /// (mlx5dv_get_data_direct_sysfs_path(3)). None for every other device, and where libmlx5 is
    /// missing or older than that (MLX5_1.25).
    pub fn data_direct_path(&self) -> Result<Option<PathBuf>, Error> {
        const LONGEST: usize = 4096; // PATH_MAX
        let Some(functions) = mlx5(self) else {
            return Ok(None);
        };
        let mut buffer: Vec<c_char> = vec![0; LONGEST];
        let ask = functions.get_data_direct_sysfs_path;
        // SAFETY: the context is open, and the buffer has the length that is given.
        let result =
            conv::returned(|| unsafe { ask(self.as_raw(), buffer.as_mut_ptr(), buffer.len()) });
        match result {
            Ok(()) => {
                let path = PathBuf::from(OsString::from_vec(conv::bytes_of(&buffer)));
                // Some releases give it with the mount point, some without.
                let below = path.strip_prefix("/sys").unwrap_or(&path);
                let below = below.strip_prefix("/").unwrap_or(below);
                Ok(Some(Path::new("/sys").join(below)))
            }
            Err(source) if is_absent(&source) => Ok(None),
            Err(source) => Err(self.error(Operation::QueryDataDirect, source)),
        }
    }
}

/// Whether the device has no Data Direct function, rather than that asking for it failed.
fn is_absent(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno.is_some_and(|errno| errno == libc::ENODEV || crate::error::is_unsupported(errno))
}

/// The functions of libmlx5, if the device is one of this provider's.
fn mlx5(context: &Context) -> Option<&Mlx5Functions> {
    let functions = context.library().mlx5()?;
    // SAFETY: the device is valid as long as the context.
    let is_ours = unsafe { (functions.is_supported)(context.device().as_raw()) };
    is_ours.then_some(functions)
}

/// The size of a page, in bytes.
fn page_size() -> u64 {
    // SAFETY: the call takes and gives plain numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX requires the value, so that the smallest page there is stands in only on paper.
    u64::try_from(size).unwrap_or(4096)
}
