//! One table for each version of NCCL's interface, and the functions that are different there.
//!
//! A version's file has what is new or last to be found in it; a table takes the rest from
//! [`entry`](crate::entry) or from its neighbours. Nothing is decided here: each function turns the
//! arguments of its version into those of one surface.
//!
//! # Safety
//!
//! That of [`entry`](crate::entry).

mod v10;
mod v11;
mod v12;
mod v2;
mod v3;
mod v4;
mod v5;
mod v6;
mod v7;
mod v8;
mod v9;
mod waiting;

pub use v2::ncclNetPlugin_v2;
pub use v3::ncclNetPlugin_v3;
pub use v4::ncclNetPlugin_v4;
pub use v5::ncclNetPlugin_v5;
pub use v6::ncclNetPlugin_v6;
pub use v7::ncclNetPlugin_v7;
pub use v8::ncclNetPlugin_v8;
pub use v9::ncclNetPlugin_v9;
pub use v10::ncclNetPlugin_v10;
pub use v11::ncclNetPlugin_v11;
pub use v12::ncclNetPlugin_v12;
