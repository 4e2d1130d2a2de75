//! Finding a network's table in a file.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::table::{NEWEST, OLDEST, Table};
use super::{Error, Result, elf};

/// NCCL's transport for InfiniBand and RoCE: a local symbol of its library.
const NCCL_BUILT_IN: &str = "ncclNetIb";

/// What to load: a file, and what in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// What it is called in results.
    pub(crate) label: String,
    /// The library.
    pub(crate) file: PathBuf,
    /// The table's symbol. Without one: the newest `ncclNetPlugin_vN`, else NCCL's own transport.
    pub(crate) symbol: Option<String>,
}

impl Source {
    /// Reads `[LABEL=]FILE[:SYMBOL]`. Without a label, the file's name is it.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        let (label, rest) = match text.split_once('=') {
            // A path may have an `=` in it, a label has no slash.
            Some((label, rest)) if !label.contains('/') => (Some(label), rest),
            _ => (None, text),
        };
        let (file, symbol) = match rest.rsplit_once(':') {
            Some((file, symbol)) if !symbol.contains('/') => (file, Some(symbol.to_owned())),
            _ => (rest, None),
        };
        let file = PathBuf::from(file);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let label = label.map_or_else(|| name.to_string(), str::to_owned);
        let is_label = |text: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !text.is_empty() && text.chars().all(known)
        };
        if file.as_os_str().is_empty() || symbol.as_deref() == Some("") || !is_label(&label) {
            return Err(format!("{text}: expected [LABEL=]FILE[:SYMBOL]"));
        }
        Ok(Self {
            label,
            file,
            symbol,
        })
    }
}

impl fmt::Display for Source {
    /// As [`Source::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.label, self.file.display())?;
        match &self.symbol {
            Some(symbol) => write!(f, ":{symbol}"),
            None => Ok(()),
        }
    }
}

/// A table, and what is known about where it came from.
pub(super) struct Loaded {
    pub(super) table: Table,
    pub(super) symbol: String,
    /// The version of NCCL, if the file is NCCL.
    pub(super) nccl: Option<String>,
}

/// Opens the file and finds the table. The library stays open for the life of the process.
pub(super) fn load(source: &Source) -> Result<Loaded> {
    let fail = |problem: String| Error::Load {
        file: source.file.display().to_string(),
        problem,
    };
    let file = find(&source.file);
    let library = Library::open(&file).map_err(fail)?;
    match &source.symbol {
        Some(symbol) => library.named(&file, symbol).map_err(fail),
        None => library.newest(&file).map_err(fail),
    }
}

/// Where a library is: here, or for a bare name that is not here, in the folders of `LD_LIBRARY_PATH` and
/// those where a system has its libraries, as for the linker.
fn find(file: &Path) -> PathBuf {
    const SYSTEM: &str = "/usr/local/lib:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:\
                          /lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:\
                          /lib64:/usr/lib64:/lib:/usr/lib";
    if file.components().count() != 1 || file.exists() {
        return file.to_owned();
    }
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).chain(std::env::split_paths(SYSTEM));
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(file))
        .find(|path| path.exists())
        .unwrap_or_else(|| file.to_owned())
}

struct Library(NonNull<c_void>);

impl Library {
    fn open(file: &Path) -> std::result::Result<Self, String> {
        // A name without a slash would be looked for on the library path.
        let file = file.canonicalize().map_err(|error| error.to_string())?;
        let name = CString::new(file.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string. That running the library's constructors is harmless is what naming it
        // on the command line says. NCCL opens plugins with the same flags.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(linker_error)
    }

    /// The address of an exported symbol.
    fn exported(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is open, and the name a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    fn newest(&self, file: &Path) -> std::result::Result<Loaded, String> {
        for version in (OLDEST..=NEWEST).rev() {
            let symbol = format!("ncclNetPlugin_v{version}");
            if self.exported(&symbol).is_some() {
                return self.named(file, &symbol);
            }
        }
        if self.nccl_version().is_some() {
            return self.named(file, NCCL_BUILT_IN);
        }
        Err(format!(
            "has no ncclNetPlugin_v{OLDEST} to _v{NEWEST}, and is not NCCL"
        ))
    }

    fn named(&self, file: &Path, symbol: &str) -> std::result::Result<Loaded, String> {
        let nccl = self.nccl_version();
        let version = match symbol.strip_prefix("ncclNetPlugin_v") {
            Some(number) => number
                .parse()
                .map_err(|_| format!("{symbol}: no version"))?,
            None => match nccl {
                Some(code) => interface_of(code),
                None => return Err(format!("{symbol}: which version of the interface is it?")),
            },
        };
        let address = match self.exported(symbol) {
            Some(address) => address,
            None => self.local(file, symbol, Table::size(version))?,
        };
        // SAFETY: the symbol is a table of this version: an exported one by its name, a local one by
        // the version of NCCL, with its size checked. It lives as long as the library, for ever.
        let table = unsafe { Table::at(version, address.as_ptr()) };
        let Some(table) = table else {
            return Err(format!(
                "{symbol} is of version {version}; known are {OLDEST} to {NEWEST}"
            ));
        };
        Ok(Loaded {
            table,
            symbol: symbol.to_owned(),
            nccl: nccl.map(|code| {
                // Since 2.9 the code is XXYYZZ.
                format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
            }),
        })
    }

    /// The address of a local symbol: where the library was loaded, and how far from there.
    fn local(
        &self,
        file: &Path,
        symbol: &str,
        size: Option<usize>,
    ) -> std::result::Result<NonNull<c_void>, String> {
        let Some(place) = elf::find(file, symbol)? else {
            return Err(format!(
                "has no symbol {symbol}: another build, or one without a symbol table"
            ));
        };
        if size.is_some_and(|size| place.size != size as u64) {
            return Err(format!(
                "{symbol} has {} bytes, which is not the table that was expected",
                place.size
            ));
        }
        let base = self.base()?;
        let offset = usize::try_from(place.offset).map_err(|error| error.to_string())?;
        NonNull::new(base.wrapping_byte_add(offset)).ok_or_else(|| format!("{symbol} is null"))
    }

    /// The address that the library's own addresses are relative to.
    fn base(&self) -> std::result::Result<*mut c_void, String> {
        /// The beginning of glibc's `struct link_map`.
        #[repr(C)]
        struct LinkMap {
            base: *mut c_void,
        }
        let mut map: *mut LinkMap = std::ptr::null_mut();
        // SAFETY: the library is open; the request stores a pointer to its link map.
        let result = unsafe {
            libc::dlinfo(
                self.0.as_ptr(),
                libc::RTLD_DI_LINKMAP,
                (&raw mut map).cast(),
            )
        };
        if result != 0 || map.is_null() {
            return Err(linker_error());
        }
        // SAFETY: dlinfo gave a link map, which is valid while the library is open.
        Ok(unsafe { (*map).base })
    }

    /// What `ncclGetVersion` says, if the library is NCCL.
    fn nccl_version(&self) -> Option<u32> {
        let function = self.exported("ncclGetVersion")?;
        // SAFETY: NCCL's public function of this name has this signature.
        let function: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { std::mem::transmute(function) };
        let mut code = 0;
        // SAFETY: the argument is a place for the number.
        let result = unsafe { function(&raw mut code) };
        (result == 0).then(|| u32::try_from(code).ok()).flatten()
    }
}

/// Which version of the interface NCCL's own networks have: the newest of that release.
fn interface_of(nccl: u32) -> u32 {
    match nccl / 100 {
        ..=218 => 6,
        219 => 7,
        220..=223 => 8,
        224 | 225 => 9,
        226 | 227 => 10,
        228 | 229 => 11,
        _ => 12,
    }
}

/// What the dynamic linker last complained about in this thread.
fn linker_error() -> String {
    // SAFETY: dlerror gives null or a C string that stays valid until this thread's next call of a
    // function of its family; it is copied at once.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the dynamic linker did not say why".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bare_name_is_looked_for_as_the_linker_does() {
        // Every system has its C library in one of these folders, and none here.
        let found = find(Path::new("libc.so.6"));
        assert!(found.is_absolute() && found.exists(), "{}", found.display());
        for as_it_is in [
            "libnot.so",
            "./libc.so.6",
            "/nowhere/libc.so.6",
            "Cargo.toml",
        ] {
            assert_eq!(find(Path::new(as_it_is)), Path::new(as_it_is));
        }
    }

    #[test]
    fn sources_are_read_and_written() {
        let expect = |text: &str, label: &str, file: &str, symbol: Option<&str>| {
            let source = Source::parse(text).unwrap();
            let found = (source.label.as_str(), source.symbol.as_deref());
            assert_eq!(found, (label, symbol), "{text}");
            assert_eq!(source.file, PathBuf::from(file));
            assert_eq!(Source::parse(&source.to_string()).unwrap(), source);
        };
        expect("a=/x/liba.so", "a", "/x/liba.so", None);
        expect("/x/liba.so", "liba.so", "/x/liba.so", None);
        expect("n=l.so:ncclNetIb", "n", "l.so", Some("ncclNetIb"));
        expect("/x=y/l:z/liba.so", "liba.so", "/x=y/l:z/liba.so", None);
        for wrong in ["", "a=", "=x", "a b=x.so", "a=x:", "/"] {
            assert!(Source::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_interface_follows_from_the_release() {
        let expected = [
            (21805, 6),
            (22005, 8),
            (22503, 9),
            (22705, 10),
            (22907, 11),
            (23203, 12),
        ];
        for (nccl, version) in expected {
            assert_eq!(interface_of(nccl), version, "{nccl}");
        }
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let missing = Source::parse("/nonexistent/lib.so").unwrap();
        let error = load(&missing).err().unwrap().to_string();
        assert!(error.contains("/nonexistent/lib.so"), "{error}");
    }
}
