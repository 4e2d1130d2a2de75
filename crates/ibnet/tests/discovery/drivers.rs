//! Drivers that say what no simulated device says: other transports, odd port attributes, refusals
//! to be opened. They stand in front of the simulator's table of functions.
//!
//! Discovery asks everything in the thread that opens the transport, so that each test has its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::raw::c_int;
use std::ptr;

use ibnet_verbs::sys::*;
use ibnet_verbs::{Functions, Library};

/// What a driver says instead of what the simulator would say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    /// `transport_type` of its device.
    pub(crate) transport: Option<ibv_transport_type>,
    /// The errno with which it refuses to be opened.
    pub(crate) refuses: Option<i32>,
    /// By port.
    pub(crate) ports: BTreeMap<u8, RawPort>,
}

/// Fields of `ibv_port_attr`. Only devices with the older kind of context are asked this way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawPort {
    pub(crate) lid: Option<u16>,
    pub(crate) width: Option<u8>,
    pub(crate) speed: Option<u8>,
    pub(crate) link_layer: Option<u8>,
}

struct Table {
    original: Functions,
    drivers: BTreeMap<String, Driver>,
    /// How often each function was called.
    calls: BTreeMap<&'static str, u64>,
}

thread_local! {
    static TABLE: RefCell<Option<Table>> = const { RefCell::new(None) };
}

/// `library` with these drivers, for this thread.
pub(crate) fn install(library: &Library, drivers: BTreeMap<String, Driver>) -> Library {
    let original = *library.functions();
    TABLE.set(Some(Table {
        original,
        drivers,
        calls: BTreeMap::new(),
    }));
    let functions = Functions {
        get_device_list,
        open_device,
        query_port,
        query_gid,
        query_gid_table: original.query_gid_table.map(|_| query_gid_table as _),
        ..original
    };
    // SAFETY: the functions are the simulator's, with other answers that the manual pages allow.
    // No test takes the library to another thread but for the events, whose functions are the
    // simulator's own.
    unsafe { Library::from_functions(functions) }
}

/// How often a function was called since [`install`].
pub(crate) fn calls(function: &str) -> u64 {
    with(|table| table.calls.get(function).copied().unwrap_or(0))
}

fn with<T>(look: impl FnOnce(&mut Table) -> T) -> T {
    TABLE.with_borrow_mut(|table| look(table.as_mut().expect("the table is installed")))
}

/// Notes a call and gives the function that it is passed on to.
fn original(function: &'static str) -> Functions {
    with(|table| {
        *table.calls.entry(function).or_default() += 1;
        table.original
    })
}

/// # Safety
/// The device is one of the simulator's.
unsafe fn driver_of(device: *mut ibv_device) -> Driver {
    // SAFETY: the caller's device is alive, and its name null-terminated.
    let name = unsafe { CStr::from_ptr((*device).name.as_ptr()) };
    let name = name.to_string_lossy();
    with(|table| table.drivers.get(&*name).cloned().unwrap_or_default())
}

unsafe extern "C" fn get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: as the caller called us.
    let list = unsafe { (original("get_device_list").get_device_list)(number) };
    let mut next = list;
    // SAFETY: the list ends with a null pointer, and its devices are alive and not used otherwise yet.
    unsafe {
        while !list.is_null() && !next.read().is_null() {
            let device = next.read();
            if let Some(transport) = driver_of(device).transport {
                (*device).transport_type = transport;
            }
            next = next.add(1);
        }
    }
    list
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: as the caller called us.
    if let Some(errno) = unsafe { driver_of(device) }.refuses {
        nix::errno::Errno::from_raw(errno).set();
        return ptr::null_mut();
    }
    // SAFETY: as the caller called us.
    unsafe { (original("open_device").open_device)(device) }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: as the caller called us.
    let answer = unsafe { (original("query_port").query_port)(context, port, attributes) };
    if answer == 0 {
        // SAFETY: the context is alive, and so is its device.
        let driver = unsafe { driver_of((*context).device) };
        let raw = driver.ports.get(&port).copied().unwrap_or_default();
        // SAFETY: the function has filled a prefix of this structure.
        let attributes = unsafe { &mut *attributes.cast::<ibv_port_attr>() };
        attributes.lid = raw.lid.unwrap_or(attributes.lid);
        attributes.active_width = raw.width.unwrap_or(attributes.active_width);
        attributes.active_speed = raw.speed.unwrap_or(attributes.active_speed);
        attributes.link_layer = raw.link_layer.unwrap_or(attributes.link_layer);
    }
    answer
}

unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: as the caller called us.
    unsafe { (original("query_gid").query_gid)(context, port, index, gid) }
}

unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    capacity: usize,
    flags: u32,
    size: usize,
) -> isize {
    let query = original("query_gid_table").query_gid_table;
    // SAFETY: as the caller called us; the table is only in place where there is such a function.
    query.map_or(-1, |query| unsafe {
        query(context, entries, capacity, flags, size)
    })
}
