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
                // SAFETY: the file was named as libibverbs, whose ABI the versions fix.
                let filled =
                    unsafe { Functions::fill(|symbol, version| object.find(symbol, version)) };
                let functions = filled.map_err(|(symbol, version)| LoadError::MissingSymbol {
                    file: name.clone(),
                    symbol,
                    version,
                })?;
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
        // SAFETY: the library is libmlx5, whose ABI the versions fix.
        let filled = unsafe { Mlx5Functions::fill(|symbol, version| object.find(symbol, version)) };
        if let Ok(functions) = filled {
            object.keep_open();
            tracing::debug!(file, "loaded libmlx5");
            return Some(functions);
        }
        tracing::debug!(file, "it is too old for Data Direct (MLX5_1.25)");
    }
    None
}

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

    /// The function of that name and version, if the library has it.
    fn find(&self, symbol: &str, version: &str) -> Option<NonNull<c_void>> {
        let (symbol, version) = (CString::new(symbol).ok()?, CString::new(version).ok()?);
        NonNull::new(self.lookup(&symbol, &version))
    }

    #[cfg(target_env = "gnu")]
    fn lookup(&self, symbol: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: the handle is open for as long as `self`, and both names are C strings.
        unsafe { libc::dlvsym(self.0.as_ptr(), symbol.as_ptr(), version.as_ptr()) }
    }

    /// Other C libraries have no versioned lookup. Their dynamic linker prefers the default
    /// version of a symbol, which is the newest.
    #[cfg(not(target_env = "gnu"))]
    fn lookup(&self, symbol: &CStr, _version: &CStr) -> *mut c_void {
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
