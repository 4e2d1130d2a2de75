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
//!   out: [`Context::port`], [`ProtectionDomain::register`], [`Context::gid_entries`].
//!
//! What it does not: unreliable transports, shared receive queues, atomics, memory windows,
//! the extended posting interface (`ibv_wr_*`), the connection manager. It chooses nothing:
//! which device, which GID and how many queue pairs is for the layers above. It never waits, except
//! where a verb does ([`QueuePair::to_rtr`] resolves addresses), starts no threads and reads no
//! environment variables.
//!
//! # From a library to a connection
//!
//! ```text
//! Library ── devices() ──> Device ── open() ──> Context ─┬─ allocate_pd() ──> ProtectionDomain
//!                                                        │      ├─ register() ───> MemoryRegion
//!                                                        │      └─ create_qp() ──> QueuePair
//!                                                        ├─ create_cq() ────> CompletionQueue
//!                                                        └─ next_event() ───> AsyncEvent
//! ```
//!
//! A queue pair starts in RESET. The two ends of a connection tell each other their number, their
//! address and a packet sequence number by any other means (a TCP connection, say). Then each
//! goes to INIT, to RTR with what the other said, and to RTS. From then on it posts
//! [`SendRequest`]s and [`RecvRequest`]s, and polls [`WorkCompletion`]s.
//!
//! # Example
//!
//! Both ends in one program: eight bytes are written from one buffer to another by the device.
//!
//! ```no_run
//! use ibnet_verbs::{
//!     Access, AddressVector, Destination, GidType, GlobalRoute, InitAttributes, Library,
//!     LinkLayer, QueuePair, QueuePairOptions, ReadyToReceive, ReadyToSend, RecvRequest,
//!     RemoteAddress, SendRequest, Sge, WorkCompletion,
//! };
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let library = Library::load()?;
//!     let devices = library.devices()?;
//!     let context = devices.first().ok_or("no RDMA device")?.open()?;
//!     let port = context.port(1)?;
//!     println!("{}: {}, {:?} Mb/s", context.device_name(), port.state, port.speed());
//!
//!     // Two buffers, registered for as long as the regions live.
//!     let pd = context.allocate_pd()?;
//!     let from = Box::leak(Box::new(*b"immortal")).as_mut_ptr();
//!     let to = Box::leak(Box::new([0_u8; 8])).as_mut_ptr();
//!     // SAFETY: leaked memory is never unmapped, and is used through these pointers only.
//!     let from_region = unsafe { pd.register(from, 8, Access::empty()) }?;
//!     // SAFETY: as above.
//!     let to_region = unsafe { pd.register(to, 8, Access::LOCAL_WRITE | Access::REMOTE_WRITE) }?;
//!
//!     // Two ends, which share one completion queue.
//!     let cq = context.create_cq(16)?;
//!     let options = QueuePairOptions {
//!         send_cq: &cq,
//!         recv_cq: &cq,
//!         max_send_wr: 8,
//!         max_recv_wr: 8,
//!         max_send_sge: 1,
//!         max_recv_sge: 1,
//!         max_inline: 0,
//!         signal_all: false,
//!     };
//!     let (writer, reader) = (pd.create_qp(&options)?, pd.create_qp(&options)?);
//!
//!     // Each is told where the other is: by LID on InfiniBand, by GID with RoCE.
//!     let destination = match port.link_layer {
//!         LinkLayer::Ethernet => {
//!             let entries = context.gid_entries(1)?;
//!             let entry = entries.iter().find(|entry| entry.gid_type == GidType::RoceV2);
//!             let entry = entry.ok_or("no RoCE v2 address")?;
//!             Destination::Global(GlobalRoute {
//!                 dgid: entry.gid,
//!                 sgid_index: entry.index.try_into()?,
//!                 hop_limit: 64,
//!                 traffic_class: 0,
//!                 flow_label: 0,
//!             })
//!         }
//!         _ => Destination::infiniband(port.lid, None),
//!     };
//!     let connect = |own: &QueuePair, remote: &QueuePair| -> Result<(), ibnet_verbs::Error> {
//!         own.to_init(&InitAttributes { port: 1, pkey_index: 0, access: Access::REMOTE_WRITE })?;
//!         own.to_rtr(&ReadyToReceive {
//!             mtu: port.active_mtu,
//!             remote_qp: remote.number(),
//!             remote_psn: 0,
//!             max_dest_rd_atomic: 1,
//!             min_rnr_timer: 12,
//!             address: AddressVector { port: 1, service_level: 0, destination },
//!         })?;
//!         own.to_rts(&ReadyToSend {
//!             psn: 0,
//!             timeout: 14,
//!             retry_count: 7,
//!             rnr_retry: 7,
//!             max_rd_atomic: 1,
//!         })
//!     };
//!     connect(&writer, &reader)?;
//!     connect(&reader, &writer)?;
//!
//!     // The reader will learn of the write by its immediate value.
//!     // SAFETY: the request names no memory.
//!     unsafe { reader.post_recv(&mut [RecvRequest::new(1)]) }?;
//!     let sge = Sge { address: from_region.address(), length: 8, lkey: from_region.lkey() };
//!     let remote = RemoteAddress { address: to_region.address(), rkey: to_region.rkey() };
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
//!     // SAFETY: the write is complete, so that nobody else touches the buffer any more.
//!     assert_eq!(unsafe { to.cast::<[u8; 8]>().read() }, *b"immortal");
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
mod addresses;
mod c_enum;
mod channel;
mod context;
mod conv;
mod cq;
mod device;
mod device_attr;
mod ece;
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
mod mlx5;
mod mr;
mod netdev;
mod pd;
mod port;
mod post;
mod qp;
mod qp_attr;
mod qp_state;
mod sysfs;
mod wc;
mod wr;

/// The C types and constants of libibverbs, as generated for `ibverbs-sys`.
///
/// Types only: calling one of its functions would make the program need libibverbs to start.
pub use ibverbs_sys as sys;

pub use access::Access;
pub use address::{AddressVector, Destination, GlobalRoute};
pub use channel::{CompletionChannel, CompletionEvent};
pub use context::Context;
pub use cq::{CompletionQueue, CqId};
pub use device::{Device, Transport};
pub use device_attr::DeviceAttributes;
pub use ece::Ece;
pub use error::Error;
pub use event::{AsyncEvent, EventType};
pub use fork::forks;
pub use functions::Functions;
pub use gid::{Gid, GidEntry, GidTableEntry, GidType};
pub use library::{ForkStatus, Library};
pub use loader::LoadError;
pub use memlock::LockedMemory;
pub use mlx5::Mlx5Functions;
pub use mr::MemoryRegion;
pub use netdev::{Netdev, NetdevKind};
pub use pd::ProtectionDomain;
pub use port::{LinkLayer, Mtu, PortAttributes, PortState};
pub use post::PostError;
pub use qp::QueuePair;
pub use qp_attr::{Capabilities, QueuePairAttributes, QueuePairOptions};
pub use qp_state::{InitAttributes, QueuePairState, ReadyToReceive, ReadyToSend, Transition};
pub use sysfs::Sysfs;
pub use wc::{WcOpcode, WcStatus, WorkCompletion};
pub use wr::{RecvRequest, RemoteAddress, SendRequest, Sge};
