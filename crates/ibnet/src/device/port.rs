//! The state of a port, its address and its partition: asked for once, and again when something
//! has changed.
//!
//! Reading a GID table takes hundreds of system calls on some machines, and a job makes
//! thousands of connections. But addresses come and go. So the choice is kept, and
//! before every connection attempt it is checked by little that nothing has changed: the count of
//! events of the port, the attributes of the port (one call), the chosen entry of the table (one
//! call), and whether the network interfaces of the table are up (two small files for each). If
//! something has, the table is read anew.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use ibnet_gid::RoceVersion;
use ibnet_verbs::{Context, LinkLayer, PortAttributes, PortState, Sysfs};

use super::prefix::prefix_length;
use crate::config::{Config, Partition};
use crate::error::Error;
use crate::events::Changes;

/// The state of a port at the moment of a connection attempt.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort {
    pub(crate) port: PortAttributes,
    pub(crate) gid: ibnet_verbs::Gid,
    pub(crate) gid_index: u8,
    /// Bits of the network's prefix in the address that the GID holds, if known. Ethernet only.
    pub(crate) prefix_length: Option<u8>,
    /// 1 or 2, if known. Ethernet only.
    pub(crate) roce_version: Option<u8>,
    /// Index of the partition to use in the port's P_Key table.
    pub(crate) pkey_index: u16,
}

/// The state of a port, and what was chosen of its tables. Made by
/// [`Transport::port_reports`](crate::Transport::port_reports).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// Name of the RDMA device and number of the port: `mlx5_0:1`.
    pub label: String,
    /// The state now; connections need [`PortState::ACTIVE`].
    pub state: PortState,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// The local identifier. Ethernet ports have none that matters, whatever some drivers say.
    pub lid: u16,
    /// Index of the partition in the P_Key table, or why it has none.
    pub pkey_index: Result<u16, Error>,
    /// The GID to use and a verdict on every entry of the table; or why none can be used, with
    /// a verdict on every entry. On InfiniBand a port can be used without one.
    pub gid: Result<ibnet_gid::Selection, ibnet_gid::NoGid>,
}

/// What was found out about a port of an open device, for as long as it holds.
pub(super) struct PortCache {
    context: Context,
    port: u8,
    changes: Arc<Changes>,
    policy: ibnet_gid::Policy,
    partition: Partition,
    sysfs: Sysfs,
    known: Mutex<Option<Known>>,
    /// Whether it was said that no GID is as asked for.
    despite: Once,
}

/// What holds as long as nothing has changed.
#[derive(Clone)]
struct Known {
    /// The port's count of changes from before anything was asked.
    changes: u64,
    local: LocalPort,
    /// The network interfaces of the table, with what the kernel says of them.
    interfaces: Vec<(String, InterfaceState)>,
}

/// The flags and the operational state of a network interface, as the kernel writes them.
type InterfaceState = [Option<String>; 2];

impl PortCache {
    pub(super) fn new(
        context: &Context,
        port: u8,
        changes: &Arc<Changes>,
        config: &Config,
    ) -> Self {
        Self {
            context: context.clone(),
            port,
            changes: Arc::clone(changes),
            policy: ibnet_gid::Policy {
                index: config.gid_index.for_port(context.device_name(), port),
                ..config.gid.clone()
            },
            partition: config.partition,
            sysfs: match &config.own_addresses {
                None => Sysfs::at(&config.sysfs),
                Some(own) => Sysfs::at(&config.sysfs).with_addresses(own.iter().copied()),
            },
            known: Mutex::new(None),
            despite: Once::new(),
        }
    }

    /// The port's number.
    pub(super) fn port(&self) -> u8 {
        self.port
    }

    fn label(&self) -> String {
        format!("{}:{}", self.context.device_name(), self.port)
    }

    /// The state of the port now.
    pub(super) fn local_port(&self) -> Result<LocalPort, Error> {
        // Before asking: what changes while we ask makes the answer stale.
        let changes = self.changes.of(self.port);
        let attributes = attributes(&self.context, self.port)?;
        if attributes.state != PortState::ACTIVE {
            return Err(Error::NoDevices {
                reason: format!("{}: its state is {}", self.label(), attributes.state),
            });
        }
        // Not held while the device is asked: two attempts at once may both ask.
        let known = self.lock().clone();
        if let Some(known) = known
            && known.changes == changes
            && self.still_holds(&known, &attributes)
        {
            return Ok(known.local);
        }
        // Not kept if it fails: the next attempt asks again.
        *self.lock() = None;
        let fresh = self.find_out(changes, attributes)?;
        let local = fresh.local.clone();
        *self.lock() = Some(fresh);
        Ok(local)
    }

    /// The names of the network interfaces that its GIDs belong to, as far as they are known.
    pub(super) fn interface_names(&self) -> Vec<String> {
        let known = self.lock();
        let interfaces = known.iter().flat_map(|known| &known.interfaces);
        interfaces.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the address of a connection has gone: there is another in its place of the table, or
    /// none. Not if that cannot be told.
    pub(super) fn has_lost(&self, index: u8, gid: ibnet_verbs::Gid) -> bool {
        let now = self.context.gid(self.port, index.into());
        !gid.is_zero() && now.is_ok_and(|now| now != gid)
    }

    /// What would be used now, and why. Nothing is taken from earlier.
    pub(super) fn report(&self) -> Result<PortReport, Error> {
        let attributes = attributes(&self.context, self.port)?;
        let entries = self.context.gid_table(self.port, &self.sysfs)?;
        Ok(PortReport {
            label: self.label(),
            state: attributes.state,
            link_layer: attributes.link_layer,
            lid: attributes.lid,
            pkey_index: self.pkey_index(attributes.pkey_table_len),
            gid: ibnet_gid::select(&entries, attributes.link_layer, &self.policy),
        })
    }

    /// Whether what is known agrees with the little that is asked every time.
    fn still_holds(&self, known: &Known, attributes: &PortAttributes) -> bool {
        let same_gid = || {
            let index = u32::from(known.local.gid_index);
            known.local.gid.is_zero()
                || self.context.gid(self.port, index).ok() == Some(known.local.gid)
        };
        known.local.port == *attributes
            && same_gid()
            && (known.interfaces.iter()).all(|(name, state)| *state == self.interface_state(name))
    }

    fn interface_state(&self, name: &str) -> InterfaceState {
        let folder = self.sysfs.root().join("class/net").join(name);
        ["flags", "operstate"].map(|file| fs::read_to_string(folder.join(file)).ok())
    }

    fn find_out(&self, changes: u64, port: PortAttributes) -> Result<Known, Error> {
        let entries = self.context.gid_table(self.port, &self.sysfs)?;
        let names = entries
            .iter()
            .filter_map(|entry| entry.netdev.as_ref()?.name.clone());
        let interfaces = BTreeSet::from_iter(names)
            .into_iter()
            .map(|name| (name.clone(), self.interface_state(&name)))
            .collect();
        let pkey_index = self.pkey_index(port.pkey_table_len)?;
        let chosen = match ibnet_gid::select(&entries, port.link_layer, &self.policy) {
            Ok(selection) => {
                tracing::debug!("{}: GIDs: {selection}", self.label());
                self.warn_of_what_no_gid_has(&selection);
                Some(selection.entry)
            }
            // InfiniBand addresses by LID; a GID is only needed across subnets.
            Err(_) if port.link_layer == LinkLayer::InfiniBand && !port.grh_required => None,
            Err(error) => {
                return Err(Error::NoGid {
                    device: self.label(),
                    source: Arc::new(error),
                });
            }
        };
        let index = chosen.as_ref().map_or(0, |entry| entry.index);
        let gid_index = u8::try_from(index).map_err(|_| {
            Error::InvalidArgument(format!(
                "{}: GID index {index} does not fit into a queue pair's address",
                self.label()
            ))
        })?;
        let is_ethernet = port.link_layer == LinkLayer::Ethernet;
        let entry = chosen.as_ref().filter(|_| is_ethernet);
        Ok(Known {
            changes,
            interfaces,
            local: LocalPort {
                port,
                gid: (chosen.as_ref()).map_or(ibnet_verbs::Gid([0; 16]), |entry| entry.gid),
                gid_index,
                prefix_length: entry.and_then(|entry| prefix_length(&entry.gid)),
                roce_version: entry.and_then(|entry| {
                    RoceVersion::of(entry.gid_type).map(|version| match version {
                        RoceVersion::V1 => 1,
                        RoceVersion::V2 => 2,
                    })
                }),
                pkey_index,
            },
        })
    }

    /// Says, once, that the GID has not the family or version that was asked for. NCCL goes on in
    /// that case, too.
    fn warn_of_what_no_gid_has(&self, selection: &ibnet_gid::Selection) {
        let mut chosen = selection.verdicts.iter().filter(|it| it.is_chosen());
        if let Some(verdict) = chosen.next()
            && let ibnet_gid::VerdictKind::Chosen(ibnet_gid::Because::Despite(_)) = verdict.kind
        {
            self.despite.call_once(|| {
                tracing::warn!("{}: no GID is as asked for; {verdict}", self.label())
            });
        }
    }

    /// Where the partition is in a P_Key table of `length` entries.
    fn pkey_index(&self, length: u16) -> Result<u16, Error> {
        match self.partition {
            // A driver that tells no length is asked by using the index.
            Partition::Index(index) if index < length || length == 0 => Ok(index),
            Partition::Index(index) => Err(Error::InvalidArgument(format!(
                "{}: P_Key index {index} (`partition`) in a table of {length}",
                self.label()
            ))),
            Partition::Value(wanted) => {
                let table: Vec<u16> = (0..length)
                    .map(|index| self.context.pkey(self.port, index).unwrap_or(0))
                    .collect();
                find_pkey(&table, wanted).ok_or_else(|| {
                    let there: Vec<String> = table
                        .iter()
                        .filter(|pkey| **pkey != 0)
                        .map(|pkey| format!("{pkey:#06x}"))
                        .collect();
                    Error::InvalidArgument(format!(
                        "{}: P_Key {wanted:#06x} (`partition`) is not in its table, which \
                         has {}",
                        self.label(),
                        there.join(", ")
                    ))
                })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        // No code under this lock can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port's attributes. A driver that names no link layer means InfiniBand: it is older than the
/// other kinds.
pub(super) fn attributes(
    context: &Context,
    port: u8,
) -> Result<PortAttributes, ibnet_verbs::Error> {
    let mut attributes = context.port(port)?;
    if attributes.link_layer == LinkLayer::Unspecified {
        attributes.link_layer = LinkLayer::InfiniBand;
    }
    Ok(attributes)
}

/// The index of `wanted`. Two ends of a partition talk if one of them is a full member
/// (InfiniBand specification, volume 1, section 10.9.3), so a full member's entry is the better.
fn find_pkey(table: &[u16], wanted: u16) -> Option<u16> {
    const FULL_MEMBER: u16 = 0x8000;
    let find = |pkey: u16| table.iter().position(|entry| *entry == pkey);
    find(wanted | FULL_MEMBER)
        .or_else(|| find(wanted & !FULL_MEMBER))
        .and_then(|index| u16::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_found_by_value() {
        for (table, wanted, index) in [
            (&[0xffff, 0x8001, 0x0002][..], 0x8001, Some(1)),
            (&[0xffff, 0x8001, 0x0002], 0x0001, Some(1)),
            (&[0xffff, 0x8001, 0x0002], 0x8002, Some(2)),
            (&[0xffff, 0x0001, 0x8001], 0x0001, Some(2)),
            (&[0xffff, 0x0001, 0x8001], 0x7fff, Some(0)),
            (&[0xffff, 0x8001], 0x0003, None),
            (&[], 0xffff, None),
        ] {
            assert_eq!(find_pkey(table, wanted), index, "{wanted:#x} in {table:x?}");
        }
    }
}
