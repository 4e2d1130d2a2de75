//! A tap on the table of a simulated device: it counts the calls, makes them fail in every style,
//! and changes what the simulator never answers.
//!
//! Everything else is the simulator's own answer. The state of the tap belongs to the thread of the
//! test.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::raw::{c_int, c_uint, c_void};
use std::ptr;

use ibnet_simverbs::{DeviceSpec, Fabric, FabricBuilder, OptionalFunction};
use ibnet_verbs::layout::VerbsContext;
use ibnet_verbs::sys::*;
use ibnet_verbs::{Context, Device, Functions, Library};

type PortChange = Box<dyn Fn(&mut ibv_port_attr)>;

/// What the tap sees and does.
#[derive(Default)]
pub(crate) struct Tap {
    /// The table of the simulator.
    functions: Option<Functions>,
    /// The operations of its contexts.
    ops: Option<ibv_context_ops>,
    query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    /// The functions that were called, in order, without `ibv_`.
    calls: Vec<&'static str>,
    failures: HashMap<&'static str, Failure>,
    /// Contexts and channels have no descriptor.
    pub(crate) without_descriptors: bool,
    pub(crate) context: ExtendedContext,
    /// What devices are changed to.
    pub(crate) transport: Option<i32>,
    /// What the attributes of ports are changed to.
    pub(crate) port: Option<PortChange>,
    /// The speed of ports in units of 100 Mb/s, in place of what they were told.
    pub(crate) speed: Option<u64>,
    /// What queue pairs are granted, in place of what was asked for.
    pub(crate) granted: Option<ibv_qp_cap>,
    /// The attributes that were given last, with their mask.
    pub(crate) modified: Option<(ibv_qp_attr, c_int)>,
    /// The state that `query_qp` tells, in place of the true one.
    pub(crate) qp_state: Option<u32>,
    /// The access flags that memory was registered with last.
    pub(crate) access: u32,
    /// The immediates that were posted, as they go on the wire.
    pub(crate) immediates: Vec<[u8; 4]>,
    pub(crate) fork_status: Option<ibv_fork_status>,
    /// What `get_async_event` gives before the events of the simulator: an event, or an errno.
    pub(crate) events: Vec<Result<ibv_async_event, i32>>,
}

/// What kind of extended context an extended device opens.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ExtendedContext {
    /// As a library of today.
    #[default]
    Whole,
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

thread_local! {
    static TAP: RefCell<Tap> = RefCell::default();
}

/// Sets the tap, or looks at it. Must not call the library meanwhile.
pub(crate) fn tap<T>(look: impl FnOnce(&mut Tap) -> T) -> T {
    TAP.with_borrow_mut(look)
}

/// Makes a function fail from now on.
pub(crate) fn fail(function: &'static str, failure: Failure) {
    tap(|tap| tap.failures.insert(function, failure));
}

/// How often a function was called.
pub(crate) fn called(function: &str) -> usize {
    tap(|tap| tap.calls.iter().filter(|&&call| call == function).count())
}

/// The calls since the last time that this was asked.
pub(crate) fn take_calls() -> Vec<&'static str> {
    tap(|tap| std::mem::take(&mut tap.calls))
}

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the pointer is to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether an argument was refused without a call.
pub(crate) fn is_refused(error: &ibnet_verbs::Error) -> bool {
    let source = &error.source;
    source.kind() == std::io::ErrorKind::InvalidInput && source.raw_os_error().is_none()
}

/// A fabric with this device.
pub(crate) fn fabric(device: DeviceSpec) -> Fabric {
    Fabric::builder().device(device).build().unwrap()
}

/// A fabric with this device, as an old libibverbs gives it: without any optional function.
pub(crate) fn oldest_fabric(device: DeviceSpec) -> Fabric {
    let all = OptionalFunction::ALL.into_iter();
    all.fold(Fabric::builder().device(device), FabricBuilder::without)
        .build()
        .unwrap()
}

/// The first device of a fabric, tapped.
pub(crate) fn device(fabric: &Fabric) -> Device {
    library(fabric).devices().unwrap().remove(0)
}

/// A context of the first device of a fabric, tapped.
pub(crate) fn open(fabric: &Fabric) -> Context {
    device(fabric).open().unwrap()
}

/// A context of an ordinary device, tapped.
pub(crate) fn context() -> Context {
    open(&fabric(DeviceSpec::roce("sim0")))
}

/// A context of an ordinary device with the oldest library, tapped.
pub(crate) fn oldest_context() -> Context {
    open(&oldest_fabric(DeviceSpec::roce("sim0")))
}

/// The library of a fabric, tapped.
pub(crate) fn library(fabric: &Fabric) -> Library {
    let below = *fabric.library().functions();
    tap(|tap| tap.functions = Some(below));
    let tapped = Functions {
        get_device_list,
        free_device_list,
        get_device_name: below.get_device_name,
        get_device_guid: below.get_device_guid,
        get_device_index: below.get_device_index.and(Some(get_device_index)),
        open_device,
        close_device,
        get_async_event,
        ack_async_event,
        query_device,
        query_port,
        query_port_speed: below.query_port_speed.and(Some(query_port_speed)),
        query_gid,
        query_gid_ex: below.query_gid_ex.and(Some(query_gid_ex)),
        query_gid_table: below.query_gid_table.and(Some(query_gid_table)),
        query_pkey: below.query_pkey,
        get_pkey_index: below.get_pkey_index,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        reg_mr_iova2: below.reg_mr_iova2.and(Some(reg_mr_iova2)),
        reg_dmabuf_mr: below.reg_dmabuf_mr.and(Some(reg_dmabuf_mr)),
        dereg_mr,
        create_comp_channel,
        destroy_comp_channel,
        get_cq_event,
        ack_cq_events,
        create_cq,
        destroy_cq,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        query_ece: below.query_ece.and(Some(query_ece)),
        set_ece: below.set_ece.and(Some(set_ece)),
        fork_init,
        is_fork_initialized: below.is_fork_initialized.and(Some(is_fork_initialized)),
    };
    // SAFETY: the functions are the simulator's; the tap's own state is of one thread, and no test
    // takes what it makes to another thread.
    unsafe { Library::from_functions(tapped) }
}

/// Notes the call, and how it is to fail.
fn enter(function: &'static str) -> Option<Failure> {
    tap(|tap| {
        tap.calls.push(function);
        tap.failures.get(function).copied()
    })
}

/// How a function fails that gives null and errno.
fn null<T>(failure: Failure) -> *mut T {
    if let Failure::Errno(errno) = failure {
        set_errno(errno);
    }
    ptr::null_mut()
}

/// How a function fails that returns an errno.
fn errno(failure: Failure) -> c_int {
    match failure {
        Failure::Errno(errno) => errno,
        other => minus_one(other),
    }
}

/// How a function fails that gives -1 and errno.
fn minus_one(failure: Failure) -> c_int {
    match failure {
        Failure::Errno(errno) | Failure::MinusOne(errno) => {
            set_errno(errno);
            -1
        }
        Failure::Negated(errno) => -errno,
        Failure::Silent => -1,
    }
}

/// A function of the simulator, which this one taps, so that the simulator has it.
fn below<F>(choose: impl FnOnce(&Tap) -> Option<F>) -> F {
    tap(|tap| choose(tap)).unwrap()
}

/// Functions that do what those of the simulator do, unless they are to fail in the style that
/// comes first. What comes last looks at the result and at the arguments, or changes them.
macro_rules! taps {
    ($($style:ident $name:ident($($argument:ident: $type:ty),*) -> $result:ty
        as $below:expr $(, $after:expr)?;)*) => { $(
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            if let Some(failure) = enter(stringify!($name)) {
                return $style(failure) as _;
            }
            let call: unsafe extern "C" fn($($type),*) -> $result = below($below);
            // SAFETY: the arguments are the caller's, for the function that this one stands for.
            let result = unsafe { call($($argument),*) };
            #[allow(unused_variables, reason = "of those that are only passed on")]
            let arguments = ($($argument,)*);
            $( $after(result, arguments); )?
            result
        }
    )* };
}

macro_rules! required {
    ($name:ident) => {
        |tap| tap.functions.map(|functions| functions.$name)
    };
}

macro_rules! optional {
    ($name:ident) => {
        |tap| tap.functions.and_then(|functions| functions.$name)
    };
}

macro_rules! operation {
    ($name:ident) => {
        |tap| tap.ops.and_then(|ops| ops.$name)
    };
}

taps! {
    null get_device_list(number: *mut c_int) -> *mut *mut ibv_device
        as required!(get_device_list), listed;
    minus_one get_device_index(device: *mut ibv_device) -> c_int as optional!(get_device_index);
    null open_device(device: *mut ibv_device) -> *mut ibv_context as required!(open_device), opened;
    errno close_device(context: *mut ibv_context) -> c_int as required!(close_device);
    errno query_device(context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int
        as required!(query_device);
    errno query_port(context: *mut ibv_context, port: u8, attributes: *mut _compat_ibv_port_attr)
        -> c_int as required!(query_port), exported_port;
    errno extended_query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr,
        size: usize) -> c_int as |tap| tap.query_port, extended_port;
    minus_one query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int
        as required!(query_gid);
    errno query_gid_ex(context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry,
        flags: u32, size: usize) -> c_int as optional!(query_gid_ex);
    minus_one query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry,
        capacity: usize, flags: u32, size: usize) -> isize as optional!(query_gid_table);
    null alloc_pd(context: *mut ibv_context) -> *mut ibv_pd as required!(alloc_pd);
    errno dealloc_pd(pd: *mut ibv_pd) -> c_int as required!(dealloc_pd);
    null reg_mr(pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr
        as required!(reg_mr), |_, (.., access): (_, _, _, c_int)| registered(access.cast_unsigned());
    null reg_mr_iova2(pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64,
        access: c_uint) -> *mut ibv_mr
        as optional!(reg_mr_iova2), |_, (.., access): (_, _, _, _, _)| registered(access);
    null reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int,
        access: c_int) -> *mut ibv_mr as optional!(reg_dmabuf_mr);
    errno dereg_mr(mr: *mut ibv_mr) -> c_int as required!(dereg_mr);
    null create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel
        as required!(create_comp_channel), channel_made;
    errno destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int
        as required!(destroy_comp_channel);
    minus_one get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void) -> c_int as required!(get_cq_event);
    null create_cq(context: *mut ibv_context, depth: c_int, cq_context: *mut c_void,
        channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq as required!(create_cq),
        |cq, _| cq_made(cq);
    errno destroy_cq(cq: *mut ibv_cq) -> c_int as required!(destroy_cq);
    null create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp
        as required!(create_qp), qp_made;
    errno modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int
        as required!(modify_qp), modified;
    errno query_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int,
        init: *mut ibv_qp_init_attr) -> c_int as required!(query_qp), queried;
    errno destroy_qp(qp: *mut ibv_qp) -> c_int as required!(destroy_qp);
    errno query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int as optional!(query_ece);
    errno set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int as optional!(set_ece);
    errno fork_init() -> c_int as required!(fork_init);
    minus_one poll_cq(cq: *mut ibv_cq, capacity: c_int, wc: *mut ibv_wc) -> c_int
        as operation!(poll_cq);
    errno req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int
        as operation!(req_notify_cq);
    errno post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int
        as operation!(post_send), posted;
    errno post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int
        as operation!(post_recv);
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    enter("free_device_list");
    // SAFETY: the argument is the caller's.
    unsafe { below(required!(free_device_list))(list) };
}

unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    enter("ack_async_event");
    // SAFETY: as above.
    unsafe { below(required!(ack_async_event))(event) };
}

unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    enter("ack_cq_events");
    // SAFETY: as above.
    unsafe { below(required!(ack_cq_events))(cq, number) };
}

unsafe extern "C" fn is_fork_initialized() -> ibv_fork_status {
    let status = tap(|tap| tap.fork_status);
    // SAFETY: the function takes no argument.
    status.unwrap_or_else(|| unsafe { below(optional!(is_fork_initialized))() })
}

unsafe extern "C" fn query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    if let Some(failure) = enter("query_port_speed") {
        return errno(failure);
    }
    match tap(|tap| tap.speed) {
        // SAFETY: the arguments are the caller's.
        None => unsafe { below(optional!(query_port_speed))(context, port, speed) },
        Some(hundreds) => {
            // SAFETY: the caller gives a valid place for the speed.
            unsafe { speed.write(hundreds) };
            0
        }
    }
}

unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    if let Some(failure) = enter("get_async_event") {
        return minus_one(failure);
    }
    let scripted = tap(|tap| (!tap.events.is_empty()).then(|| tap.events.remove(0)));
    match scripted {
        // SAFETY: the arguments are the caller's.
        None => unsafe { below(required!(get_async_event))(context, event) },
        Some(Ok(next)) => {
            // SAFETY: the caller gives a valid place for the event.
            unsafe { event.write(next) };
            0
        }
        Some(Err(errno)) => minus_one(Failure::Errno(errno)),
    }
}

fn listed(list: *mut *mut ibv_device, (number,): (*mut c_int,)) {
    let Some(transport) = tap(|tap| tap.transport) else {
        return;
    };
    // SAFETY: the list was just made, with as many devices as the number says.
    for index in 0..unsafe { *number } {
        // SAFETY: as above.
        unsafe { (**list.add(index as usize)).transport_type = transport };
    }
}

/// Puts the tap into the operations of a context, and makes it of the kind that is wanted.
fn opened(context: *mut ibv_context, _: (*mut ibv_device,)) {
    if context.is_null() {
        return;
    }
    // SAFETY: the context was just made, and is not used yet.
    let context = unsafe { &mut *context };
    let (kind, without_descriptors) = tap(|tap| {
        tap.ops = Some(context.ops);
        (tap.context, tap.without_descriptors)
    });
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    if without_descriptors {
        context.async_fd = -1;
    }
    if context.abi_compat.is_null() {
        return;
    }
    let whole = ptr::from_mut(context).wrapping_byte_sub(offset_of!(VerbsContext, context));
    // SAFETY: the simulator's contexts are fields of such a structure.
    let whole = unsafe { &mut *whole.cast::<VerbsContext>() };
    if let Some(query_port) = whole.query_port.replace(extended_query_port) {
        tap(|tap| tap.query_port = Some(query_port));
    }
    match kind {
        ExtendedContext::Whole => {}
        ExtendedContext::TooShort => whole.size -= 8,
        ExtendedContext::WithoutQueryPort => whole.query_port = None,
    }
}

fn change_port(attributes: &mut ibv_port_attr) {
    tap(|tap| {
        if let Some(change) = &tap.port {
            change(attributes);
        }
    });
}

/// The exported function fills the attributes only up to `flags`.
fn exported_port(_: c_int, (_, _, attributes): (*mut ibv_context, u8, *mut _compat_ibv_port_attr)) {
    let size = offset_of!(ibv_port_attr, port_cap_flags2);
    let mut whole = ibv_port_attr::default();
    let inner = (&raw mut whole).cast::<u8>();
    // SAFETY: the caller's attributes have this size at least, as has the copy.
    unsafe {
        ptr::copy_nonoverlapping(attributes.cast(), inner, size);
        change_port(&mut whole);
        ptr::copy_nonoverlapping(inner, attributes.cast(), size);
    }
}

fn extended_port(
    _: c_int,
    (_, _, attributes, size): (*mut ibv_context, u8, *mut ibv_port_attr, usize),
) {
    assert_eq!(size, size_of::<ibv_port_attr>());
    // SAFETY: the caller's attributes have this size.
    change_port(unsafe { &mut *attributes });
}

fn registered(access: u32) {
    tap(|tap| tap.access = access);
}

fn channel_made(channel: *mut ibv_comp_channel, _: (*mut ibv_context,)) {
    if tap(|tap| tap.without_descriptors) {
        // SAFETY: the channel was just made.
        unsafe { (*channel).fd = -1 };
    }
}

/// Where queue pairs are granted something else, completion queues have four entries more.
fn cq_made(cq: *mut ibv_cq) {
    if !cq.is_null() && tap(|tap| tap.granted.is_some()) {
        // SAFETY: the queue was just made.
        unsafe { (*cq).cqe += 4 };
    }
}

fn qp_made(_: *mut ibv_qp, (_, attributes): (*mut ibv_pd, *mut ibv_qp_init_attr)) {
    if let Some(granted) = tap(|tap| tap.granted) {
        // SAFETY: the attributes are the caller's.
        unsafe { (*attributes).cap = granted };
    }
}

fn modified(_: c_int, (_, attributes, mask): (*mut ibv_qp, *mut ibv_qp_attr, c_int)) {
    // SAFETY: as above.
    tap(|tap| tap.modified = Some((unsafe { *attributes }, mask)));
}

fn queried(
    _: c_int,
    (_, attributes, ..): (*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr),
) {
    if let Some(state) = tap(|tap| tap.qp_state) {
        // SAFETY: as above.
        unsafe { (*attributes).qp_state = state };
    }
}

fn posted(_: c_int, (_, mut wr, _): (*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr)) {
    while !wr.is_null() {
        // SAFETY: the caller gives a chain of requests; every bit pattern is valid in the union.
        let (immediate, next) = unsafe { ((*wr).__bindgen_anon_1.imm_data, (*wr).next) };
        tap(|tap| tap.immediates.push(immediate.to_ne_bytes()));
        wr = next;
    }
}
