//! Reading a port's GID table with types and network interfaces.
//!
//! There are three ways, each for what the one before cannot do. The whole table in one call is
//! the cheapest, but some combinations of library and kernel fail it for one bad entry. Then
//! entry by entry. A library that has neither call gives the bare GIDs; their types and
//! interfaces are then read from sysfs.

use std::ffi::CString;
use std::io;
use std::path::Path;

use ibverbs_sys::ibv_gid_entry;

use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::gid::{GidEntry, GidType};
use crate::port::LinkLayer;

/// More entries than any device has. Bounds the memory that a mistaken driver can make us take.
const MAX_TABLE: u32 = 1 << 16;

/// The entries of a port that are not empty and can be read, by ascending index.
pub(crate) fn entries(context: &Context, port: u8) -> Result<Vec<GidEntry>, Error> {
    let attributes = context.port(port)?;
    let length = attributes.gid_table_len.min(MAX_TABLE);
    if let Some(entries) = whole_table(context, port) {
        return Ok(entries);
    }
    let one = |index| match one_entry(context, port, index) {
        Some(entry) => entry,
        None => one_entry_by_sysfs(context, port, index, attributes.link_layer),
    };
    let readable = (0..length).filter_map(|index| match one(index) {
        Ok(entry) => entry,
        Err(error) => {
            let device = context.device_name();
            tracing::debug!(device, port, index, %error, "GID entry cannot be read; left out");
            None
        }
    });
    Ok(readable.collect())
}

/// The whole table by `_ibv_query_gid_table`. None if the library lacks it or the call fails.
fn whole_table(context: &Context, port: u8) -> Option<Vec<GidEntry>> {
    let query_gid_table = context.functions().query_gid_table?;
    // The call gives the entries of all ports and fails if they do not fit.
    let ports = 1..=context.attributes().ok()?.phys_port_count;
    let lengths = ports.filter_map(|port| context.port(port).ok());
    let capacity: u32 = lengths.map(|port| port.gid_table_len.min(MAX_TABLE)).sum();
    let mut raw = vec![ibv_gid_entry::default(); capacity as usize];
    // SAFETY: the context is open, and the array has the capacity and entry size that are given.
    let result = conv::count(|| unsafe {
        query_gid_table(
            context.as_raw(),
            raw.as_mut_ptr(),
            raw.len(),
            0,
            size_of::<ibv_gid_entry>(),
        )
    });
    match result {
        Ok(number) => {
            raw.truncate(number);
            let of_port = raw.iter().filter(|entry| entry.port_num == u32::from(port));
            let mut entries: Vec<_> = of_port.map(GidEntry::from_raw).collect();
            entries.retain(|entry| !entry.gid.is_zero());
            entries.sort_by_key(|entry| entry.index);
            Some(entries)
        }
        Err(error) => {
            let device = context.device_name();
            tracing::debug!(device, port, %error, "GID table cannot be read at once");
            None
        }
    }
}

/// One entry by `_ibv_query_gid_ex`: `Ok(None)` if it is empty. The outer None says that the
/// library lacks the call.
fn one_entry(context: &Context, port: u8, index: u32) -> Option<io::Result<Option<GidEntry>>> {
    let query_gid_ex = context.functions().query_gid_ex?;
    let mut raw = ibv_gid_entry::default();
    // SAFETY: the context is open, and the entry has the size that is given.
    let result = conv::returned(|| unsafe {
        query_gid_ex(
            context.as_raw(),
            port.into(),
            index,
            &raw mut raw,
            0,
            size_of::<ibv_gid_entry>(),
        )
    });
    Some(match result {
        Ok(()) => {
            let entry = GidEntry {
                index,
                ..GidEntry::from_raw(&raw)
            };
            Ok((!entry.gid.is_zero()).then_some(entry))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        Err(error) => Err(error),
    })
}

/// One entry by `ibv_query_gid` and sysfs: `Ok(None)` if it is empty.
fn one_entry_by_sysfs(
    context: &Context,
    port: u8,
    index: u32,
    link_layer: LinkLayer,
) -> io::Result<Option<GidEntry>> {
    let gid = context.read_gid(port, index)?;
    if gid.is_zero() {
        return Ok(None);
    }
    let attributes = context
        .device()
        .sysfs_path()
        .join("ports")
        .join(port.to_string())
        .join("gid_attrs");
    let gid_type = sysfs_type(&attributes, index, link_layer)?;
    let netdev = sysfs_netdev(&attributes, index)?;
    Ok(Some(GidEntry {
        index,
        gid,
        gid_type,
        netdev,
    }))
}

/// The type of an entry, from the directory `gid_attrs` of its port.
fn sysfs_type(attributes: &Path, index: u32, link_layer: LinkLayer) -> io::Result<GidType> {
    let file = attributes.join("types").join(index.to_string());
    let text = std::fs::read_to_string(file);
    parse_type(text, attributes.is_dir(), link_layer)
}

/// What the content of a type file means, or the failure to read it.
///
/// The kernel answers `EINVAL` for entries of a protocol without types, which is InfiniBand. A
/// kernel without the whole directory is older than RoCE version 2.
fn parse_type(
    text: io::Result<String>,
    directory_exists: bool,
    link_layer: LinkLayer,
) -> io::Result<GidType> {
    let first_version = match link_layer {
        LinkLayer::Ethernet => GidType::RoceV1,
        _ => GidType::InfiniBand,
    };
    match text {
        Ok(text) => match text.trim_end() {
            "IB/RoCE v1" => Ok(first_version),
            "RoCE v2" => Ok(GidType::RoceV2),
            other => Err(io::Error::other(format!(
                "unknown GID type {other:?} in sysfs"
            ))),
        },
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL) => Ok(first_version),
            Some(libc::ENOENT) if !directory_exists => Ok(first_version),
            _ => Err(error),
        },
    }
}

/// The network interface of an entry, from the directory `gid_attrs` of its port. None if sysfs
/// names none. An error if the interface it names is not in this network namespace: the entry
/// cannot be used from here.
fn sysfs_netdev(attributes: &Path, index: u32) -> io::Result<Option<u32>> {
    let Ok(name) = std::fs::read_to_string(attributes.join("ndevs").join(index.to_string())) else {
        return Ok(None);
    };
    let name = name.trim_end();
    if name.is_empty() {
        return Ok(None);
    }
    let c_name = CString::new(name)?;
    // SAFETY: the name is a valid C string.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(io::Error::other(format!(
            "no network interface {name} in this namespace"
        ))),
        index => Ok(Some(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(errno: i32) -> io::Result<String> {
        Err(io::Error::from_raw_os_error(errno))
    }

    fn types(text: fn() -> io::Result<String>, directory_exists: bool) -> [Option<GidType>; 2] {
        [LinkLayer::InfiniBand, LinkLayer::Ethernet]
            .map(|link_layer| parse_type(text(), directory_exists, link_layer).ok())
    }

    #[test]
    fn the_first_version_is_named_by_the_link_layer() {
        let first = [Some(GidType::InfiniBand), Some(GidType::RoceV1)];
        assert_eq!(types(|| Ok("IB/RoCE v1\n".to_owned()), true), first);
        // InfiniBand has no types: the kernel answers EINVAL.
        assert_eq!(types(|| errno(libc::EINVAL), true), first);
        // A kernel from before there were types.
        assert_eq!(types(|| errno(libc::ENOENT), false), first);
    }

    #[test]
    fn the_second_version_names_itself() {
        let second = [Some(GidType::RoceV2); 2];
        assert_eq!(types(|| Ok("RoCE v2\n".to_owned()), true), second);
    }

    #[test]
    fn what_cannot_be_read_or_understood_is_no_type() {
        assert_eq!(types(|| errno(libc::ENOENT), true), [None; 2]);
        assert_eq!(types(|| errno(libc::EACCES), true), [None; 2]);
        assert_eq!(types(|| Ok("RoCE v3\n".to_owned()), true), [None; 2]);
        assert_eq!(types(|| Ok(String::new()), true), [None; 2]);
    }
}
