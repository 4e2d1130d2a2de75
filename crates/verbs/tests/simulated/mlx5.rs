//! Data Direct of mlx5: found where the provider's library has it, and nowhere else.

use std::cell::Cell;
use std::os::raw::{c_char, c_int};
use std::path::Path;
use std::ptr;

use ibnet_simverbs::DeviceSpec;
use ibnet_verbs::sys::{ibv_context, ibv_device, ibv_mr, ibv_pd};
use ibnet_verbs::{Access, Context, Mlx5Functions};

use crate::tap::{context, fabric, set_errno};

/// What the provider says of the device, after the path of `/sys` or an errno; none for a device of
/// another provider.
type Answer = Option<Result<&'static str, i32>>;

thread_local! {
    static ANSWER: Cell<Answer> = const { Cell::new(None) };
}

unsafe extern "C" fn is_supported(_: *mut ibv_device) -> bool {
    ANSWER.get().is_some()
}

unsafe extern "C" fn get_data_direct_sysfs_path(
    _: *mut ibv_context,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    match ANSWER.get().expect("only mlx5 devices are asked") {
        Ok(path) if path.len() < length => {
            // SAFETY: the caller's buffer has room for the path and a null.
            unsafe {
                ptr::copy_nonoverlapping(path.as_ptr(), buffer.cast(), path.len());
                buffer.add(path.len()).write(0);
            }
            0
        }
        Ok(_) => libc::ENOSPC,
        Err(errno) => errno,
    }
}

unsafe extern "C" fn reg_dmabuf_mr(
    _: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
    _mlx5_access: c_int,
) -> *mut ibv_mr {
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

fn mlx5_context(answer: Answer) -> Context {
    ANSWER.set(answer);
    let mlx5 = Mlx5Functions {
        is_supported,
        get_data_direct_sysfs_path,
        reg_dmabuf_mr,
    };
    let fabric = fabric(DeviceSpec::roce("sim0"));
    // SAFETY: the functions behave as those of libmlx5, for one thread.
    let library = unsafe { fabric.library().with_mlx5(mlx5) };
    library.devices().unwrap().remove(0).open().unwrap()
}

#[test]
fn the_second_function_is_found_below_sys() {
    for path in [
        "/devices/pci0000:05/0000:05:00.0",
        "/sys/devices/pci0000:05/0000:05:00.0",
    ] {
        let found = mlx5_context(Some(Ok(path)))
            .data_direct_path()
            .unwrap()
            .unwrap();
        assert_eq!(found, Path::new("/sys/devices/pci0000:05/0000:05:00.0"));
    }
}

#[test]
fn a_device_without_a_second_function_is_no_error() {
    // Without the provider's library, and of another provider, which is not asked.
    assert_eq!(context().data_direct_path().unwrap(), None);
    assert_eq!(mlx5_context(None).data_direct_path().unwrap(), None);
    for errno in [libc::ENODEV, libc::EOPNOTSUPP] {
        let context = mlx5_context(Some(Err(errno)));
        assert_eq!(context.data_direct_path().unwrap(), None);
    }
    let context = mlx5_context(Some(Err(libc::EIO)));
    let error = context.data_direct_path().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EIO));
    assert!(error.to_string().contains("Data Direct"), "{error}");
}

#[test]
fn memory_is_not_registered_where_the_provider_cannot() {
    let pd = mlx5_context(Some(Ok("/x"))).allocate_pd().unwrap();
    assert!(pd.probe_dmabuf_data_direct().unwrap_err().is_unsupported());
    // Nothing impossible is passed on.
    // SAFETY: nothing is registered.
    let error = unsafe { pd.register_dmabuf_data_direct(0, 0, 0, 5, Access::empty()) }.unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));

    let pd = context().allocate_pd().unwrap();
    let missing = pd.probe_dmabuf_data_direct().unwrap_err();
    assert!(missing.is_unsupported());
    let text = missing.to_string();
    assert!(text.contains("mlx5dv_reg_dmabuf_mr"), "{text}");
}
