//! What the log says of the devices beside what the transport says of them: which address each has
//! and why, and what NCCL is told and sees.

use std::sync::Arc;

use ibnet::{DeviceInfo, PortReport, Transport};
use ibnet_verbs::LinkLayer;

use super::properties::{Device, UNKNOWN_SPEED_MBPS};
use crate::abi::MAX_NET_DEVICES;

/// Says of the physical devices of `transport` what it has not said itself: the address of each and
/// why, and which devices NCCL cannot see. It sees those that are `known`.
pub(super) fn devices(transport: &Transport, known: &[Arc<Device>]) {
    let infos = transport.devices();
    for device in known.iter().map(|device| device.index) {
        let info = &infos[device];
        if info.speed_mbps == 0 {
            tracing::info!(
                "{}: its speed is not known, and NCCL is told {UNKNOWN_SPEED_MBPS} Mb/s",
                info.label()
            );
        }
        match transport.port_reports(device) {
            Ok(reports) => {
                for report in &reports {
                    tracing::info!("{}: {}", report.label, address(report));
                }
            }
            // It is asked again, and warned of, when it is to connect.
            Err(error) => tracing::debug!("{}: {error}", info.label()),
        }
    }
    let hidden = infos.len() - known.len();
    if hidden > 0 {
        tracing::warn!(
            "NCCL has room for {MAX_NET_DEVICES} devices: the last {hidden} are left out; choose \
             with NCCL_IB_HCA"
        );
    }
}

/// Says by which number NCCL calls a virtual device, where that is not the transport's.
pub(super) fn virtual_device(number: usize, device: usize, info: &DeviceInfo) {
    if number != device {
        tracing::info!("NCCL calls {} [{number}]", info.name);
    }
}

/// The address of a port, and why it is this one.
fn address(report: &PortReport) -> String {
    let is_infiniband = report.link_layer == LinkLayer::InfiniBand;
    let gid = match &report.gid {
        Ok(selection) => choice(selection),
        Err(_) if is_infiniband => "no GID".to_owned(),
        Err(none) => none.to_string(),
    };
    if is_infiniband {
        format!("LID {}, {gid}", report.lid)
    } else {
        gid
    }
}

/// The chosen entry of a GID table, and what is the matter with the others.
fn choice(selection: &ibnet::gid::Selection) -> String {
    /// So many others at most: some tables have hundreds of entries.
    const OTHERS: usize = 6;
    let (chosen, others): (Vec<_>, Vec<_>) = selection
        .verdicts
        .iter()
        .filter(|verdict| !verdict.entry.gid.is_zero())
        .partition(|verdict| verdict.is_chosen());
    let mut line = String::from("GID ");
    for (position, verdict) in chosen.iter().chain(others.iter().take(OTHERS)).enumerate() {
        if position > 0 {
            line.push_str("; not ");
        }
        line.push_str(&verdict.to_string());
    }
    if others.len() > OTHERS {
        line.push_str(&format!("; nor {} more", others.len() - OTHERS));
    }
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv6Addr;

    use ibnet::gid;
    use ibnet_verbs::{GidTableEntry, GidType, Netdev};

    use super::*;

    fn chosen_of(table: &[GidTableEntry]) -> String {
        choice(&gid::select(table, LinkLayer::Ethernet, &gid::Policy::default()).unwrap())
    }

    fn entry(index: u32, gid_type: GidType, address: &str) -> GidTableEntry {
        GidTableEntry {
            index,
            gid: address.parse::<Ipv6Addr>().unwrap().into(),
            gid_type: Some(gid_type),
            netdev: Some(Netdev::named("eth2")),
            unreadable: None,
        }
    }

    #[test]
    fn the_choice_comes_first_and_the_others_say_why_not() {
        let line = chosen_of(&[
            entry(0, GidType::RoceV1, "fe80::1"),
            entry(1, GidType::RoceV2, "fe80::1"),
            entry(2, GidType::RoceV1, "::ffff:10.1.2.3"),
            entry(3, GidType::RoceV2, "::ffff:10.1.2.3"),
        ]);
        assert!(
            line.starts_with("GID 3: RoCEv2 10.1.2.3 on eth2: chosen; not 0: "),
            "{line}"
        );
        assert!(
            line.contains("not 2: RoCEv1 10.1.2.3 on eth2: older version"),
            "{line}"
        );
        assert_eq!(line.matches("; not ").count(), 3);
    }

    #[test]
    fn a_long_table_is_cut() {
        let row = |index| {
            entry(
                index,
                GidType::RoceV2,
                &format!("::ffff:10.1.2.{}", index + 1),
            )
        };
        let line = chosen_of(&(0..40).map(row).collect::<Vec<_>>());
        assert!(line.starts_with("GID 0: "), "{line}");
        assert!(line.ends_with("; nor 33 more"), "{line}");
    }
}
