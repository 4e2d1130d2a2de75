//! The plugin's table of API version 12 as Rust objects that clean up after themselves.
//!
//! This is the part that a program needs to use such a plugin without NCCL. Order of teardown: a
//! connection deregisters its memory and closes before the context is finalized, because it holds it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::rc::Rc;

use ibnet_examples::complain;
use ncclnet_ffi::abi::{
    CommConfig, HANDLE_MAX_SIZE, NcclResult, NetV12, PTR_HOST, PropertiesV12,
    TRAFFIC_CLASS_UNDEFINED,
};

use crate::buffer::{Buffer, ELEMENT};
use crate::logger;

/// The handle that a listener gives out.
pub(crate) type Handle = [u8; HANDLE_MAX_SIZE];

/// Where the plugin is.
pub(crate) enum Source {
    /// In this shared library.
    File(PathBuf),
    /// In this program.
    Linked,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Linked => f.write_str("the plugin that is linked in"),
        }
    }
}

/// A plugin after its `init`.
pub(crate) struct Network(Rc<Context>);

struct Context {
    /// Never unloaded: the table stays where it is for the rest of the process.
    table: &'static NetV12,
    context: *mut c_void,
}

impl Network {
    /// Loads the plugin if need be, and initialises it for one communicator.
    pub(crate) fn open(source: &Source, communicator: u64, verbose: bool) -> Result<Self, Error> {
        let table = match source {
            Source::File(path) => load(path)?,
            Source::Linked => &ncclnet_ffi::ncclNetPlugin_v12,
        };
        let init = function("init", table.init)?;
        let mut config = CommConfig {
            traffic_class: TRAFFIC_CLASS_UNDEFINED,
        };
        let mut context = ptr::null_mut();
        // SAFETY: pointers to live variables; the logger is a function of this program.
        let result = unsafe {
            init(
                &mut context,
                communicator,
                &mut config,
                logger::logger(verbose),
                None,
            )
        };
        check("init", result)?;
        Ok(Self(Rc::new(Context { table, context })))
    }

    /// Devices of the plugin.
    pub(crate) fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut count = 0;
        // SAFETY: a pointer to a live variable.
        let result = unsafe { function("devices", self.0.table.devices)?(&mut count) };
        check("devices", result)?;
        (0..count).map(|index| self.device(index)).collect()
    }

    fn device(&self, index: c_int) -> Result<Device, Error> {
        let get = function("getProperties", self.0.table.get_properties)?;
        let mut properties = std::mem::MaybeUninit::<PropertiesV12>::zeroed();
        // SAFETY: room for the properties of this version.
        check("getProperties", unsafe {
            get(index, properties.as_mut_ptr())
        })?;
        // SAFETY: zeroed, and filled by a call that succeeded; every bit pattern is valid.
        let properties = unsafe { properties.assume_init() };
        let text = |string: *const std::ffi::c_char| {
            // SAFETY: not null, and a C string that lives as long as the process, by the interface.
            (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy())
        };
        Ok(Device {
            index,
            name: text(properties.name).unwrap_or_default().into_owned(),
            port: properties.port,
            speed: properties.speed,
            pci_path: text(properties.pci_path).map(|path| path.into_owned()),
            largest_message: properties.max_p2p_bytes,
        })
    }

    /// Listens on a device.
    pub(crate) fn listen(&self, device: &Device) -> Result<(Listener, Handle), Error> {
        let listen = function("listen", self.0.table.listen)?;
        let mut handle = [0; HANDLE_MAX_SIZE];
        let mut communicator = ptr::null_mut();
        // SAFETY: the context of this plugin, and pointers to live variables of the right size.
        let result = unsafe {
            listen(
                self.0.context,
                device.index,
                handle.as_mut_ptr().cast(),
                &mut communicator,
            )
        };
        check("listen", result)?;
        Ok((
            Listener {
                network: Rc::clone(&self.0),
                communicator,
            },
            handle,
        ))
    }

    /// Connects from a device, or goes on connecting. None: not yet.
    pub(crate) fn poll_connect(
        &self,
        device: &Device,
        handle: &mut Handle,
    ) -> Result<Option<Connection>, Error> {
        let connect = function("connect", self.0.table.connect)?;
        let mut communicator = ptr::null_mut();
        // SAFETY: as for `listen`.
        let result = unsafe {
            connect(
                self.0.context,
                device.index,
                handle.as_mut_ptr().cast(),
                &mut communicator,
                ptr::null_mut(),
            )
        };
        check("connect", result)?;
        Ok(Connection::new(&self.0, communicator, Direction::Send))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(finalize) = self.table.finalize {
            // SAFETY: the context of this plugin, once.
            report("finalize", unsafe { finalize(self.context) });
        }
    }
}

/// What a device is.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    index: c_int,
    pub(crate) name: String,
    port: c_int,
    speed: c_int,
    pci_path: Option<String>,
    /// Bytes.
    pub(crate) largest_message: usize,
}

impl Device {
    /// Whether `wanted` is the name or the number of the device.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        self.name == wanted || wanted.parse() == Ok(self.index)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pci = self.pci_path.as_deref().unwrap_or("no PCI device");
        let speed = f64::from(self.speed) / 1000.0;
        write!(
            f,
            "[{}] {} port {}, {speed} Gb/s, {pci}",
            self.index, self.name, self.port
        )
    }
}

/// A listening communicator.
pub(crate) struct Listener {
    network: Rc<Context>,
    communicator: *mut c_void,
}

impl Listener {
    /// Accepts the next connection. None: not yet.
    pub(crate) fn poll_accept(&mut self) -> Result<Option<Connection>, Error> {
        let accept = function("accept", self.network.table.accept)?;
        let mut communicator = ptr::null_mut();
        // SAFETY: a listening communicator that is open, and a pointer to a live variable.
        let result = unsafe { accept(self.communicator, &mut communicator, ptr::null_mut()) };
        check("accept", result)?;
        Ok(Connection::new(
            &self.network,
            communicator,
            Direction::Receive,
        ))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(close) = self.network.table.close_listen {
            // SAFETY: open until here.
            report("closeListen", unsafe { close(self.communicator) });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

/// A sending or receiving communicator, and the memory that is registered with it.
pub(crate) struct Connection {
    network: Rc<Context>,
    communicator: *mut c_void,
    direction: Direction,
    registered: Vec<(Rc<Buffer>, *mut c_void)>,
}

/// A buffer that is registered with a connection.
#[derive(Clone, Copy)]
pub(crate) struct Registered(usize);

/// A send or receive that is not done.
pub(crate) struct Request(*mut c_void);

impl Connection {
    fn new(network: &Rc<Context>, communicator: *mut c_void, direction: Direction) -> Option<Self> {
        (!communicator.is_null()).then(|| Self {
            network: Rc::clone(network),
            communicator,
            direction,
            registered: Vec::new(),
        })
    }

    /// Registers a buffer, which then lives as long as the connection.
    pub(crate) fn register(&mut self, buffer: &Rc<Buffer>) -> Result<Registered, Error> {
        let register = function("regMr", self.network.table.reg_mr)?;
        let mut handle = ptr::null_mut();
        // SAFETY: a communicator that is open; the buffer is kept until it is deregistered.
        let result = unsafe {
            register(
                self.communicator,
                buffer.address(0).cast(),
                buffer.len() * ELEMENT,
                PTR_HOST,
                &mut handle,
            )
        };
        check("regMr", result)?;
        self.registered.push((Rc::clone(buffer), handle));
        Ok(Registered(self.registered.len() - 1))
    }

    /// Sends the elements from `start` on. None: try again.
    ///
    /// The elements must not be changed until the request is done.
    pub(crate) fn send(
        &mut self,
        memory: Registered,
        start: usize,
        len: usize,
        tag: c_int,
    ) -> Result<Option<Request>, Error> {
        let send = function("isend", self.network.table.isend)?;
        let (data, handle) = self.part(memory, start, len);
        let mut request = ptr::null_mut();
        // SAFETY: a communicator that is open (one that receives gives an error), memory registered
        // with it, which lives as long as it does.
        let result = unsafe {
            send(
                self.communicator,
                data,
                len * ELEMENT,
                tag,
                handle,
                ptr::null_mut(),
                &mut request,
            )
        };
        check("isend", result)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Receives into the elements from `start` on. None: try again.
    ///
    /// The elements must not be used until the request is done.
    pub(crate) fn receive(
        &mut self,
        memory: Registered,
        start: usize,
        len: usize,
        tag: c_int,
    ) -> Result<Option<Request>, Error> {
        let receive = function("irecv", self.network.table.irecv)?;
        let (mut data, mut handle) = self.part(memory, start, len);
        let (mut size, mut tag) = (len * ELEMENT, tag);
        let mut request = ptr::null_mut();
        // SAFETY: as for `send`; arrays of one element each.
        let result = unsafe {
            receive(
                self.communicator,
                1,
                &mut data,
                &mut size,
                &mut tag,
                &mut handle,
                ptr::null_mut(),
                &mut request,
            )
        };
        check("irecv", result)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Whether a request of this connection is done: the bytes sent or received. A request that is
    /// done is dead.
    pub(crate) fn test(&mut self, request: &Request) -> Result<Option<usize>, Error> {
        let test = function("test", self.network.table.test)?;
        let (mut done, mut size) = (0, 0);
        // SAFETY: pointers to live variables; one size, because requests here have one buffer.
        check("test", unsafe { test(request.0, &mut done, &mut size) })?;
        Ok((done != 0).then(|| usize::try_from(size).unwrap_or(0)))
    }

    /// Address and memory handle of a part of a registered buffer, checked to be inside of it.
    fn part(&self, memory: Registered, start: usize, len: usize) -> (*mut c_void, *mut c_void) {
        let (buffer, handle) = &self.registered[memory.0];
        assert!(
            start + len <= buffer.len(),
            "{start}+{len} of {}",
            buffer.len()
        );
        (buffer.address(start).cast(), *handle)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let table = self.network.table;
        for (_, handle) in &self.registered {
            if let Some(deregister) = table.dereg_mr {
                // SAFETY: registered with this communicator, which is still open.
                report("deregMr", unsafe { deregister(self.communicator, *handle) });
            }
        }
        let (name, close) = match self.direction {
            Direction::Send => ("closeSend", table.close_send),
            Direction::Receive => ("closeRecv", table.close_recv),
        };
        if let Some(close) = close {
            // SAFETY: open until here.
            report(name, unsafe { close(self.communicator) });
        }
        // Only now the buffers may go.
    }
}

/// A call of the plugin failed, or the plugin is none.
#[derive(Debug)]
pub(crate) enum Error {
    Load(String),
    Call {
        function: &'static str,
        result: NcclResult,
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(text) => f.write_str(text),
            // The plugin's own line about this call says it all.
            Self::Call {
                function, reason, ..
            } if reason.starts_with(function) => f.write_str(reason),
            Self::Call {
                function, result, ..
            } => write!(f, "{function}: {}", result.name()),
        }
    }
}

impl std::error::Error for Error {}

fn check(function: &'static str, result: NcclResult) -> Result<(), Error> {
    if result.is_success() {
        return Ok(());
    }
    Err(Error::Call {
        function,
        result,
        reason: logger::last_warning(),
    })
}

/// For calls whose failure changes nothing any more.
fn report(function: &'static str, result: NcclResult) {
    if let Err(error) = check(function, result) {
        complain!("ring_allreduce: {error}");
    }
}

/// A function of the table that must be there.
fn function<F>(name: &'static str, function: Option<F>) -> Result<F, Error> {
    function.ok_or_else(|| Error::Load(format!("the plugin has no function {name}")))
}

/// Loads a plugin, as NCCL does.
fn load(path: &Path) -> Result<&'static NetV12, Error> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Load(format!("{} is no file name", path.display())))?;
    // SAFETY: a C string. Whoever names a library has its initialisers run.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(Error::Load(dl_error()));
    }
    // SAFETY: a library that is open, and a C string.
    let symbol = unsafe { libc::dlsym(library, c"ncclNetPlugin_v12".as_ptr()) };
    // SAFETY: the symbol of this name is such a table by NCCL's interface, constant, and never
    // unloaded, because the library is not closed.
    unsafe { symbol.cast::<NetV12>().as_ref() }
        .ok_or_else(|| Error::Load(format!("{}: {}", path.display(), dl_error())))
}

fn dl_error() -> String {
    // SAFETY: no arguments; the result is null or a C string that lives until the next dl call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error of the dynamic linker".to_owned();
    }
    // SAFETY: not null.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
