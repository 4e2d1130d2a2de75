//! How functions without arguments find their fabric.
//!
//! Most verbs get a handle, from which the fabric is found. Three do not: `ibv_get_device_list`,
//! `ibv_fork_init` and `ibv_is_fork_initialized`. A C function has no state of its own either. So
//! there is a fixed number of copies of these three, one set per *slot*, and each fabric has a slot
//! as long as it lives: as its [`Fabric`](crate::Fabric), or as any device or context of it. Fabrics
//! in one process, such as those of tests that run in parallel, so never see each other.
//!
//! A slot that was given back is used again last of all. A library that outlives its fabric finds
//! no devices, until that happens.

use std::collections::VecDeque;
use std::os::raw::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ibnet_verbs::sys::{ibv_device, ibv_fork_status};

use crate::ffi::{fork, list};
use crate::shared::Shared;

/// How many fabrics there can be at a time.
pub(crate) const SLOTS: usize = 128;

/// The functions of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Trampolines {
    pub(crate) get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    pub(crate) fork_init: unsafe extern "C" fn() -> c_int,
    pub(crate) is_fork_initialized: unsafe extern "C" fn() -> ibv_fork_status,
}

unsafe extern "C" fn get_device_list<const SLOT: usize>(
    number: *mut c_int,
) -> *mut *mut ibv_device {
    // SAFETY: the caller gives null or a valid place for the number.
    unsafe { list::get_device_list(fabric_of(SLOT), number) }
}

unsafe extern "C" fn fork_init<const SLOT: usize>() -> c_int {
    fork::init(fabric_of(SLOT))
}

unsafe extern "C" fn is_fork_initialized<const SLOT: usize>() -> ibv_fork_status {
    fork::status(fabric_of(SLOT))
}

macro_rules! trampolines {
    ($($slot:literal)*) => {
        [$( Trampolines {
            get_device_list: get_device_list::<$slot>,
            fork_init: fork_init::<$slot>,
            is_fork_initialized: is_fork_initialized::<$slot>,
        }, )*]
    };
}

#[rustfmt::skip]
static TRAMPOLINES: [Trampolines; SLOTS] = trampolines!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120
    121 122 123 124 125 126 127
);

/// Who has which slot.
struct Registry {
    fabrics: Vec<Weak<Shared>>,
    /// Slots that were never used or given back, the longest unused first.
    free: VecDeque<usize>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn with_registry<T>(f: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry: MutexGuard<'_, _> = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    f(registry.get_or_insert_with(|| Registry {
        fabrics: (0..SLOTS).map(|_| Weak::new()).collect(),
        free: (0..SLOTS).collect(),
    }))
}

fn fabric_of(slot: usize) -> Option<Arc<Shared>> {
    with_registry(|registry| registry.fabrics[slot].upgrade())
}

/// A slot that is taken. Given back on drop.
pub(crate) struct Slot(usize);

impl Slot {
    /// Takes a slot, if one is free.
    pub(crate) fn take() -> Option<Self> {
        with_registry(|registry| registry.free.pop_front()).map(Self)
    }

    /// Makes the functions of the slot find their fabric.
    pub(crate) fn bind(&self, fabric: &Arc<Shared>) {
        with_registry(|registry| registry.fabrics[self.0] = Arc::downgrade(fabric));
    }

    pub(crate) fn trampolines(&self) -> Trampolines {
        TRAMPOLINES[self.0]
    }

    /// Which slot it is.
    pub(crate) fn number(&self) -> usize {
        self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        with_registry(|registry| registry.free.push_back(self.0));
    }
}
