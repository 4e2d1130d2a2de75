//! Loading real shared libraries: libibverbs where it is installed, and what is not libibverbs.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use ibnet_verbs::{ForkStatus, Library, LoadError};

/// The installed libibverbs, or none (with a line that says so) where there is none.
fn installed() -> Option<Library> {
    match Library::load_from(Path::new("libibverbs.so.1")) {
        Ok(library) => Some(library),
        Err(LoadError::NotFound { tried }) if tried[0].1.contains("No such file") => {
            println!("skipped: libibverbs.so.1 is not installed here");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_installed_library_has_what_is_needed() {
    let Some(library) = installed() else { return };
    // Where it was found, not by which name it was asked for: there may be several on a machine.
    let file = Path::new(library.file().unwrap());
    assert!(
        file.is_absolute() && file.ends_with("libibverbs.so.1"),
        "{file:?}"
    );
    // Any libibverbs of the last years has these; all of them come after IBVERBS_1.1, so that
    // they are found only if versions are asked for correctly.
    let functions = library.functions();
    assert!(functions.get_pkey_index.is_some());
    assert!(library.supports_optional_access());
    assert!(functions.query_ece.is_some() && functions.set_ece.is_some());
    // Without a device, too, the library answers.
    let status = library.fork_status();
    assert!(!matches!(status, ForkStatus::Unknown(_)), "{status:?}");
}

#[test]
fn loading_without_a_name_finds_the_installed_library() {
    if installed().is_none() {
        let error = Library::load().unwrap_err();
        let LoadError::NotFound { tried } = &error else {
            panic!("{error}")
        };
        let files: Vec<_> = tried.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(files, ["libibverbs.so", "libibverbs.so.1"]);
        return;
    }
    let first = Library::load().unwrap();
    let again = Library::load().unwrap();
    assert!(
        first.file().unwrap().contains("/libibverbs.so"),
        "{first:?}"
    );
    assert!(
        std::ptr::eq(first.functions(), again.functions()),
        "loaded twice"
    );
}

/// A machine without RDMA has an empty list, or an error that says what is wrong.
#[test]
fn the_devices_of_this_machine_can_be_listed() {
    let Some(library) = installed() else { return };
    match library.devices() {
        Ok(devices) => {
            println!("{} devices", devices.len());
            for device in devices {
                assert!(!device.name().is_empty());
                assert!(device.sysfs_path().ends_with(device.name()), "{device:?}");
                println!("{device:?}, GUID {:016x}", device.guid());
            }
        }
        Err(error) => {
            println!("{error}");
            assert!(
                error
                    .to_string()
                    .contains("listing the RDMA devices failed")
            );
        }
    }
}

#[test]
fn a_file_that_does_not_exist_is_named_with_what_the_linker_says() {
    let file = "/nonexistent/libibverbs.so.1";
    let error = Library::load_from(Path::new(file)).unwrap_err();
    let LoadError::NotFound { tried } = &error else {
        panic!("{error}")
    };
    assert_eq!(tried.len(), 1);
    assert_eq!(tried[0].0, file);
    assert!(tried[0].1.contains("No such file"), "{}", tried[0].1);
    let text = error.to_string();
    assert!(
        text.contains(file) && text.contains("libibverbs1"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let error = Library::load_from(&file).unwrap_err();
    assert!(matches!(error, LoadError::NotFound { .. }));
    assert!(error.to_string().contains("Cargo.toml"), "{error}");
}

#[test]
fn a_path_that_cannot_be_passed_to_c_is_an_error() {
    let error = Library::load_from(Path::new("lib\0.so")).unwrap_err();
    assert!(error.to_string().contains("null byte"), "{error}");
}

#[cfg(target_env = "gnu")]
#[test]
fn another_library_lacks_a_function_of_a_version() {
    let error = Library::load_from(Path::new("libc.so.6")).unwrap_err();
    assert_eq!(
        error,
        LoadError::MissingSymbol {
            file: "libc.so.6".to_owned(),
            symbol: "ibv_get_device_list",
            version: "IBVERBS_1.1",
        }
    );
    let text = error.to_string();
    for part in [
        "libc.so.6",
        "ibv_get_device_list",
        "IBVERBS_1.1",
        "not libibverbs",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
