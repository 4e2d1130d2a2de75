//! Reading a port's GID table with types and network interfaces.
//!
//! There are three ways, each for what the one before cannot do. The whole table in one call is
//! the cheapest, but some combinations of library and kernel fail it for one bad entry. Then
//! entry by entry. A library that has neither call, or fails it, gives the bare GIDs; their types
//! and interfaces are then read from sysfs.
//!
//! An entry that cannot be read stays in the table with the reason, and hides no other.

use std::collections::HashMap;
use std::io;

use ibverbs_sys::ibv_gid_entry;

use crate::context::Context;
use crate::conv;
use crate::error::Error;
use crate::gid::GidTableEntry;
use crate::gid_attributes::GidAttributes;
use crate::netdev::Netdev;
use crate::port::{LinkLayer, PortAttributes};
use crate::sysfs::Sysfs;

/// More entries than any device has. Bounds the memory that a mistaken driver can make us take.
const MAX_TABLE: u32 = 1 << 16;

impl Context {
    /// The entries of a port's GID table that are not empty, by ascending index, each with its
    /// type and with what `sysfs` tells of its network interface.
    ///
    /// An entry that cannot be read, or that belongs to another network namespace, says so and
    /// hides no other. Nothing but the port itself must be readable: without sysfs, interfaces
    /// have no state, and without a library that tells types, entries have none.
    ///
    /// See also: ibv_query_gid_table(3), ibv_query_gid_ex(3), and `sysfs-class-infiniband` and
    /// `sysfs-class-net` of the kernel's documentation.
    pub fn gid_table(&self, port: u8, sysfs: &Sysfs) -> Result<Vec<GidTableEntry>, Error> {
        table(self, port, sysfs)
    }
}

fn table(context: &Context, port: u8, sysfs: &Sysfs) -> Result<Vec<GidTableEntry>, Error> {
    let attributes = context.port(port)?;
    let files = GidAttributes::of(context, port, attributes.link_layer, sysfs);
    let mut table = read(context, port, &attributes, &files);
    let own = match attributes.link_layer {
        LinkLayer::Ethernet => sysfs.own_gids(context.library().file().is_some()),
        // The GIDs of InfiniBand are no addresses of interfaces.
        _ => None,
    };
    let mut known = HashMap::new();
    for entry in &mut table {
        identify(entry, &files, sysfs);
        if entry.unreadable.is_none() && own.as_ref().is_some_and(|own| !own.contains(&entry.gid)) {
            entry.unreadable = Some("no interface of this network namespace has it".to_owned());
        }
        // What cannot be used is not described: it may be another's interface of the same name.
        if entry.unreadable.is_none()
            && let Some(netdev) = &mut entry.netdev
        {
            let described = known.entry(netdev.clone()).or_insert_with_key(|netdev| {
                let mut netdev = netdev.clone();
                sysfs.describe(&mut netdev);
                netdev
            });
            netdev.clone_from(described);
        }
    }
    Ok(table)
}

/// The table as far as the library tells, with what only sysfs can tell where the library cannot.
fn read(
    context: &Context,
    port: u8,
    attributes: &PortAttributes,
    files: &GidAttributes,
) -> Vec<GidTableEntry> {
    if let Some(table) = whole_table(context, port) {
        return table;
    }
    let one = |index| {
        let by_sysfs = || one_entry_by_sysfs(context, port, index, files);
        match one_entry(context, port, index) {
            Some(Err(error)) => by_other_means(error, by_sysfs()),
            Some(entry) => entry,
            None => by_sysfs(),
        }
    };
    let readable = (0..attributes.gid_table_len.min(MAX_TABLE)).filter_map(|index| {
        one(index).unwrap_or_else(|error| {
            let device = context.device_name();
            tracing::debug!(device, port, index, %error, "GID entry cannot be read");
            Some(GidTableEntry::unreadable(index, querying(&error)))
        })
    });
    readable.collect()
}

/// The whole table by `_ibv_query_gid_table`. None if the library lacks it or the call fails.
fn whole_table(context: &Context, port: u8) -> Option<Vec<GidTableEntry>> {
    let query_gid_table = context.functions().query_gid_table?;
    // The call gives the entries of all ports and fails if they do not fit.
    let ports = 1..=context.attributes().ok()?.phys_port_count;
    let lengths = ports.filter_map(|port| context.port(port).ok());
    let capacity = lengths.fold(0_u32, |sum, port| {
        sum.saturating_add(port.gid_table_len.min(MAX_TABLE))
    });
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
            let entries = of_port.map(GidTableEntry::from_raw);
            let mut table: Vec<_> = entries.filter(|entry| !entry.gid.is_zero()).collect();
            table.sort_by_key(|entry| entry.index);
            Some(table)
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
fn one_entry(context: &Context, port: u8, index: u32) -> Option<io::Result<Option<GidTableEntry>>> {
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
            let entry = GidTableEntry {
                index,
                ..GidTableEntry::from_raw(&raw)
            };
            Ok((!entry.gid.is_zero()).then_some(entry))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        Err(error) => Err(error),
    })
}

/// What is known of an entry that `_ibv_query_gid_ex` failed for: what the other way tells, if it
/// tells enough. Some kernels fail for empty entries, too.
fn by_other_means(
    error: io::Error,
    by_sysfs: io::Result<Option<GidTableEntry>>,
) -> io::Result<Option<GidTableEntry>> {
    match by_sysfs {
        Ok(Some(mut entry)) => {
            if entry.gid_type.is_none() && entry.unreadable.is_none() {
                entry.unreadable = Some(querying(&error));
            }
            Ok(Some(entry))
        }
        Ok(None) => Ok(None),
        Err(_) => Err(error),
    }
}

/// Why an entry is unreadable, in words.
fn querying(error: &io::Error) -> String {
    format!("querying it: {error}")
}

/// One entry by `ibv_query_gid` and sysfs: `Ok(None)` if it is empty.
fn one_entry_by_sysfs(
    context: &Context,
    port: u8,
    index: u32,
    files: &GidAttributes,
) -> io::Result<Option<GidTableEntry>> {
    let gid = context.read_gid(port, index)?;
    if gid.is_zero() {
        return Ok(None);
    }
    let (gid_type, unreadable) = match files.gid_type(index) {
        Ok(gid_type) => (gid_type, None),
        Err(error) => (None, Some(format!("its type in sysfs: {error}"))),
    };
    Ok(Some(GidTableEntry {
        index,
        gid,
        gid_type,
        netdev: files.netdev(index).map(Netdev::named),
        unreadable,
    }))
}

/// Finds both the number and the name of an entry's network interface, and marks the entry as
/// unreadable if this network namespace does not have it.
///
/// Interfaces of different namespaces can have the same number. That is noticed by the name, which
/// sysfs tells as the interface's own namespace has it; where both are the same, by the address.
fn identify(entry: &mut GidTableEntry, files: &GidAttributes, sysfs: &Sysfs) {
    let told = match &entry.netdev {
        Some(Netdev {
            name: Some(name), ..
        }) => Some(name.clone()),
        _ => files.netdev(entry.index),
    };
    let number = entry.netdev.as_ref().and_then(|netdev| netdev.index);
    let (index, name, is_foreign) = match (number, told) {
        (None, None) => return,
        (Some(number), told) => match sysfs.interface_name(number) {
            Ok(Some(here)) => {
                let differs = told.as_ref().is_some_and(|told| *told != here);
                (Some(number), told.or(Some(here)), differs)
            }
            Ok(None) => (Some(number), told, true),
            Err(_) => (Some(number), told, false),
        },
        (None, Some(told)) => match sysfs.interface_index(&told) {
            Ok(Some(number)) => (Some(number), Some(told), false),
            Ok(None) => (None, Some(told), true),
            Err(_) => (None, Some(told), false),
        },
    };
    let netdev = Netdev {
        index,
        name,
        ..Netdev::default()
    };
    if is_foreign && entry.unreadable.is_none() {
        entry.unreadable = Some(format!("{netdev} is not in this network namespace"));
    }
    entry.netdev = Some(netdev);
}
