//! Data Direct of mlx5: found where the provider's library has it, and nowhere else.

use std::path::Path;

use ibnet_verbs::{Access, Context};

use crate::fake::{Failure, called, context, fail, fake, functions, library_of, mlx5_functions};

/// An open device with the provider's functions, of which it is one if it has a path.
fn mlx5_context(path: Option<&'static str>) -> Context {
    fake(|fake| fake.data_direct = path);
    // SAFETY: the functions behave as those of libmlx5, for one thread.
    let library = unsafe { library_of(functions()).with_mlx5(mlx5_functions()) };
    library.devices().unwrap().remove(0).open().unwrap()
}

#[test]
fn the_second_function_is_found_below_sys() {
    for path in [
        "/devices/pci0000:05/0000:05:00.0",
        "/sys/devices/pci0000:05/0000:05:00.0",
    ] {
        let found = mlx5_context(Some(path))
            .data_direct_path()
            .unwrap()
            .unwrap();
        assert_eq!(found, Path::new("/sys/devices/pci0000:05/0000:05:00.0"));
    }
}

#[test]
fn whoever_has_none_has_none() {
    // No library of the provider.
    assert_eq!(context().data_direct_path().unwrap(), None);
    // Another provider's device: it must not be asked.
    assert_eq!(mlx5_context(None).data_direct_path().unwrap(), None);
    assert_eq!(called("get_data_direct_sysfs_path"), 0);
    for errno in [libc::ENODEV, libc::EOPNOTSUPP] {
        fail("get_data_direct_sysfs_path", Failure::Errno(errno));
        assert_eq!(mlx5_context(Some("/x")).data_direct_path().unwrap(), None);
    }
    fail("get_data_direct_sysfs_path", Failure::Errno(libc::EIO));
    let error = mlx5_context(Some("/x")).data_direct_path().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EIO));
    assert!(error.to_string().contains("Data Direct"), "{error}");
}

#[test]
fn memory_is_registered_with_the_providers_flag() {
    let pd = mlx5_context(Some("/x")).allocate_pd().unwrap();
    pd.probe_dmabuf_data_direct().unwrap();
    // SAFETY: the device is fake and touches no memory.
    let region =
        unsafe { pd.register_dmabuf_data_direct(0, 100, 0x1000_0000, 5, Access::LOCAL_WRITE) };
    assert_eq!(region.unwrap().address(), 0x1000_0000);
    let registered = fake(|fake| fake.registered.take()).unwrap();
    assert_eq!(registered, ("mlx5dv_reg_dmabuf_mr", 100, 0x1000_0000, 1));
    assert_eq!(called("reg_dmabuf_mr"), 0);
    fail("mlx5dv_reg_dmabuf_mr", Failure::Errno(libc::EOPNOTSUPP));
    assert!(pd.probe_dmabuf_data_direct().unwrap_err().is_unsupported());

    let pd = context().allocate_pd().unwrap();
    let missing = pd.probe_dmabuf_data_direct().unwrap_err();
    assert!(missing.is_unsupported());
    assert!(
        missing.to_string().contains("mlx5dv_reg_dmabuf_mr"),
        "{missing}"
    );
    // Nothing impossible is passed on.
    let pd = mlx5_context(Some("/x")).allocate_pd().unwrap();
    // SAFETY: as above.
    let error = unsafe { pd.register_dmabuf_data_direct(0, 0, 0, 5, Access::empty()) }.unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
}
