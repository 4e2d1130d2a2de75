//! [`Mlx5Functions`]: what NVIDIA's adapters can do beyond the common verbs, as far as it is used
//! here: Data Direct.
//!
//! An adapter with Data Direct has a second PCI function, by which it reaches memory of a GPU
//! without passing through the CPU. The provider's own library tells where that function is, and
//! registers memory for it. That library is opened at run time when it is first asked for; a
//! machine without it, or with an older one, has no Data Direct.

use std::os::raw::{c_char, c_int};
use std::path::{Path, PathBuf};

use ibverbs_sys::{ibv_context, ibv_device, ibv_mr, ibv_pd};

use crate::access::Access;
use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::pd::ProtectionDomain;

/// The files that may be the provider's library.
pub(crate) const FILES: [&str; 2] = ["libmlx5.so", "libmlx5.so.1"];

/// `MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT` of `mlx5dv.h`.
const ACCESS_DATA_DIRECT: c_int = 1;

/// The functions of libmlx5 that this crate calls. A library lacks either all of them or none: see
/// [`Library::with_mlx5`](crate::Library::with_mlx5).
#[derive(Clone, Copy, Debug)]
pub struct Mlx5Functions {
    /// `mlx5dv_is_supported`, MLX5_1.8: whether the device is one of this provider's.
    pub is_supported: unsafe extern "C" fn(device: *mut ibv_device) -> bool,
    /// `mlx5dv_get_data_direct_sysfs_path`, MLX5_1.25: the directory of the device's Data Direct
    /// function, below `/sys`, null-terminated. Errno; `ENODEV` when it has none.
    pub get_data_direct_sysfs_path: unsafe extern "C" fn(
        context: *mut ibv_context,
        buffer: *mut c_char,
        length: usize,
    ) -> c_int,
    /// `mlx5dv_reg_dmabuf_mr`, MLX5_1.25: as `ibv_reg_dmabuf_mr`, with flags of the provider.
    /// Null.
    pub reg_dmabuf_mr: unsafe extern "C" fn(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
        mlx5_access: c_int,
    ) -> *mut ibv_mr,
}

/// The directory in sysfs of a device's Data Direct function. None if the device has none, is not
/// of this provider, or the provider's library is missing or too old.
pub(crate) fn data_direct_path(context: &Context) -> Result<Option<PathBuf>, Error> {
    const LONGEST: usize = 4096; // PATH_MAX
    let Some(functions) = functions_for(context) else {
        return Ok(None);
    };
    let mut buffer: Vec<c_char> = vec![0; LONGEST];
    let result = conv::returned(|| {
        // SAFETY: the context is open, and the buffer has the length that is given.
        unsafe {
            (functions.get_data_direct_sysfs_path)(
                context.as_raw(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        }
    });
    match result {
        Ok(()) => {
            let path = conv::bytes_of(&buffer);
            let path = String::from_utf8_lossy(&path).into_owned();
            // Some releases give it with the mount point, some without.
            Ok(Some(match path.strip_prefix("/sys/") {
                Some(_) => PathBuf::from(path),
                None => Path::new("/sys").join(path.trim_start_matches('/')),
            }))
        }
        Err(source) => match source.raw_os_error() {
            Some(libc::ENODEV | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT) => {
                Ok(None)
            }
            _ => Err(Error::DataDirect {
                device: context.device_name().to_owned(),
                source,
            }),
        },
    }
}

/// Registers memory for the Data Direct function: what `ibv_reg_dmabuf_mr` does, with a flag.
///
/// # Safety
///
/// As for [`ProtectionDomain::register_dmabuf`], unless `fd` is no descriptor.
pub(crate) unsafe fn register_dmabuf(
    pd: &ProtectionDomain,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: Access,
) -> Option<std::io::Result<std::ptr::NonNull<ibv_mr>>> {
    let functions = functions_for(pd.context())?;
    // SAFETY: the domain is alive; about the memory see the caller.
    Some(conv::pointer(|| unsafe {
        (functions.reg_dmabuf_mr)(
            pd.as_raw(),
            offset,
            length,
            iova,
            fd,
            access.bits().cast_signed(),
            ACCESS_DATA_DIRECT,
        )
    }))
}

/// The functions, if the device is one of this provider's.
fn functions_for(context: &Context) -> Option<&Mlx5Functions> {
    let functions = context.library().mlx5()?;
    // SAFETY: the device is valid as long as the context.
    let is_ours = unsafe { (functions.is_supported)(context.device().as_raw()) };
    is_ours.then_some(functions)
}
