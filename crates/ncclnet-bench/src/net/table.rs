//! The table of a network, of whatever version.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use ncclnet_ffi::abi::{
    AcceptV2, AcceptV7, Close, DeregMr, GetProperties, IrecvV5, IrecvV9, IrecvV10, IsendV5,
    IsendV9, IsendV10, NcclResult, NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12, RegMrV2,
    RegMrV8, Test,
};

use super::properties::Properties;
use super::{Error, Result};

/// The oldest version that is known here.
pub(super) const OLDEST: u32 = 6;
/// The newest version that is known here.
pub(super) const NEWEST: u32 = 12;

/// A table. It lives as long as the process.
#[derive(Clone, Copy)]
pub(super) enum Table {
    V6(&'static NetV6),
    V7(&'static NetV7),
    V8(&'static NetV8),
    V9(&'static NetV9),
    V10(&'static NetV10),
    V11(&'static NetV11),
    V12(&'static NetV12),
}

/// A field that has the same type in all versions, or an error that names it.
macro_rules! field {
    ($table:expr, $field:ident) => {
        match $table {
            Table::V6(table) => table.$field,
            Table::V7(table) => table.$field,
            Table::V8(table) => table.$field,
            Table::V9(table) => table.$field,
            Table::V10(table) => table.$field,
            Table::V11(table) => table.$field,
            Table::V12(table) => table.$field,
        }
        .ok_or(Error::Missing(stringify!($field)))
    };
}
pub(super) use field;

impl Table {
    /// The size of a table in bytes, if the version is known.
    pub(super) fn size(version: u32) -> Option<usize> {
        match version {
            6 => Some(size_of::<NetV6>()),
            7 => Some(size_of::<NetV7>()),
            8 => Some(size_of::<NetV8>()),
            9 => Some(size_of::<NetV9>()),
            10 => Some(size_of::<NetV10>()),
            11 => Some(size_of::<NetV11>()),
            12 => Some(size_of::<NetV12>()),
            _ => None,
        }
    }

    /// The table at an address, if the version is known.
    ///
    /// # Safety
    ///
    /// There is a table of this version, for the life of the process.
    pub(super) unsafe fn at(version: u32, address: *const c_void) -> Option<Self> {
        // SAFETY: promised by the caller.
        unsafe {
            Some(match version {
                6 => Self::V6(&*address.cast()),
                7 => Self::V7(&*address.cast()),
                8 => Self::V8(&*address.cast()),
                9 => Self::V9(&*address.cast()),
                10 => Self::V10(&*address.cast()),
                11 => Self::V11(&*address.cast()),
                12 => Self::V12(&*address.cast()),
                _ => return None,
            })
        }
    }

    /// The version of the interface.
    pub(super) fn version(self) -> u32 {
        match self {
            Self::V6(_) => 6,
            Self::V7(_) => 7,
            Self::V8(_) => 8,
            Self::V9(_) => 9,
            Self::V10(_) => 10,
            Self::V11(_) => 11,
            Self::V12(_) => 12,
        }
    }

    /// The network's name.
    pub(super) fn name(self) -> *const std::ffi::c_char {
        match self {
            Self::V6(table) => table.name,
            Self::V7(table) => table.name,
            Self::V8(table) => table.name,
            Self::V9(table) => table.name,
            Self::V10(table) => table.name,
            Self::V11(table) => table.name,
            Self::V12(table) => table.name,
        }
    }

    /// What a device is.
    pub(super) fn properties(self, device: i32) -> Result<Properties> {
        match self {
            Self::V6(table) => ask(table.get_properties, device),
            Self::V7(table) => ask(table.get_properties, device),
            Self::V8(table) => ask(table.get_properties, device),
            Self::V9(table) => ask(table.get_properties, device),
            Self::V10(table) => ask(table.get_properties, device),
            Self::V11(table) => ask(table.get_properties, device),
            Self::V12(table) => ask(table.get_properties, device),
        }
    }
}

fn ask<P: Into<Properties>>(function: Option<GetProperties<P>>, device: i32) -> Result<Properties> {
    let function = function.ok_or(Error::Missing("getProperties"))?;
    // Zeroed, because networks need not set what they do not know.
    let mut properties = MaybeUninit::<P>::zeroed();
    // SAFETY: the argument is a place for the properties of the table's version.
    check("getProperties", unsafe {
        function(device, properties.as_mut_ptr())
    })?;
    // SAFETY: integers and pointers, for which zeros are values.
    Ok(unsafe { properties.assume_init() }.into())
}

/// Turns what a function returned into a result.
#[inline]
pub(super) fn check(call: &'static str, result: NcclResult) -> Result<()> {
    if result.is_success() {
        Ok(())
    } else {
        Err(Error::Call { call, result })
    }
}

/// The functions of the hot path, taken out of the table once.
#[derive(Clone, Copy)]
pub(super) struct Hot {
    pub(super) isend: Isend,
    pub(super) irecv: Irecv,
    pub(super) test: Test,
}

/// `isend`, by signature.
#[derive(Clone, Copy)]
pub(super) enum Isend {
    V5(IsendV5),
    V9(IsendV9),
    V10(IsendV10),
}

/// `irecv`, by signature.
#[derive(Clone, Copy)]
pub(super) enum Irecv {
    V5(IrecvV5),
    V9(IrecvV9),
    V10(IrecvV10),
}

impl Hot {
    pub(super) fn new(table: Table) -> Result<Self> {
        let isend = match table {
            Table::V6(table) => table.isend.map(Isend::V5),
            Table::V7(table) => table.isend.map(Isend::V5),
            Table::V8(table) => table.isend.map(Isend::V5),
            Table::V9(table) => table.isend.map(Isend::V9),
            Table::V10(table) => table.isend.map(Isend::V10),
            Table::V11(table) => table.isend.map(Isend::V10),
            Table::V12(table) => table.isend.map(Isend::V10),
        };
        let irecv = match table {
            Table::V6(table) => table.irecv.map(Irecv::V5),
            Table::V7(table) => table.irecv.map(Irecv::V5),
            Table::V8(table) => table.irecv.map(Irecv::V5),
            Table::V9(table) => table.irecv.map(Irecv::V9),
            Table::V10(table) => table.irecv.map(Irecv::V10),
            Table::V11(table) => table.irecv.map(Irecv::V10),
            Table::V12(table) => table.irecv.map(Irecv::V10),
        };
        Ok(Self {
            isend: isend.ok_or(Error::Missing("isend"))?,
            irecv: irecv.ok_or(Error::Missing("irecv"))?,
            test: field!(table, test)?,
        })
    }
}

/// `accept`, by signature.
#[derive(Clone, Copy)]
pub(super) enum Accept {
    V2(AcceptV2),
    V7(AcceptV7),
}

/// `regMr`, by signature.
#[derive(Clone, Copy)]
pub(super) enum RegMr {
    V2(RegMrV2),
    V8(RegMrV8),
}

/// Functions of connections that are needed often enough to be taken out of the table, too.
#[derive(Clone, Copy)]
pub(super) struct Cold {
    pub(super) accept: Accept,
    pub(super) reg_mr: RegMr,
    pub(super) dereg_mr: DeregMr,
    pub(super) close_send: Close,
    pub(super) close_recv: Close,
    pub(super) close_listen: Close,
}

impl Cold {
    pub(super) fn new(table: Table) -> Result<Self> {
        let accept = match table {
            Table::V6(table) => table.accept.map(Accept::V2),
            Table::V7(table) => table.accept.map(Accept::V7),
            Table::V8(table) => table.accept.map(Accept::V7),
            Table::V9(table) => table.accept.map(Accept::V7),
            Table::V10(table) => table.accept.map(Accept::V7),
            Table::V11(table) => table.accept.map(Accept::V7),
            Table::V12(table) => table.accept.map(Accept::V7),
        };
        let reg_mr = match table {
            Table::V6(table) => table.reg_mr.map(RegMr::V2),
            Table::V7(table) => table.reg_mr.map(RegMr::V2),
            Table::V8(table) => table.reg_mr.map(RegMr::V8),
            Table::V9(table) => table.reg_mr.map(RegMr::V8),
            Table::V10(table) => table.reg_mr.map(RegMr::V8),
            Table::V11(table) => table.reg_mr.map(RegMr::V8),
            Table::V12(table) => table.reg_mr.map(RegMr::V8),
        };
        Ok(Self {
            accept: accept.ok_or(Error::Missing("accept"))?,
            reg_mr: reg_mr.ok_or(Error::Missing("regMr"))?,
            dereg_mr: field!(table, dereg_mr)?,
            close_send: field!(table, close_send)?,
            close_recv: field!(table, close_recv)?,
            close_listen: field!(table, close_listen)?,
        })
    }
}
