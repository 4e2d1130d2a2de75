//! RDMA verbs: a safe wrapper of libibverbs, loaded at run time.
//!
//! Programs talk to RDMA devices (InfiniBand, RoCE) through the verbs of libibverbs. This crate is
//! a thin, complete layer over the verbs that a transport between computers needs: finding and
//! opening devices, registering memory, reliable connections with RDMA writes, reads and sends,
//! completions and asynchronous events. Every item names the verb that it stands for, whose
//! manual page (`ibv_…(3)`) has the details.
//!
//! What this crate does:
//!
//! - errors of three C styles become one [`Error`], which says what was being done, on what, and
//!   what usually causes it;
//! - pointers with rules of lifetime become types that own each other;
//! - constants become types that print their names, and keep values they do not know;
//! - the inlines and macros of the C headers, which a binding easily gets subtly wrong, are written
//!   out: [`Context::port`], [`ProtectionDomain::register`], [`Context::gid_table`].
//!
//! What it does not: unreliable transports, shared receive queues, atomics, memory windows,
//! the extended posting interface (`ibv_wr_*`), the connection manager. It chooses nothing:
//! which device, which GID and how many queue pairs is for the layers above. It never waits, except
//! where a verb does ([`QueuePair::to_rtr`] resolves addresses) or it is told to
//! ([`CompletionChannel::wait`]), starts no threads and reads no
//! environment variables.
//!
//! # From a library to a connection
//!
//! ```text
//! Library ── devices() ──> Device ── open() ──> Context ─┬─ allocate_pd() ──> ProtectionDomain
//!                                                        │      ├─ allocate() ───> Buffer
//!                                                        │      ├─ register() ───> MemoryRegion
//!                                                        │      └─ create_qp() ──> QueuePair
//!                                                        ├─ create_cq() ────> CompletionQueue
//!                                                        └─ next_event() ───> AsyncEvent
//! ```
//!
//! The two ends of a connection tell each other their [`Endpoint`] by any other means (a TCP
//! connection, say), and each calls [`QueuePair::connect`] with that of the other. From then on it
//! posts [`SendRequest`]s and [`RecvRequest`]s, and polls [`WorkCompletion`]s. The steps from RESET
//! over INIT and RTR to RTS can also be taken one by one, with everything that they can be told.
//!
//! # Example
//!
//! Both ends in one program: eight bytes are written from one buffer to another by the device.
//!
//! ```no_run
//! use ibnet_verbs::{
//!     Access, ConnectOptions, GidType, Library, LinkLayer, QueuePairOptions, RecvRequest,
//!     SendRequest, Sysfs, WorkCompletion,
//! };
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let library = Library::load()?;
//!     let devices = library.devices()?;
//!     let context = devices.first().ok_or("no RDMA device")?.open()?;
//!     let pd = context.allocate_pd()?;
//!     let mut from = pd.allocate(8, Access::empty())?;
//!     let to = pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     from.write(0, b"immortal");
//!
//!     // Two ends, which share one completion queue.
//!     let cq = context.create_cq(16)?;
//!     let options = QueuePairOptions::new(&cq, 8);
//!     let (writer, reader) = (pd.create_qp(&options)?, pd.create_qp(&options)?);
//!     let mut connect = ConnectOptions::default();
//!     if context.port(1)?.link_layer == LinkLayer::Ethernet {
//!         let table = context.gid_table(1, &Sysfs::default())?;
//!         let mut usable = table.iter().filter(|entry| entry.unreadable.is_none());
//!         let entry = usable.find(|entry| entry.gid_type == Some(GidType::RoceV2));
//!         connect = connect.gid_index(entry.ok_or("no RoCE v2 address")?.index.try_into()?);
//!     }
//!     writer.connect(&reader.endpoint(&connect)?, &connect)?;
//!     reader.connect(&writer.endpoint(&connect)?, &connect)?;
//!
//!     // The reader will learn of the write by its immediate value.
//!     // SAFETY: the request names no memory.
//!     unsafe { reader.post_recv(&mut [RecvRequest::new(1)]) }?;
//!     let (sge, remote) = (from.sge(0, 8), to.remote(0));
//!     let write = SendRequest::write_with_immediate(2, Some(sge), remote, 42).signaled();
//!     // SAFETY: both buffers stay registered and untouched until both completions are polled.
//!     unsafe { writer.post_send(&mut [write]) }?;
//!
//!     let mut batch = [WorkCompletion::default(); 4];
//!     let mut done = 0;
//!     while done < 2 {
//!         for completion in cq.poll(&mut batch)? {
//!             assert!(completion.is_success(), "{completion:?}");
//!             println!("request {}: {:?}", completion.wr_id(), completion.immediate());
//!             done += 1;
//!         }
//!     }
//!     let mut bytes = [0; 8];
//!     to.read(0, &mut bytes);
//!     assert_eq!(&bytes, b"immortal");
//!     Ok(())
//! }
//! ```
//!
//! # Ownership and cleanup
//!
//! Whatever needs another object to exist holds it: a [`QueuePair`] its [`ProtectionDomain`] and
//! its [`CompletionQueue`]s, a [`MemoryRegion`] its domain, all of them their [`Context`], and that
//! its [`Device`] and [`Library`]. There are no lifetime parameters, and values may be dropped in
//! any order: the C objects are destroyed in the right one (queue pairs and regions, completion
//! queues, channels, domains, context, device list).
//!
//! [`Context`], [`ProtectionDomain`], [`CompletionQueue`], [`CompletionChannel`], [`Device`] and
//! [`Library`] can be cloned, and clones mean the same object. A [`QueuePair`] and a
//! [`MemoryRegion`] have one owner, because when they end matters.
//!
//! Dropping never panics. If the library refuses to destroy an object, that is logged by
//! [`tracing`], and the object is leaked. [`MemoryRegion::deregister`] reports it instead.
//!
//! # Forked children
//!
//! What a forked child inherits is its parent's. Dropping it in the child gives nothing back, and no
//! memory of a child is registered; [`Context::is_inherited`] tells. A child may open devices of its own.
//!
//! # Threads
//!
//! All types are `Send` and `Sync`, as libibverbs may be called from any thread. Requests posted
//! to one queue from several threads at once go in one after the other, in no particular order.
//! Destroying a queue pair or completion queue waits until every [`AsyncEvent`] and
//! [`CompletionEvent`] about it was dropped: so drop events soon, and hold no lock meanwhile that
//! the dropping thread may want.
//!
//! # The two unsafe gates
//!
//! The device reads and writes memory on its own, and lets peers do so. No type can see that, so
//! that there are two promises to make:
//!
//! - **Registering** ([`ProtectionDomain::register`], [`ProtectionDomain::register_dmabuf`]): the
//!   memory stays mapped until the region is gone.
//! - **Posting** ([`QueuePair::post_send`], [`QueuePair::post_recv`]): the memory that a request
//!   names stays registered, and is not touched in a conflicting way, until the request's
//!   completion was polled. To get memory back from requests that do not complete, move the queue
//!   pair to ERR and poll until all are flushed.
//!
//! Everything else is safe to call, apart from [`Library::from_functions`], which is for those who
//! implement verbs rather than use them.
//!
//! # libibverbs
//!
//! Nothing in this crate needs libibverbs when a program starts. The library is opened by
//! [`Library::load`] or [`Library::load_from`], its functions are looked up with their versions,
//! and what is missing is in the [`LoadError`]. Functions that older versions lack are optional
//! (see [`Functions`]); what depends on one says what happens without it. Any libibverbs since
//! version 1.1 will do; types and constants are those of rdma-core 55.
//!
//! Building does need rdma-core's headers, which the crate `ibverbs-sys` builds from source: cmake,
//! a C compiler, libclang, pkg-config, and the development files of libnl-3 and libibverbs.
//!
//! # Devices that are not there
//!
//! [`Library::from_functions`] makes a library of a table of functions that lives in the process.
//! All of this crate, and all that is built on it, then runs on simulated devices, with nothing
//! in between and at no cost when they are real. [`Functions`] and [`layout`] have what such a
//! table must provide.

#![deny(clippy::undocumented_unsafe_blocks)]

mod access;
mod address;
mod buffer;
mod c_enum;
mod channel;
mod context;
mod conv;
mod cq;
mod device;
mod device_attr;
mod dmabuf;
mod ece;
mod endpoint;
mod error;
mod event;
mod fork;
mod functions;
mod gid;
mod gid_attributes;
mod gid_table;
mod hint;
pub mod layout;
mod library;
mod loader;
mod memlock;
mod mr;
mod netdev;
mod object;
mod operation;
mod own_addresses;
mod pd;
mod port;
mod post;
mod qp;
mod qp_attr;
mod qp_state;
mod qp_step;
mod sysfs;
mod wc;
mod wr;

/// The C types and constants of libibverbs, as generated for `ibverbs-sys`.
///
/// Types only: calling one of its functions would make the program need libibverbs to start.
pub use ibverbs_sys as sys;

pub use access::Access;
pub use address::{AddressVector, Destination, GlobalRoute};
pub use buffer::Buffer;
pub use channel::{CompletionChannel, CompletionEvent, CqId};
pub use context::Context;
pub use cq::CompletionQueue;
pub use device::{Device, Transport};
pub use device_attr::DeviceAttributes;
pub use ece::Ece;
pub use endpoint::{ConnectOptions, Endpoint, InvalidEndpoint};
pub use error::Error;
pub use event::{AsyncEvent, EventType};
pub use fork::forks;
pub use functions::{Functions, Mlx5Functions};
pub use gid::{Gid, GidTableEntry, GidType};
pub use library::{ForkStatus, Library};
pub use loader::LoadError;
pub use memlock::LockedMemory;
pub use mr::MemoryRegion;
pub use netdev::{Netdev, NetdevKind};
pub use operation::Operation;
pub use pd::ProtectionDomain;
pub use port::{LinkLayer, Mtu, PortAttributes, PortState};
pub use post::PostError;
pub use qp::QueuePair;
pub use qp_attr::{Capabilities, QueuePairAttributes, QueuePairOptions};
pub use qp_state::QueuePairState;
pub use qp_step::{InitAttributes, ReadyToReceive, ReadyToSend};
pub use sysfs::Sysfs;
pub use wc::{WcOpcode, WcStatus, WorkCompletion};
pub use wr::{RecvRequest, RemoteAddress, SendRequest, Sge};
