//! What libmlx5 has beyond libibverbs.

use std::os::raw::{c_char, c_int};
use std::ptr;

use ibnet_verbs::Mlx5Functions;
use ibnet_verbs::sys::*;

use super::{fake, objects, or_errno, or_null, set_errno};

pub(crate) fn mlx5_functions() -> Mlx5Functions {
    Mlx5Functions {
        is_supported,
        get_data_direct_sysfs_path,
        reg_dmabuf_mr,
    }
}

unsafe extern "C" fn is_supported(_: *mut ibv_device) -> bool {
    fake(|fake| fake.data_direct.is_some())
}

unsafe extern "C" fn get_data_direct_sysfs_path(
    _: *mut ibv_context,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    or_errno("get_data_direct_sysfs_path", || {
        let path = fake(|fake| fake.data_direct.unwrap_or_default());
        if path.len() >= length {
            return libc::ENOSPC;
        }
        // SAFETY: the caller's buffer has room for the path and a null.
        unsafe {
            ptr::copy_nonoverlapping(path.as_ptr(), buffer.cast(), path.len());
            buffer.add(path.len()).write(0);
        }
        0
    })
}

unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    _offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
    mlx5_access: c_int,
) -> *mut ibv_mr {
    or_null("mlx5dv_reg_dmabuf_mr", || {
        assert_eq!(mlx5_access, 1, "Data Direct");
        if fd < 0 {
            set_errno(libc::EBADF);
            return ptr::null_mut();
        }
        objects::region(
            "mlx5dv_reg_dmabuf_mr",
            pd,
            length,
            iova,
            access.cast_unsigned(),
        )
    })
}
