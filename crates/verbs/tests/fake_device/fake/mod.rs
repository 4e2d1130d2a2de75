//! A table of functions over a scripted device.
//!
//! Each test sets up what the device answers, in a state of its own thread, and reads afterwards
//! which functions were called. Every function can be told to fail, in its own style of failing or
//! in one that it should not have.

mod device;
mod mlx5;
mod objects;
mod queues;

pub(crate) use mlx5::mlx5_functions;

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::raw::{c_int, c_uint};
use std::path::PathBuf;
use std::ptr;

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::*;
use ibnet_verbs::{Context, Device, Functions, Library};

/// What the scripted device answers, and what it was asked.
pub(crate) struct Fake {
    /// The functions that were called, in order, without `ibv_`.
    pub(crate) calls: Vec<&'static str>,
    /// Functions that are to fail, each time they are called.
    pub(crate) failures: HashMap<&'static str, Failure>,
    pub(crate) devices: usize,
    pub(crate) sysfs: PathBuf,
    pub(crate) transport: i32,
    /// Whether contexts and channels have a descriptor.
    pub(crate) descriptors: bool,
    /// What kind of contexts the device opens.
    pub(crate) extended: Extended,
    pub(crate) device: ibv_device_attr,
    pub(crate) port: ibv_port_attr,
    /// In units of 100 Mb/s.
    pub(crate) speed: u64,
    pub(crate) pkeys: Vec<u16>,
    /// The GID table of port 1; none for an entry that cannot be read.
    pub(crate) gids: Vec<Option<ibv_gid_entry>>,
    /// The memory that was registered last: by which function, length, address, access.
    pub(crate) registered: Option<(&'static str, usize, u64, u32)>,
    /// What queue pairs are granted.
    pub(crate) granted: ibv_qp_cap,
    /// What was asked of the queue pair that was made last.
    pub(crate) requested: Option<ibv_qp_init_attr>,
    /// Each modification of a queue pair, with its mask.
    pub(crate) modified: Vec<(ibv_qp_attr, c_int)>,
    pub(crate) ece: ibv_ece,
    /// What is polled next.
    pub(crate) completions: Vec<RawCompletion>,
    /// How many requests still fit a queue.
    pub(crate) room: usize,
    pub(crate) sent: Vec<Sent>,
    pub(crate) received: Vec<Received>,
    /// What `get_async_event` gives next: an event, or an errno.
    pub(crate) events: Vec<Result<ibv_async_event, i32>>,
    pub(crate) acknowledged: Vec<c_uint>,
    pub(crate) fork_status: ibv_fork_status,
    /// The path of the Data Direct function of an mlx5 device.
    pub(crate) data_direct: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extended {
    /// `abi_compat` is null.
    No,
    /// As a library of today.
    Yes,
    /// An older library, whose structure ends before `query_port`.
    TooShort,
    /// The structure has the field, but it is null.
    WithoutQueryPort,
}

/// How a function fails.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// In its own style, with this errno.
    Errno(i32),
    /// In its own style, but without setting errno.
    Silent,
    /// Returns -1 and sets errno where it should return the errno.
    MinusOne(i32),
    /// Returns the negated errno where it should return the errno.
    Negated(i32),
}

/// A send request as the driver saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) wr_id: u64,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) sge: Option<(u64, u32, u32)>,
    pub(crate) remote: (u64, u32),
    /// As it goes on the wire.
    pub(crate) immediate: [u8; 4],
}

/// A receive request as the driver saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) wr_id: u64,
    pub(crate) sge: Option<(u64, u32, u32)>,
}

impl Default for Fake {
    fn default() -> Self {
        let port = ibv_port_attr {
            state: ibv_port_state::IBV_PORT_ACTIVE,
            active_mtu: IBV_MTU_1024,
            max_mtu: IBV_MTU_4096,
            ..Default::default()
        };
        Self {
            calls: Vec::new(),
            failures: HashMap::new(),
            devices: 1,
            sysfs: PathBuf::from("/nonexistent/fake_0"),
            transport: 0,
            descriptors: true,
            extended: Extended::Yes,
            device: ibv_device_attr {
                phys_port_cnt: 1,
                ..Default::default()
            },
            port,
            speed: 0,
            pkeys: vec![0xffff],
            gids: Vec::new(),
            registered: None,
            granted: ibv_qp_cap::default(),
            requested: None,
            modified: Vec::new(),
            ece: ibv_ece::default(),
            completions: Vec::new(),
            room: usize::MAX,
            sent: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            acknowledged: Vec::new(),
            fork_status: IBV_FORK_UNNEEDED,
            data_direct: None,
        }
    }
}

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::new(Fake::default());
}

/// Sets the device up, or looks at it. Must not call the library meanwhile.
pub(crate) fn fake<T>(look: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(look)
}

/// Makes a function fail from now on.
pub(crate) fn fail(function: &'static str, failure: Failure) {
    fake(|fake| fake.failures.insert(function, failure));
}

/// How often a function was called.
pub(crate) fn called(function: &str) -> usize {
    fake(|fake| fake.calls.iter().filter(|&&call| call == function).count())
}

/// The complete table.
pub(crate) fn functions() -> Functions {
    Functions {
        get_device_list: device::get_device_list,
        free_device_list: device::free_device_list,
        get_device_name: device::get_device_name,
        get_device_guid: device::get_device_guid,
        get_device_index: Some(device::get_device_index),
        open_device: device::open_device,
        close_device: device::close_device,
        get_async_event: queues::get_async_event,
        ack_async_event: queues::ack_async_event,
        query_device: device::query_device,
        query_port: device::query_port,
        query_port_speed: Some(device::query_port_speed),
        query_gid: device::query_gid,
        query_gid_ex: Some(device::query_gid_ex),
        query_gid_table: Some(device::query_gid_table),
        query_pkey: device::query_pkey,
        get_pkey_index: Some(device::get_pkey_index),
        alloc_pd: objects::alloc_pd,
        dealloc_pd: objects::dealloc_pd,
        reg_mr: objects::reg_mr,
        reg_mr_iova2: Some(objects::reg_mr_iova2),
        reg_dmabuf_mr: Some(objects::reg_dmabuf_mr),
        dereg_mr: objects::dereg_mr,
        create_comp_channel: objects::create_comp_channel,
        destroy_comp_channel: objects::destroy_comp_channel,
        get_cq_event: queues::get_cq_event,
        ack_cq_events: queues::ack_cq_events,
        create_cq: objects::create_cq,
        destroy_cq: objects::destroy_cq,
        create_qp: objects::create_qp,
        modify_qp: objects::modify_qp,
        query_qp: objects::query_qp,
        destroy_qp: objects::destroy_qp,
        query_ece: Some(objects::query_ece),
        set_ece: Some(objects::set_ece),
        fork_init: objects::fork_init,
        is_fork_initialized: Some(objects::is_fork_initialized),
    }
}

/// A table without any of the functions that an old libibverbs lacks.
pub(crate) fn oldest_functions() -> Functions {
    Functions {
        get_device_index: None,
        query_port_speed: None,
        query_gid_ex: None,
        query_gid_table: None,
        get_pkey_index: None,
        reg_mr_iova2: None,
        reg_dmabuf_mr: None,
        query_ece: None,
        set_ece: None,
        is_fork_initialized: None,
        ..functions()
    }
}

pub(crate) fn library_of(functions: Functions) -> Library {
    // SAFETY: the functions of this file behave as libibverbs's, for one thread, and no test
    // takes what it makes to another thread.
    unsafe { Library::from_functions(functions) }
}

pub(crate) fn device() -> Device {
    library_of(functions()).devices().unwrap().remove(0)
}

pub(crate) fn context() -> Context {
    device().open().unwrap()
}

pub(crate) fn context_of(functions: Functions) -> Context {
    library_of(functions)
        .devices()
        .unwrap()
        .remove(0)
        .open()
        .unwrap()
}

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the pointer is to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Notes the call, and how it is to fail.
fn enter(function: &'static str) -> Option<Failure> {
    fake(|fake| {
        fake.calls.push(function);
        fake.failures.get(function).copied()
    })
}

/// Ends a function that gives null and errno.
fn or_null<T>(function: &'static str, make: impl FnOnce() -> *mut T) -> *mut T {
    match enter(function) {
        None => make(),
        Some(failure) => {
            if let Failure::Errno(errno) = failure {
                set_errno(errno);
            }
            ptr::null_mut()
        }
    }
}

/// Ends a function that returns an errno.
fn or_errno(function: &'static str, act: impl FnOnce() -> c_int) -> c_int {
    match enter(function) {
        None => act(),
        Some(Failure::Errno(errno)) => errno,
        Some(Failure::Negated(errno)) => -errno,
        Some(Failure::Silent) => -1,
        Some(Failure::MinusOne(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

/// Ends a function that gives -1 and errno.
fn or_minus_one(function: &'static str, act: impl FnOnce() -> c_int) -> c_int {
    match enter(function) {
        None => act(),
        Some(Failure::Negated(errno)) => -errno,
        Some(Failure::Silent) => -1,
        Some(Failure::Errno(errno) | Failure::MinusOne(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

/// An object of a C type whose all-zero value is valid.
///
/// # Safety
///
/// All bits zero are a valid value of `T`.
unsafe fn zeroed<T>() -> T {
    // SAFETY: passed on to the caller.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn new<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// # Safety
///
/// The object came from [`new`] and is not used any more.
unsafe fn free<T>(object: *mut T) {
    // SAFETY: passed on to the caller.
    drop(unsafe { Box::from_raw(object) });
}

/// A descriptor that is never readable, or -1 if the device is to have none.
fn descriptor() -> c_int {
    if !fake(|fake| fake.descriptors) {
        return -1;
    }
    // SAFETY: the call takes plain numbers. It gives a new descriptor or -1.
    unsafe { libc::eventfd(0, 0) }
}

/// # Safety
///
/// The descriptor came from [`descriptor`] and is not used any more.
unsafe fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: passed on to the caller.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Whether an argument was refused without a call.
pub(crate) fn is_refused(error: &ibnet_verbs::Error) -> bool {
    let source = &error.source;
    source.kind() == std::io::ErrorKind::InvalidInput && source.raw_os_error().is_none()
}
