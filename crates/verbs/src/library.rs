//! [`Library`]: a table of verbs functions, wherever it came from.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ibverbs_sys::{IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED};

use crate::conv;
use crate::error::Error;
use crate::functions::{Functions, Mlx5Functions};
use crate::loader::{self, DEFAULT_FILES, LoadError};
use crate::operation::Operation;

/// The verbs functions, loaded from libibverbs or provided by the process itself.
///
/// Clones are cheap and mean the same library. Every resource keeps the library that it came
/// from, so that real and simulated devices can live in one process.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    functions: Functions,
    /// The file that the functions come from, none if the process provides them.
    file: Option<String>,
    /// What the provider of mlx5 devices has beyond that, once it was asked for.
    mlx5: OnceLock<Option<Mlx5Functions>>,
    copies_on_fork: OnceLock<bool>,
}

impl Library {
    /// Loads the system's libibverbs: `libibverbs.so`, or else `libibverbs.so.1`.
    ///
    /// The library is loaded once and never unloaded; later calls give the same one. A failure
    /// is not remembered.
    ///
    /// # Errors
    ///
    /// Which files were tried and why they were not accepted, or which function is missing.
    pub fn load() -> Result<Self, LoadError> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library.clone());
        }
        let library = Self::load_first(&DEFAULT_FILES.map(Path::new))?;
        Ok(LOADED.get_or_init(|| library).clone())
    }

    /// Loads libibverbs from one file. A name without a slash is searched for by the dynamic
    /// linker, as in dlopen(3).
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load).
    pub fn load_from(path: &Path) -> Result<Self, LoadError> {
        Self::load_first(&[path])
    }

    fn load_first(files: &[&Path]) -> Result<Self, LoadError> {
        let (functions, file) = loader::load(files)?;
        tracing::debug!(file, "loaded libibverbs");
        Ok(Self(Arc::new(Inner {
            functions,
            file: Some(file),
            mlx5: OnceLock::new(),
            copies_on_fork: OnceLock::new(),
        })))
    }

    /// A library whose functions the process itself provides.
    ///
    /// # Safety
    ///
    /// The functions behave as those of libibverbs that [`Functions`] names: they accept what
    /// the manual pages allow, from any thread; the objects that they return stay valid until
    /// the matching function destroys them; contexts are laid out and equipped as
    /// [`Functions`] describes.
    pub unsafe fn from_functions(functions: Functions) -> Self {
        Self(Arc::new(Inner {
            functions,
            file: None,
            // What is on the machine has nothing to do with it.
            mlx5: OnceLock::from(None),
            copies_on_fork: OnceLock::new(),
        }))
    }

    /// A library of the same functions, with `mlx5` for its devices of that provider. Without this,
    /// a library whose functions the process provides has none.
    ///
    /// # Safety
    ///
    /// The functions behave as those of libmlx5 that [`Mlx5Functions`] names, for the devices of
    /// this library.
    pub unsafe fn with_mlx5(self, mlx5: Mlx5Functions) -> Self {
        Self(Arc::new(Inner {
            functions: self.0.functions,
            file: self.0.file.clone(),
            mlx5: OnceLock::from(Some(mlx5)),
            copies_on_fork: OnceLock::new(),
        }))
    }

    /// The functions of libmlx5, which is opened at the first call. None if the machine has none,
    /// or one that is too old.
    pub(crate) fn mlx5(&self) -> Option<&Mlx5Functions> {
        self.0.mlx5.get_or_init(loader::load_mlx5).as_ref()
    }

    /// The table itself, for a table that wraps it.
    pub fn functions(&self) -> &Functions {
        &self.0.functions
    }

    /// The file that the library was loaded from, by the path at which it was found; none for a
    /// table provided by the process.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// Makes registered memory survive fork(2).
    ///
    /// To be called before anything else; once it has succeeded, later calls change nothing. On a
    /// kernel that copies pinned pages on fork there is nothing to do, as
    /// [`copies_on_fork`](Self::copies_on_fork) tells, and it is better not done: libibverbs 44 then
    /// keeps registered memory out of children all the same (`MADV_DONTFORK`), which splits a mapping for
    /// each registration, and ends a child that reads there.
    ///
    /// # Errors
    ///
    /// `EINVAL` when anything in the process has registered memory before the
    /// first call. libibverbs 44 refuses that even where there is nothing to do; newer ones do not.
    pub fn init_fork(&self) -> Result<(), Error> {
        // SAFETY: the function takes nothing and may be called at any time.
        conv::returned(|| unsafe { (self.functions().fork_init)() }).map_err(|source| Error {
            operation: Operation::InitFork,
            device: String::new(),
            source,
        })
    }

    /// Whether the kernel copies pinned pages on fork (5.12 and later), so that registered memory
    /// survives fork(2) by itself. False if libibverbs cannot tell. Asked once: the kernel stays.
    pub fn copies_on_fork(&self) -> bool {
        let ask = || self.fork_status() == ForkStatus::Unneeded;
        *self.0.copies_on_fork.get_or_init(ask)
    }

    /// Whether registered memory survives fork(2).
    pub fn fork_status(&self) -> ForkStatus {
        let Some(is_fork_initialized) = self.functions().is_fork_initialized else {
            return ForkStatus::NotReported;
        };
        // SAFETY: the function takes nothing and may be called at any time.
        match unsafe { is_fork_initialized() } {
            IBV_FORK_DISABLED => ForkStatus::Disabled,
            IBV_FORK_ENABLED => ForkStatus::Enabled,
            IBV_FORK_UNNEEDED => ForkStatus::Unneeded,
            raw => ForkStatus::Unknown(raw),
        }
    }

    /// Whether optional access flags (relaxed ordering) can have an effect: without
    /// `ibv_reg_mr_iova2` they are dropped.
    pub fn supports_optional_access(&self) -> bool {
        self.functions().reg_mr_iova2.is_some()
    }

    /// Whether memory can be registered from a DMA-BUF, as far as the library is concerned. The
    /// kernel and the driver have a say in it too.
    pub fn supports_dmabuf(&self) -> bool {
        self.functions().reg_dmabuf_mr.is_some()
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Library")
            .field(&self.file().unwrap_or("provided by the process"))
            .finish()
    }
}

/// Whether registered memory survives fork(2). See ibv_is_fork_initialized(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkStatus {
    /// `IBV_FORK_DISABLED`: it does not; [`Library::init_fork`] was not called.
    Disabled,
    /// `IBV_FORK_ENABLED`: it does, because of [`Library::init_fork`].
    Enabled,
    /// `IBV_FORK_UNNEEDED`: it does, because the kernel copies pinned pages on fork.
    Unneeded,
    /// The library cannot say: it is older than IBVERBS_1.13.
    NotReported,
    /// A value that this crate does not know.
    Unknown(u32),
}
