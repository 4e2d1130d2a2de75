//! A network with NCCL's plugin interface, loaded from a file.
//!
//! Here lives everything that knows the interface: finding the table of functions ([`loader`],
//! [`elf`]), its versions ([`table`]), and one surface over all of them ([`network`]). What is
//! measured, and how, is not here.

mod comm;
mod elf;
mod loader;
mod logger;
mod network;
mod properties;
mod shrink;
mod table;

pub(crate) use comm::{Comm, Kind, Memory, Request};
pub(crate) use loader::Source;
pub(crate) use network::{Handle, Listener, Network};
pub(crate) use properties::Properties;
pub(crate) use shrink::shrink;

use ncclnet_ffi::abi::NcclResult;

/// Why something could not be done with a network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file is no library that can be used here.
    #[error("{file}: {problem}")]
    Load {
        /// The library.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The network reported an error.
    #[error("{call}: {}; NCCL_DEBUG=WARN or INFO may tell more", result.name())]
    Call {
        /// The function of the interface.
        call: &'static str,
        /// What it returned.
        result: NcclResult,
    },
    /// The table has no such function, although NCCL needs it.
    #[error("the network's table has no function {0}")]
    Missing(&'static str),
    /// Nothing happened for so long.
    #[error("{what}: nothing for {seconds} s; has the peer gone?")]
    Silence {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// What was asked for makes no sense for this network.
    #[error("{0}")]
    Refused(String),
    /// What arrived is not what was sent.
    #[error("{0}")]
    Corrupt(String),
    /// A call to the operating system failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// The result of what is done with a network.
pub(crate) type Result<T> = std::result::Result<T, Error>;
