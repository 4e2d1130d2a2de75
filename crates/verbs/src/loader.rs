//! Filling the table of functions from a shared library at run time.
//!
//! Symbols are looked up with their version. Many of them exist twice, as IBVERBS_1.0 and
//! IBVERBS_1.1, with different structures behind the same name, and an unversioned lookup may
//! give the old one.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::raw::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::functions::{Functions, MLX5_FILES, Mlx5Functions};

/// The files that are tried when none is named, in this order.
pub(crate) const DEFAULT_FILES: [&str; 2] = ["libibverbs.so", "libibverbs.so.1"];

/// Why libibverbs could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file could be opened. Usually libibverbs is not installed.
    #[error(
        "libibverbs could not be loaded ({}). It comes with rdma-core: on Debian and Ubuntu in \
         the packages libibverbs1 and ibverbs-providers, on Fedora and RHEL in libibverbs",
        tried.iter().map(|(file, why)| format!("{file}: {why}")).collect::<Vec<_>>().join("; ")
    )]
    NotFound {
        /// Each file that was tried, with what `dlerror` said about it.
        tried: Vec<(String, String)>,
    },
    /// The file was opened, but a function that cannot be done without is missing. Usually it is
    /// another library, or a libibverbs from before version 1.1.
    #[error(
        "{file} has no function {symbol} with version {version}: it is not libibverbs, or far too \
         old"
    )]
    MissingSymbol {
        /// The file that was opened.
        file: String,
        /// The function, as libibverbs exports it.
        symbol: &'static str,
        /// The symbol version, as in `IBVERBS_1.1`.
        version: &'static str,
    },
}

/// Opens the first of `files` that can be opened, and fills the table from it. Gives the path that
/// it was found at, too.
///
/// The library stays open for the life of the process: pointers into it may be anywhere.
pub(crate) fn load(files: &[&Path]) -> Result<(Functions, String), LoadError> {
    let mut tried = Vec::new();
    for file in files {
        let name = file.display().to_string();
        match SharedObject::open(file) {
            Ok(object) => {
                let functions = object.functions(&name)?;
                object.keep_open();
                let path = path_of(functions.get_device_list as *const c_void);
                return Ok((functions, path.unwrap_or(name)));
            }
            Err(why) => tried.push((name, why)),
        }
    }
    Err(LoadError::NotFound { tried })
}

/// The functions of the provider's library libmlx5, if the machine has one that is new enough.
///
/// The library stays open for the life of the process, as libibverbs itself keeps it.
pub(crate) fn load_mlx5() -> Option<Mlx5Functions> {
    for file in MLX5_FILES {
        let Ok(object) = SharedObject::open(Path::new(file)) else {
            continue;
        };
        if let Some(functions) = object.mlx5_functions() {
            object.keep_open();
            tracing::debug!(file, "loaded libmlx5");
            return Some(functions);
        }
        tracing::debug!(file, "it is too old for Data Direct (MLX5_1.25)");
    }
    None
}

/// A symbol version. The text is null-terminated for `dlvsym`.
#[derive(Clone, Copy)]
struct Version(&'static CStr);

const V1_0: Version = Version(c"IBVERBS_1.0");
const V1_1: Version = Version(c"IBVERBS_1.1");
const V1_5: Version = Version(c"IBVERBS_1.5");
const V1_8: Version = Version(c"IBVERBS_1.8");
const V1_9: Version = Version(c"IBVERBS_1.9");
const V1_10: Version = Version(c"IBVERBS_1.10");
const V1_11: Version = Version(c"IBVERBS_1.11");
const V1_12: Version = Version(c"IBVERBS_1.12");
const V1_13: Version = Version(c"IBVERBS_1.13");
const V1_16: Version = Version(c"IBVERBS_1.16");
const MLX5_1_8: Version = Version(c"MLX5_1.8");
const MLX5_1_25: Version = Version(c"MLX5_1.25");

/// An open shared library, closed on drop unless it is to be kept.
struct SharedObject(NonNull<c_void>);

impl SharedObject {
    /// Opens a library, or says what the dynamic linker had against it.
    fn open(file: &Path) -> Result<Self, String> {
        let name = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| "the path contains a null byte".to_owned())?;
        // SAFETY: `name` is a valid C string. That running the library's constructors is
        // harmless is what naming it as libibverbs promises. Local scope, because NCCL has
        // functions of the same names in this process.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(dynamic_linker_error)
    }

    /// Never closes the library.
    fn keep_open(self) {
        std::mem::forget(self);
    }

    /// Looks every function up. `file` is for the error.
    fn functions(&self, file: &str) -> Result<Functions, LoadError> {
        // SAFETY (for each lookup): the type of the field is that of the libibverbs function of
        // this name and version, whose ABI is fixed by the version.
        macro_rules! required {
            ($symbol:literal, $version:expr) => {
                // SAFETY: see above the macros.
                unsafe { self.required(file, $symbol, $version) }?
            };
        }
        macro_rules! optional {
            ($symbol:literal, $version:expr) => {
                // SAFETY: see above the macros.
                unsafe { self.optional($symbol, $version) }
            };
        }
        Ok(Functions {
            get_device_list: required!(c"ibv_get_device_list", V1_1),
            free_device_list: required!(c"ibv_free_device_list", V1_1),
            get_device_name: required!(c"ibv_get_device_name", V1_1),
            get_device_guid: required!(c"ibv_get_device_guid", V1_1),
            get_device_index: optional!(c"ibv_get_device_index", V1_9),
            open_device: required!(c"ibv_open_device", V1_1),
            close_device: required!(c"ibv_close_device", V1_1),
            get_async_event: required!(c"ibv_get_async_event", V1_1),
            ack_async_event: required!(c"ibv_ack_async_event", V1_1),
            query_device: required!(c"ibv_query_device", V1_1),
            query_port: required!(c"ibv_query_port", V1_1),
            query_port_speed: optional!(c"ibv_query_port_speed", V1_16),
            query_gid: required!(c"ibv_query_gid", V1_1),
            query_gid_ex: optional!(c"_ibv_query_gid_ex", V1_11),
            query_gid_table: optional!(c"_ibv_query_gid_table", V1_11),
            query_pkey: required!(c"ibv_query_pkey", V1_1),
            get_pkey_index: optional!(c"ibv_get_pkey_index", V1_5),
            alloc_pd: required!(c"ibv_alloc_pd", V1_1),
            dealloc_pd: required!(c"ibv_dealloc_pd", V1_1),
            reg_mr: required!(c"ibv_reg_mr", V1_1),
            reg_mr_iova2: optional!(c"ibv_reg_mr_iova2", V1_8),
            reg_dmabuf_mr: optional!(c"ibv_reg_dmabuf_mr", V1_12),
            dereg_mr: required!(c"ibv_dereg_mr", V1_1),
            create_comp_channel: required!(c"ibv_create_comp_channel", V1_0),
            destroy_comp_channel: required!(c"ibv_destroy_comp_channel", V1_0),
            get_cq_event: required!(c"ibv_get_cq_event", V1_1),
            ack_cq_events: required!(c"ibv_ack_cq_events", V1_1),
            create_cq: required!(c"ibv_create_cq", V1_1),
            destroy_cq: required!(c"ibv_destroy_cq", V1_1),
            create_qp: required!(c"ibv_create_qp", V1_1),
            modify_qp: required!(c"ibv_modify_qp", V1_1),
            query_qp: required!(c"ibv_query_qp", V1_1),
            destroy_qp: required!(c"ibv_destroy_qp", V1_1),
            query_ece: optional!(c"ibv_query_ece", V1_10),
            set_ece: optional!(c"ibv_set_ece", V1_10),
            fork_init: required!(c"ibv_fork_init", V1_1),
            is_fork_initialized: optional!(c"ibv_is_fork_initialized", V1_13),
        })
    }

    /// Looks the functions of libmlx5 up: all of them, or none.
    fn mlx5_functions(&self) -> Option<Mlx5Functions> {
        // SAFETY: the types of the fields are those of the functions of this name and version in
        // mlx5dv.h, whose ABI is fixed by the version.
        unsafe {
            Some(Mlx5Functions {
                is_supported: self.optional(c"mlx5dv_is_supported", MLX5_1_8)?,
                get_data_direct_sysfs_path: self
                    .optional(c"mlx5dv_get_data_direct_sysfs_path", MLX5_1_25)?,
                reg_dmabuf_mr: self.optional(c"mlx5dv_reg_dmabuf_mr", MLX5_1_25)?,
            })
        }
    }

    /// # Safety
    ///
    /// As for [`optional`](Self::optional).
    unsafe fn required<F: Copy>(
        &self,
        file: &str,
        symbol: &'static CStr,
        version: Version,
    ) -> Result<F, LoadError> {
        // SAFETY: passed on to the caller.
        unsafe { self.optional(symbol, version) }.ok_or_else(|| LoadError::MissingSymbol {
            file: file.to_owned(),
            symbol: ascii(symbol),
            version: ascii(version.0),
        })
    }

    /// The function of that name and version, if the library has it.
    ///
    /// # Safety
    ///
    /// `F` is a pointer type of the function that the symbol names.
    unsafe fn optional<F: Copy>(&self, symbol: &CStr, version: Version) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = NonNull::new(self.lookup(symbol, version))?;
        // SAFETY: the caller guarantees that `F` is a pointer type (the size is checked above)
        // of the function at this address, which is not null.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }

    #[cfg(target_env = "gnu")]
    fn lookup(&self, symbol: &CStr, version: Version) -> *mut c_void {
        // SAFETY: the handle is open for as long as `self`, and both names are C strings.
        unsafe { libc::dlvsym(self.0.as_ptr(), symbol.as_ptr(), version.0.as_ptr()) }
    }

    /// Other C libraries have no versioned lookup. Their dynamic linker prefers the default
    /// version of a symbol, which is the newest.
    #[cfg(not(target_env = "gnu"))]
    fn lookup(&self, symbol: &CStr, _version: Version) -> *mut c_void {
        // SAFETY: the handle is open for as long as `self`, and the name is a C string.
        unsafe { libc::dlsym(self.0.as_ptr(), symbol.as_ptr()) }
    }
}

impl Drop for SharedObject {
    /// Only reached when a function was missing, so that nothing points into the library.
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// The file that the code at `address` was loaded from, as the dynamic linker found it
/// (dladdr(3)).
fn path_of(address: *const c_void) -> Option<String> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the second argument is a valid place for the answer.
    if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all of the structure was zero, and is what dladdr has filled in since.
    let file = NonNull::new(unsafe { found.assume_init() }.dli_fname.cast_mut())?;
    // SAFETY: a file name is a C string that lives as long as its library, which is never closed.
    let file = unsafe { CStr::from_ptr(file.as_ptr()) };
    Some(file.to_string_lossy().into_owned())
}

/// What the dynamic linker last complained about in this thread.
fn dynamic_linker_error() -> String {
    // SAFETY: dlerror gives null or a C string that stays valid until this thread's next call of
    // a function of its family; it is copied at once.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the dynamic linker did not say why".to_owned())
}

/// A name of this file as text. All of them are plain ASCII.
const fn ascii(name: &'static CStr) -> &'static str {
    match name.to_str() {
        Ok(text) => text,
        Err(_) => "?",
    }
}
