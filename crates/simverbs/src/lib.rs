//! A software RDMA adapter inside the process, behind the function table of libibverbs.
//!
//! Code that uses RDMA is hard to test: it needs adapters or a kernel module, what the hardware does
//! is different each time, and the failures that matter most cannot be had on demand. This crate
//! simulates a machine with any number of adapters, and the network between them, in the process
//! of the test: without hardware, kernel support or privileges; deterministic if so wanted; and
//! able to fail in every way that hardware fails.
//!
//! The seam is the table of C functions that libibverbs exports. A [`Fabric`] gives a
//! [`ibnet_verbs::Library`], and everything above runs unchanged on a real adapter and on this one.
//! Memory is the process's own, so that a remote write is a copy.
//!
//! # Testing RDMA code with it
//!
//! Give your code a [`ibnet_verbs::Library`] as an argument, rather than let it call `Library::load`. A test
//! then builds a fabric and passes its library. [`guide`] leads through it, with a complete example.
//!
//! What tests usually want:
//!
//! - **Many schedules.** Run a scenario for a few hundred seeds, and print the seed when it fails.
//!   [`Random`] gives sizes and choices from the same seed.
//! - **Both ends in one test.** All devices of a fabric reach each other, so that both ends of a
//!   connection can be in one thread, which alternates between the ends and [`Fabric::step`].
//!   [`Fabric::step_until`] gives up after a number of steps.
//! - **Faults.** [`Fabric::faults`] arms them at any time. Each counts how often it struck: assert
//!   that it did, or the test passes without having tested anything. What can never strike, such as
//!   a fault on a device that is not there, panics.
//! - **Hands on the hardware.** [`Fabric::hca`] pulls cables, changes addresses, removes devices. That
//!   it hit something is told by [`Fabric::counters`]: of messages lost, by reason, and of events.
//! - **What was set.** [`Hca::queue_pairs`] and [`Hca::regions`] tell what the device was given:
//!   service levels, traffic classes, time-outs, partitions, access flags. The network works with
//!   almost any of them, so that nothing else would notice a wrong one.
//! - **Leaks.** [`Fabric::live_objects`] counts what was made and not destroyed.
//! - **Why?** A request that ends in `IBV_WC_RETRY_EXC_ERR` does not say why its packets were lost.
//!   [`Fabric::counters`] does ([`LossReason`]), and [`FabricBuilder::trace`] keeps a record of
//!   everything. `tracing` gets the same at level debug.
//! - **Older systems.** [`FabricBuilder::without`] takes functions out of the table,
//!   [`ContextKind::Legacy`] plays an old libibverbs, [`Limits`] a small device.
//!
//! # Two ways to run
//!
//! **Stepped** ([`FabricBuilder::stepped`]): posting only queues. Each [`Fabric::step`] draws one of
//! the things that could happen next, among all queue pairs: a message is carried out by the peer, or
//! a part of it becomes visible; data of a read arrives; an acknowledgement comes in; a request is
//! flushed. Some queue pairs are favoured for a while, so that one may get far ahead of another. Time
//! is virtual: a step takes 1 µs, and when there is nothing else to do time jumps to the next timer,
//! so that half a minute of retries takes no time. There are no threads. The same seed and the same
//! calls give the same run, wherever the memory is that they name. (One thing is left to the
//! address: which bytes of a torn message are visible before its completion, where a buffer does not
//! start at a 64-byte line. See [`Faults::tear_messages`].)
//!
//! **Free-running** (the default): what is posted is carried out at once, in the thread that posts,
//! and time is real. Timers are fired by the threads that poll (and by a thread of the fabric's own once
//! there is a completion channel, because its users sleep). For demonstrations, examples, benchmarks
//! of what is built above, and tests with many threads. A small message costs 0.1 to 0.2 µs, large
//! ones what copying them costs; `examples/cost.rs` measures it. One lock serves the whole fabric;
//! polling an empty queue does not take it, and messages from 16 KiB on are copied outside it.
//!
//! # What is simulated
//!
//! Reliable connections with RDMA write, write with immediate, read, send and send with immediate;
//! several elements per request, inline data, fences, solicited events. Queue pair states and all
//! their transitions (automatic path migration excepted); sequence numbers, path MTU, partitions and
//! addresses, on which both ends have to agree; acknowledgement timeouts and retries; receivers that
//! are not ready. Protection domains, keys, ranges and permissions. Places in queues, which are taken
//! until a completion is polled. Limits. Completion queues that overrun. Completion channels.
//! Asynchronous events with their acknowledgement. Registration at another address and from a
//! DMA-BUF (any file that can be mapped, such as a memfd). ECE. GID tables with holes. fork
//! functions. mlx5's Data Direct. A directory that looks like sysfs.
//!
//! Not simulated: unreliable transports, shared receive queues, atomics, memory windows, the extended
//! interfaces (`ibv_wr_*`, `ibv_start_poll`), on-demand paging, multicast, path migration, congestion
//! and bandwidth. Asking for one of them fails with `EOPNOTSUPP` or `EINVAL`.
//!
//! # How faithful it is
//!
//! It follows the InfiniBand specification and the manual pages. Where adapters may differ, it takes
//! what is harder on the program:
//!
//! - The local and the remote key of a region differ, keys of one device are wrong on every other,
//!   and a key is not used again when its region is gone.
//! - Queue pair numbers are unique in the fabric (and in it only: two fabrics may use the same) and
//!   have gaps.
//! - Opcode, length, immediate and flags of a failed completion are garbage, a different one each
//!   time.
//! - The data of a write with immediate is placed before its receive is looked for, so that it may
//!   be visible long before. It is not placed twice.
//! - A completion may mean several: acknowledgements are combined at random.
//! - A lost acknowledgement fails a request that was carried out.
//! - A queue pair that gets a bad request goes to ERR and raises an event, as its peer's does.
//! - `ibv_reg_mr` refuses optional access flags, as kernels did that do not know them.
//! - `ibv_close_device` fails with `EBUSY` while objects of the device exist, where libibverbs would
//!   leak them.
//! - The port of an address vector must be that of the queue pair, and sequence numbers must fit 24
//!   bits, where some drivers look at neither.
//! - Numbers of queue pairs, requests, bytes and elements are granted exactly as asked for.
//!
//! What is easier than on hardware, and to be kept in mind:
//!
//! - Registering read-only memory for writing is not refused; writing to it then crashes the process.
//! - Messages, not packets, are lost. A message of which a part was placed goes on from there.
//! - Every loss is noticed by timeout; there are no early negative acknowledgements.
//! - Timers are exact. The specification allows an acknowledgement timeout to take four times as
//!   long.
//! - The destruction of an object that is in use by another thread is noticed by a panic at best.
//!
//! Where Soft-RoCE (RXE) deviates from the specification it is not followed. `docs/conformance.md` of
//! this repository lists each behaviour that was compared, what is demanded, and how and why RXE
//! differs. Two of its ways can be had by [`DeviceSpec`], because they are found elsewhere, too:
//! no `IBV_EVENT_COMM_EST`, and completions that stay in their queues when a queue pair is reset.
//!
//! # Several fabrics
//!
//! Each test has its own fabric, and tests may run in parallel: fabrics never see each other. As C
//! functions have no state, and `ibv_get_device_list` has no argument from which its fabric could be
//! told, there is a fixed number of copies of that function, so that up to 128 fabrics can live at a
//! time. A fabric lives, and takes one of these places, as long as anything of it ([`Fabric`] has
//! the list): also a [`Fault`] that a test has kept, and what could not be destroyed because
//! [`Faults::fail_call`] made its destruction fail.

#![deny(clippy::undocumented_unsafe_blocks)]

mod builder;
mod engine;
mod fabric;
mod faults;
mod ffi;
#[doc = include_str!("../../../docs/simverbs.md")]
pub mod guide {}
mod hca;
mod random;
mod shared;
mod slots;
mod spec;
mod sysfs;
mod table;
mod ticker;
mod trace;
mod view;

pub use builder::{BuildError, FabricBuilder};
pub use fabric::{Fabric, LiveObjects};
pub use faults::{Fault, Faults, Stage, Target, Verb, When};
pub use hca::{Hca, HcaPort};
pub use random::Random;
pub use spec::{ContextKind, DeviceSpec, GidSlot, LaneSpeed, Limits, PortSpec, Width};
pub use table::OptionalFunction;
pub use trace::{Counters, LossReason, TraceEntry, TraceEvent};
pub use view::{QueuePairView, RegionKind, RegionView};
