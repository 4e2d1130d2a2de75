//! `ncclResult_t`: what every function of the table returns.

use std::ffi::c_int;

/// NCCL's result code, a C `enum` of four bytes.
///
/// A newtype and not a Rust enum: a program that calls a foreign plugin may meet a value that is not
/// listed here, and that must not be undefined behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
#[must_use]
pub struct NcclResult(pub c_int);

impl NcclResult {
    /// Done.
    pub const SUCCESS: Self = Self(0);
    /// A CUDA call failed. Not used by network plugins.
    pub const UNHANDLED_CUDA_ERROR: Self = Self(1);
    /// A system or library call, the network or the hardware failed.
    pub const SYSTEM_ERROR: Self = Self(2);
    /// The caller broke the contract of the plugin, or the plugin has a fault of its own.
    pub const INTERNAL_ERROR: Self = Self(3);
    /// An argument is null or out of range.
    pub const INVALID_ARGUMENT: Self = Self(4);
    /// A user's mistake: a setting, a size, a combination that is not possible.
    pub const INVALID_USAGE: Self = Self(5);
    /// The peer failed or went away (NCCL 2.13.4 and later).
    pub const REMOTE_ERROR: Self = Self(6);

    /// Whether this is [`Self::SUCCESS`].
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESS.0
    }

    /// NCCL's name of the code, or `"unknown result"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "ncclSuccess",
            1 => "ncclUnhandledCudaError",
            2 => "ncclSystemError",
            3 => "ncclInternalError",
            4 => "ncclInvalidArgument",
            5 => "ncclInvalidUsage",
            6 => "ncclRemoteError",
            7 => "ncclInProgress",
            8 => "ncclTimeout",
            _ => "unknown result",
        }
    }
}

const _: () = assert!(size_of::<NcclResult>() == 4);
